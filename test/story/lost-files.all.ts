import { copyFileSync, existsSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { setMeta } from '../../core/records/migrations.ts'
import { findServer } from '../../core/store/managed.ts'
import { beside, startGateway, until, upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'

/** The file of the records, or the store, vanishes under a gateway. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const onPostgres = process.env['TEST_RECORDS'] === 'postgres' && 'the records are not in SQLite'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

const answering = async (t: Test): Promise<string> => (await ScriptedUpstream.start(t)).url

t.test(
  'a gateway whose SQLite file was deleted or replaced is not ready, and records nothing until it is put back',
  { skip: skip || onPostgres },
  async t => {
    const redis = await RealRedis.start(t)
    const place = new Place(t, ownPrefix, { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url })
    const running = await place.startProcess(t)
    const { key, id } = await place.key('famC', '5')
    const file = join(place.folder, 'data', 'records.sqlite')
    const ready = async (): Promise<{ status: number; text: string }> => {
      const reply = await fetch(`${running.url}/health/ready`)
      return { status: reply.status, text: await reply.text() }
    }
    t.match(await ready(), { status: 200 })
    renameSync(file, `${file}.moved`)
    await until(async () => (await ready()).status === 503)
    t.match(await ready(), { text: /records\.sqlite was deleted or replaced/ })
    await running.saw(/"level":"error".*the records cannot be used/)
    copyFileSync(`${file}.moved`, file)
    t.equal((await running.chat(key, BODY)).status, 200, 'requests are served meanwhile')
    await running.saw(/ended exchanges cannot be recorded/)
    t.equal(await redis.waiting(), 1, 'a copy is another file, into which nothing is recorded')
    t.match(await ready(), { status: 503 })
    rmSync(file)
    renameSync(`${file}.moved`, file)
    await until(async () => (await ready()).status === 200)
    await until(async () => (await running.lookUp('key-info/history', key)).json.data?.length === 1)
    t.match(await place.run('audit', '--key', id), { code: 0 })

    await running.stop('SIGTERM')
    for (const ending of ['', '-wal', '-shm']) rmSync(file + ending, { force: true })
    t.match(await place.execute(['start']), { code: 1, err: /records\.sqlite is missing, but the store has been used/ })
    for (const command of [['keys', 'list'], ['usage'], ['tokens', 'list'], ['tokens', 'create', '--name', 'x']])
      t.match(await place.run(...command), { code: 1, err: /records\.sqlite is missing/ }, command.join(' '))
    t.notOk(existsSync(file), 'no empty file is made')
  },
)

t.test(
  'a store that has just been emptied refuses no key as unknown: keys get a 503 until it is filled',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const g = await startGateway(t, { upstream: await answering(t), env: { REDIS_URL: redis.url }, edit: ownPrefix })
    const key = await g.key('famC')
    t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await g.settled(key)
    // The connection stays, so that nothing tells the gateway.
    await redis.command('FLUSHALL')
    for (const each of [key, 'sk-of-a-stranger-0123456789']) {
      const { status, headers } = await g.call('/v1/chat/completions', { key: each, body: BODY })
      t.equal(status, 503)
      t.ok(headers.has('retry-after'))
    }
  },
)

t.test('a key that is asked for while its store is being filled is found when it is filled', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url }
  const g = await startGateway(t, { env, edit: ownPrefix })
  const key = await g.key('famC')
  const { continuity } = g.gateway.ledger
  const whenOpen = continuity.whenOpen.bind(continuity)
  const filled = Promise.withResolvers<void>()
  let waits = 0
  await redis.command('FLUSHALL')
  await until(() => !continuity.open)
  continuity.whenOpen = async () => {
    waits++
    await filled.promise
    return whenOpen()
  }
  const asked = g.call('/v1/chat/completions', { key, body: BODY })
  await until(() => waits > 0)
  t.match(await new Place(t, beside(g, ownPrefix), env).run('rebuild'), { code: 0 })
  await until(() => continuity.open)
  filled.resolve()
  t.equal((await asked).status, 200)
})

t.test('the state of a key in a store that is being compared refuses nothing', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url }
  const g = await startGateway(t, { env, edit: ownPrefix })
  const { continuity, scripts } = g.gateway.ledger
  const key = await g.key('famC')
  const { account } = scripts.keys.of(await g.id(key))
  let isOpen = false
  Object.defineProperty(continuity, 'open', { get: () => isOpen })
  continuity.whenOpen = async () => {
    await redis.command('HSET', account, 'st', 'active')
    return (isOpen = true)
  }
  // As it was before an operator enabled the key.
  await redis.command('HSET', account, 'st', 'disabled')
  t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
})

t.test('a store that is emptied between the two reads of a key does not make it unknown', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url }
  const g = await startGateway(t, { env, edit: ownPrefix })
  const key = await g.key('famC')
  const { scripts } = g.gateway.ledger
  // A store of several servers needs two.
  Object.assign(scripts, { scattered: true })
  const { redis: client } = scripts
  const hmget = client.hmget.bind(client) as (...args: readonly string[]) => Promise<(string | null)[]>
  const emptied = async (...args: readonly string[]): Promise<(string | null)[]> => {
    if (args.includes('sec')) await redis.command('FLUSHALL')
    return hmget(...args)
  }
  Object.assign(client, { hmget: emptied })
  t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 503)
})

t.test('a gateway whose store takes no writes is not ready', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const g = await startGateway(t, { env: { REDIS_URL: redis.url }, edit: ownPrefix })
  const ready = async (): Promise<string> => (await g.call('/health/ready')).text
  t.match(await ready(), /"ready"/)
  for (const [setting, value, before] of [
    ['min-replicas-to-write', '1', '0'],
    ['maxmemory', '1mb', '0'],
  ] as const) {
    await redis.command('CONFIG', 'SET', setting, value)
    await until(async () => /"not ready","reason":"the store takes no writes: (?:NOREPLICAS|OOM)/.test(await ready()))
    await redis.command('CONFIG', 'SET', setting, before)
    await until(async () => (await ready()).includes('"ready"'))
  }
})

t.test(
  'new requests are refused when an ended exchange has waited too long to be recorded, and served when it is recorded',
  { skip: onPostgres },
  async t => {
    const edit: Edit = file => file.set('ledger.unrecorded', '1s')
    const g = await startGateway(t, { upstream: await answering(t), edit })
    const { background } = g.gateway.ledger
    const key = await g.key('famC')
    const ask = async (): Promise<number> => (await g.call('/v1/chat/completions', { key, body: BODY })).status
    const file = join(dirname(g.file), 'data', 'records.sqlite')
    renameSync(file, `${file}.moved`)
    t.equal(await ask(), 200)
    await until(async () => (await ask()) === 503)
    t.ok(background.unrecordedMs > 1000)
    renameSync(`${file}.moved`, file)
    await until(async () => (await ask()) === 200)
    await until(() => background.unrecordedMs === 0)
  },
)

t.test(
  'a gateway knows at its start what waits to be recorded, and records it at once',
  { skip: skip || onPostgres },
  async t => {
    const redis = await RealRedis.start(t)
    const edit: Edit = file => ownPrefix(file).setAll('ledger', { unrecorded: '2s', archiveEvery: '3s' })
    const place = new Place(t, edit, { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url })
    const first = await place.startProcess(t)
    await first.saw(/npx tollgate keys/)
    const { key } = await place.key('famC', '5')
    const meta = (field: string): Promise<unknown> => redis.command('HGET', 't:meta', field)
    const file = join(place.folder, 'data', 'records.sqlite')
    renameSync(file, `${file}.moved`)
    t.equal((await first.chat(key, BODY)).status, 200)
    await until(async () => (await first.chat(key, BODY)).status === 503)
    const { status } = await fetch(`${first.url}/health/ready`)
    t.equal(status, 503)
    await first.stop('SIGKILL')
    renameSync(`${file}.moved`, file)
    // Nothing can be recorded yet, and the store has forgotten what the first gateway knew.
    const database = new DatabaseSync(file, { timeout: 60_000 })
    t.teardown(() => database.close())
    database.exec("CREATE TRIGGER away BEFORE INSERT ON exchanges BEGIN SELECT RAISE(ABORT, 'away'); END")
    await redis.command('DEL', 't:announced')
    await redis.command('HSET', 't:meta', 'backlog', '0', 'oldest', '0')

    const second = await place.startProcess(t)
    await until(async () => (await meta('backlog')) !== '0')
    t.notMatch(second.output, /cannot be recorded/, 'it knows what waits before it has tried to record it')
    await until(async () => (await second.chat(key, BODY)).status === 503)
    database.exec('DROP TRIGGER away')
    await until(async () => (await redis.waiting()) === 0)
    await until(async () => (await second.chat(key, BODY)).status === 200)
  },
)

t.test(
  'a gateway that may not record knows what waits while no other does, and records when it may',
  { skip: onPostgres },
  async t => {
    const g = await startGateway(t, { upstream: await answering(t) })
    const { background, records } = g.gateway.ledger
    const key = await g.key('famC')
    const version = (await records.database.all("SELECT value FROM meta WHERE name = 'version'", []))[0]?.['value']
    await records.database.transaction(sql => setMeta(sql, 'version', '99'))
    t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await until(() => background.archiver.outdated)
    await until(() => background.unrecordedMs > 1000 && background.state.backlogBytes > 0)
    // The way back: it records again.
    await records.database.transaction(sql => setMeta(sql, 'version', String(version)))
    await until(() => background.unrecordedMs === 0)
  },
)
