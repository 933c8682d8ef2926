/** Several keys that spend from one balance. */
import { copyFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import { openSqlite } from '../../core/records/sqlite.ts'
import { findServer } from '../../core/store/managed.ts'
import { recordsEnv, startGateway, type TestGateway, until, upstreamEnv } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { Place, type Running } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { scene } from '../scene.ts'
import { ScriptedUpstream } from '../upstream.ts'

/** Without a redis-server of its own a test has none to share. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'

/** Creates a key with a balance of its own, and others that spend from it. Returns their secrets. */
async function keysOfOne(g: TestGateway, count: number, credits = 10n, cap?: bigint): Promise<[string, ...string[]]> {
  const first = await g.key('famC', credits)
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: await g.id(first), cap }
  const created = await g.gateway.keys.changes.createMany(wish, count - 1)
  return [first, ...created.map(({ secret }) => secret)]
}

t.test(
  'three keys on two gateways never spend more than their balance has, also if one gateway is killed',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
    const file: Edit = each => ownPrefix(each).set('ledger.lease', '3s').set('ledger.reapEvery', '1s')
    const one = new Place(t, file, env)
    const other = new Place(t, each => file(each).set('store.data', join(one.folder, 'data')), env)
    const gateways = await Promise.all([one.startProcess(t), other.startProcess(t)])
    const first = await one.key('famC', '0.12')
    const made = await one.run('keys', 'create', '--type', 'famC', '--balance', first.id, '--count', '2', '--json')
    const others = made.out.trim().split('\n').map(line => JSON.parse(line) as { id: string; key: string }) // prettier-ignore
    const keys = [first, ...others]
    t.equal(keys.length, 3, made.err)
    const [gateway, second] = gateways
    // Each has used something, whatever the crowd gets.
    for (const { key } of keys) await (await gateway.chat(key, BODY)).arrayBuffer()
    let sent = 0
    const ask = async (index: number): Promise<number> => {
      const { key = '' } = keys[index % 3] ?? {}
      if (++sent === 120) await second.stop('SIGKILL')
      const answer = await (gateways[index % 2] as Running).chat(key, BODY).catch(() => undefined)
      await answer?.arrayBuffer().catch(() => {})
      return answer?.status ?? 0
    }
    const statuses = await Promise.all(Array.from({ length: 300 }, (_, index) => ask(index)))
    t.same([...new Set(statuses)].sort(), [0, 200, 429])
    const view = async (id: string) => JSON.parse((await one.run('keys', 'show', id, '--json')).out)
    await until(async () => (await Promise.all(keys.map(({ id }) => view(id)))).every(({ held }) => held === '0'))
    const shown = await Promise.all(keys.map(({ id }) => view(id)))
    const used = shown.reduce((sum, key) => sum + Math.round(Number(key.used) * 1e9), 0)
    t.equal(
      used + Math.round(Number(shown[0].balance) * 1e9),
      120_000_000,
      'what the keys have used is what is missing',
    )
    t.ok(Number(shown[0].balance) >= 0)
    t.ok(shown.every(key => Number(key.used) > 0 && key.balance === shown[0].balance && key.balance_id === first.id))
    t.match(await one.run('audit'), { code: 0 })
  },
)

t.test('a store that is lost gets back what each key has of its balance', async t => {
  const { g } = await scene(t)
  const [first, capped = ''] = await keysOfOne(g, 2, 10n, NANO)
  for (const key of [first, capped, capped]) await g.call(CHAT, { key, body: BODY })
  await g.settledAll([first])
  const { ledger, keys } = g.gateway
  await ledger.background.archiveAll()
  const { redis } = ledger.scripts
  const account = await g.id(first)
  const before = await redis.hgetall(ledger.scripts.keys.of(account).account)
  const all = await redis.keys(`${ledger.scripts.keys.shared('')}*`)
  await redis.del(...all)
  await ledger.continuity.rebuildAll()
  await ledger.continuity.start(false)
  const after = await redis.hgetall(ledger.scripts.keys.of(account).account)
  const parts = (fields: Record<string, string>) => Object.entries(fields).filter(([name]) => name.startsWith('u:')).map(([name, text]) => [name, text.split(' ', 3)]).sort() // prettier-ignore
  t.strictSame(parts(after), parts(before))
  t.match(await keys.refind(capped), { account, cap: NANO, settled: 2n * ((await keys.refind(first))?.settled ?? 0n) })
  t.same((await audit(ledger)).drifts, [])
})

t.test(
  'a thousand moves under load lose nothing, although a gateway is killed',
  { skip, timeout: 200_000 },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
    const file: Edit = each => ownPrefix(each).set('ledger.lease', '3s').set('ledger.reapEvery', '1s')
    const place = new Place(t, file, env)
    const victim = await place.startProcess(t)
    const g = await startGateway(t, {
      upstream: upstream.url,
      env,
      edit: each => file(each).set('store.data', join(place.folder, 'data')),
    })
    const { ledger, keys } = g.gateway
    const secrets = await Promise.all(Array.from({ length: 4 }, () => g.key('famC', 1n)))
    const ids = await Promise.all(secrets.map(secret => g.id(secret)))
    let moving = true
    let served = 0
    const customer = async (index: number): Promise<void> => {
      for (; moving; index++) {
        const [key = ''] = [secrets[index % 4]]
        const answer =
          index % 2 === 0
            ? await g.call(CHAT, { key, body: BODY })
            : await victim.chat(key, BODY).catch(() => undefined)
        if (answer?.status === 200) served++
      }
    }
    const customers = Array.from({ length: 2 }, (_, index) => customer(index))
    let moves = 0
    const mover = async (nth: number): Promise<void> => {
      for (let turn = 0; turn < 250; turn++) {
        await keys.changes.move(ids[nth] ?? '', ids[(nth + turn + 1) % 4] ?? '')
        if (++moves === 500) await victim.stop('SIGKILL')
      }
    }
    await Promise.all([0, 1, 2, 3].map(mover))
    moving = false
    await Promise.all(customers)
    await until(async () =>
      (await Promise.all(ids.map(id => ledger.reads.balance(id)))).every(({ held }) => held === 0n),
    )
    t.equal(moves, 1000)
    t.ok(served > 100, `${served} requests were served meanwhile`)
    await ledger.background.archiveAll()
    const { drifts, repriced } = await audit(ledger, undefined, 'charges')
    t.same(drifts, [])
    t.ok(repriced >= served, `${repriced} charges of ${upstream.requests.length} requests`)
    t.ok(repriced <= upstream.requests.length)
  },
)

t.test(
  'balances, keys and moves that a restored SQLite file lacks are recorded again as they were',
  { skip: skip || (process.env['TEST_RECORDS'] === 'postgres' && 'the records are not in SQLite') },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    const place = new Place(t, ownPrefix, { ...upstreamEnv(upstream.url), REDIS_URL: redis.url })
    const [file, backup] = ['records.sqlite', 'backup'].map(name => join(place.folder, 'data', name)) as [
      string,
      string,
    ]
    const run = async (...args: string[]) => JSON.parse((await place.run(...args, '--json')).out)
    const first = await place.startProcess(t)
    await first.stop('SIGTERM')
    copyFileSync(file, backup)
    const second = await place.startProcess(t)
    const asks = async (running: Running, all: readonly { readonly key: string }[]): Promise<void> => {
      for (const { key } of all) {
        t.equal((await running.chat(key, BODY)).status, 200)
        await until(async () => (await running.held(key)) === '0')
      }
    }
    const [one, other, third] = [
      await place.key('famC', '5'),
      await place.key('famC', '5'),
      await place.key('famC', '5'),
    ]
    const created = async (balance: string) => {
      const { id, key } = await run('keys', 'create', '--type', 'famC', '--balance', balance)
      return { id: String(id), key: String(key) }
    }
    const { id: balance } = await run('balances', 'create', '--name', 'x', '--credits', '3')
    const keys = [one, other, third, await created(one.id), await created(balance)]
    await asks(second, keys)
    await run('keys', 'move', other.id, one.id)
    await run('keys', 'move', third.id, balance)
    await asks(second, keys)
    await second.stop('SIGTERM')
    for (const ending of ['-wal', '-shm']) rmSync(file + ending, { force: true })
    copyFileSync(backup, file)

    const again = await place.startProcess(t)
    await again.saw(/the database lacks transactions that it had committed/)
    await again.saw(/"exchanges":10,"accounts":4/)
    await asks(again, keys)
    for (const { id } of keys) {
      const { balance_id } = await run('keys', 'show', id)
      const at = [one.id, other.id].includes(id) ? one.id : balance
      t.equal(balance_id, id === keys[3]?.id ? one.id : at)
    }
    t.match(await place.run('audit'), { code: 0, out: /4 accounts/ })
    await run('keys', 'move', other.id, other.id)
    await asks(again, keys)
    t.match(await place.run('audit'), { code: 0, out: /4 accounts/ })
    for (const { key } of keys) {
      const { length } = (await again.lookUp('key-info/history', key)).json.data
      t.ok(length >= 2, `${length} entries`)
    }
    const records = await openSqlite(file)
    const numbers = await records.all(
      'SELECT COUNT(*) AS n FROM accounts a JOIN keys k ON k.id = a.id WHERE k.no <> a.no',
    )
    t.match(numbers, [{ n: 0 }], 'a key and the balance of its name have one number')
    await records.close()
  },
)
