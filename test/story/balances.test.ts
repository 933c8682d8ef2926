/** Several keys that spend from one balance. */
import t from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { disableInStore } from '../../core/keys/changes.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { timedId } from '../../core/lib/ids.ts'
import { NANO } from '../../core/money/credits.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { Place } from '../process.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { scene } from '../scene.ts'

const DAY_MS = 86_400_000
const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'
const NOTES = { endpoint: CHAT, model: MODEL, stream: false }

/** Creates a key with a balance of its own, and others that spend from it. Returns their secrets. */
async function keysOfOne(g: TestGateway, count: number, credits = 10n, cap?: bigint): Promise<[string, ...string[]]> {
  const first = await g.key('famC', credits)
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: await g.id(first), cap }
  const created = await g.gateway.keys.changes.createMany(wish, count - 1)
  return [first, ...created.map(({ secret }) => secret)]
}

t.test('the cap of a key is exact although its requests run at the same time', async t => {
  const { g } = await scene(t)
  const [free, capped = ''] = await keysOfOne(g, 2, 10n, NANO / 100n)
  const answers = await Promise.all(Array.from({ length: 40 }, () => g.call(CHAT, { key: capped, body: BODY })))
  t.same([...new Set(answers.map(({ status }) => status))].sort(), [200, 429])
  const refused = answers.find(({ status }) => status === 429)
  t.match(refused?.json, { error: { code: 'insufficient_quota', message: /^This key may use [\d.]+ credits more/ } })
  await g.settledAll([free])
  const { json: info } = await g.call('/api/v1/key-info', { key: capped })
  t.match(info, { total: 0.01, data: { limit: 0.01 } })
  t.ok(info.used > 0 && info.used <= 0.01 && info.remaining === Math.round((0.01 - info.used) * 1e9) / 1e9)
  t.match(await g.call(CHAT, { key: free, body: BODY }), { status: 200 }, 'another key of the balance goes on')
})

t.test('a key with a cap whose balance has less gets what the balance has', async t => {
  const g = await startGateway(t)
  const [, capped = ''] = await keysOfOne(g, 2, 1n, 5n * NANO)
  t.match((await g.call('/api/v1/key-info', { key: capped })).json, { total: 5, remaining: 1, used: 0 })
})

t.test('each key sees its own history, usage and charges; the operator also those of the balance', async t => {
  const { g } = await scene(t)
  const before = await g.key('famC')
  await g.call(CHAT, { key: before, body: BODY })
  const account = await g.id(before)
  const wish = { type: 'famC', name: 'second', credits: 0n, expiresAt: undefined, account }
  const { secret: second, key } = await g.gateway.keys.changes.create(wish)
  await g.call(CHAT, { key: second, body: BODY })
  await g.call(CHAT, { key: second, body: BODY })
  await g.settledAll([before])
  for (const isRecorded of [false, true]) {
    if (isRecorded) await g.gateway.ledger.background.archiveAll()
    t.equal((await g.history(before)).length, 1)
    t.equal((await g.history(second)).length, 2)
    const [own, others] = await Promise.all([before, second].map(each => g.call('/api/v1/key-info', { key: each })))
    t.equal(own?.json.usage.total.requests, 1)
    t.equal(others?.json.usage.total.requests, 2)
    t.equal(others?.json.usage.total.cost, 2 * own?.json.usage.total.cost)
    t.equal(others?.json.used, 3 * own?.json.usage.total.cost, 'what is missing of the balance is by both')
  }
  const charges = async (each: string): Promise<Record<string, unknown>[]> =>
    (await g.call('/api/v1/key-info/history?kind=all', { key: each })).json.data
  t.strictSame((await charges(second)).map(({ type, number }) => [type, number]), [['charge', 4], ['charge', 3]]) // prettier-ignore
  t.strictSame(
    (await charges(before)).map(({ type, number }) => [type, number]),
    [['charge', 2]],
  )
  const days = async (each: string) => (await g.call('/api/v1/key-info/usage', { key: each })).json.data[0].requests
  t.strictSame([await days(before), await days(second)], [1, 2])
  const { ledger } = g.gateway
  t.equal((await ledger.reads.history({ account }, { count: 9 })).length, 3)
  t.equal((await ledger.reads.summary({ account }, Date.now())).total.requests, 3)
  t.match(await ledger.records.history.statement({ account }, { number: 99, ordinal: 99, balance: undefined }, 9), {
    lines: { length: 4 },
  })
  t.match(await ledger.reads.history({ account, key: key.id }, { count: 1 }), [{ key: key.id }])
})

t.test('a key of a balance is disabled, rotated and deleted without the others', async t => {
  const { g } = await scene(t)
  const { changes } = g.gateway.keys
  const [first, second = '', third = ''] = await keysOfOne(g, 3)
  t.equal(await changes.disable(await g.id(second)), 'store')
  t.match(await g.call(CHAT, { key: second, body: BODY }), { status: 401 })
  t.equal(await changes.enable((await g.gateway.keys.refind(second))?.id ?? ''), 'store')
  t.match(await g.call(CHAT, { key: second, body: BODY }), { status: 200 })
  const rotated = await changes.rotate(await g.id(third))
  t.match(await g.call(CHAT, { key: third, body: BODY }), { status: 401 })
  t.match(await g.call(CHAT, { key: rotated.secret, body: BODY }), { status: 200 })
  await changes.remove(await g.id(first))
  t.match(await g.call(CHAT, { key: first, body: BODY }), { status: 401 })
  t.match(await g.call(CHAT, { key: second, body: BODY }), { status: 200 }, 'the key that the balance was made with is gone') // prettier-ignore
  await g.settledAll([second])
})

t.test('the concurrency of a key type counts the requests of each key', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const running: (() => void)[] = []
  upstream.script = (_received, res) =>
    void running.push(() => json(res, { choices: [{}], usage: { prompt_tokens: 1, completion_tokens: 1 } }))
  const g = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('keyTypes.famC.limits.concurrency', 1).set('keyTypes.famC.limits.queue', '0s'),
  })
  const [first, second = ''] = await keysOfOne(g, 2)
  const one = g.call(CHAT, { key: first, body: BODY })
  await until(() => running.length === 1)
  t.match(await g.call(CHAT, { key: first, body: BODY }), { status: 429 })
  const other = g.call(CHAT, { key: second, body: BODY })
  await until(() => running.length === 2)
  for (const end of running) end()
  t.match(await Promise.all([one, other]), [{ status: 200 }, { status: 200 }])
  await g.settledAll([first])
})

t.test('keys are added to a balance that exists only', async t => {
  const g = await startGateway(t)
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: 'key_none' }
  await t.rejects(g.gateway.keys.changes.createMany(wish, 1), new RangeError('there is no balance key_none'))
})

t.test('a key that is moved spends from its new balance, and what it held ends on the old one', async t => {
  const { g, upstream } = await scene(t)
  let end = (): void => {}
  upstream.script = (_received, res) => {
    const reply = { choices: [{}], usage: { prompt_tokens: 10, completion_tokens: 60 } }
    if (upstream.requests.length > 1) json(res, reply)
    else end = () => json(res, reply)
  }
  const [first, moved = ''] = await keysOfOne(g, 2, 10n, NANO)
  const other = await g.key('famC', 5n)
  const [from, to, id] = [await g.id(first), await g.id(other), await g.id(moved)]
  const { keys, ledger } = g.gateway
  const running = g.call(CHAT, { key: moved, body: BODY })
  await until(() => upstream.requests.length === 1)
  t.equal(await keys.changes.move(id, to), 'store')
  t.match(await g.call(CHAT, { key: moved, body: BODY }), { status: 200 })
  end()
  t.match(await running, { status: 200 })
  await g.settledAll([first, other])
  const charge = (await ledger.reads.history({ account: from }, { count: 9 }))[0]?.charge ?? 0n
  t.match(await ledger.reads.history({ account: from }, { count: 9 }), { length: 1 })
  t.match(await ledger.reads.history({ account: to }, { count: 9 }), [{ key: id, charge }])
  t.equal((await ledger.reads.balance(from)).settled, charge)
  t.equal((await ledger.reads.balance(to)).settled, charge)
  t.match(await g.history(moved), { length: 1 }, 'its history stays with the old balance')
  const { json: info } = await g.call('/api/v1/key-info', { key: moved })
  t.ok(info.total === 1 && info.used > Number(charge) / 1e9, 'its cap counts what it has used on both')
  t.equal(await keys.changes.move(id, to), 'store', 'a second time changes nothing')
  await t.rejects(keys.changes.move(id, 'bal_none'), new RangeError('there is no balance bal_none'))
  t.equal(await keys.changes.disable(id), 'store')
  t.match(await g.call(CHAT, { key: moved, body: BODY }), { status: 401 })
})

t.test('a key with a lifetime is valid for that long from its first request on', async t => {
  const { g } = await scene(t)
  const { keys, ledger } = g.gateway
  const create = (lifetimeMs: number) =>
    keys.changes.create({ type: 'famC', name: '', credits: NANO, expiresAt: undefined, lifetimeMs })
  const { key, secret } = await create(86_400_000)
  t.match((await g.call('/api/v1/key-info', { key: secret })).json, { expires_at: null })
  const before = Date.now()
  t.match(await g.call(CHAT, { key: secret, body: BODY }), { status: 200 })
  const expiresAt = (await keys.refind(secret))?.expiresAt ?? 0
  t.ok(expiresAt >= before + 86_300_000 && expiresAt <= Date.now() + 86_500_000)
  t.match(await g.call(CHAT, { key: secret, body: BODY }), { status: 200 })
  t.equal((await keys.refind(secret))?.expiresAt, expiresAt, 'a second request does not prolong it')
  t.equal(await keys.changes.edit(key.id, { name: 'x' }), 'store')
  t.equal((await keys.refind(secret))?.expiresAt, expiresAt, 'nor does a change')
  await ledger.background.applyPending()
  t.match(await ledger.records.keys.get(key.id), { expiresAt, lifetimeMs: 86_400_000 }, 'it is recorded')
  const short = await create(1)
  t.match(await g.call(CHAT, { key: short.secret, body: BODY }), { status: 200 })
  await until(async () => (await g.call(CHAT, { key: short.secret, body: BODY })).status === 401)
  t.equal(await keys.changes.edit(short.key.id, { expiresAt: null }), 'store')
  t.match(await g.call(CHAT, { key: short.secret, body: BODY }), { status: 200 }, 'no expiry replaces the lifetime')
  await g.settledAll([secret, short.secret])
})

t.test('the commands on balances and keys say what they have done', async t => {
  const place = new Place(t)
  const run = async (...args: string[]) => JSON.parse((await place.run(...args, '--json')).out)
  const made = await run('balances', 'create', '--name', 'Team', '--external-id', 'c 7', '--credits', '10')
  t.match(made, { id: /^bal_\w{18}$/, name: 'Team', external_id: 'c 7', keys: 0, balance: '10' })
  const { id } = made
  const { id: key } = await run('keys', 'create', '--type', 'famC', '--balance', id, '--cap', '2', '--name', 'Bob')
  t.match(await run('keys', 'show', key), { balance_id: id, cap: '2', balance: '2', name: 'Bob' })
  t.match(await place.run('balances', 'list', '--external-id', 'c 7'), {
    out: `${id}  1 keys  10 credits  c 7  Team\n`,
  })
  t.match(await run('balances', 'topup', id, '5', '--reason', 'order 9'), { balance: '15', added: true })
  t.match(await place.run('balances', 'deduct', id, '1'), { code: 2, err: /--reason is missing/ })
  t.match(await run('balances', 'deduct', id, '1', '--reason', 'mistake'), { balance: '14' })
  t.match(await place.run('balances', 'deduct', id, '99', '--reason', 'x'), { code: 1, err: /less than 99 credits/ })
  t.match(await place.run('balances', 'statement', id), { out: /deduction .*mistake[^]*grant .*order 9/ })
  t.match(await run('balances', 'edit', id, '--name', 'Others'), { name: 'Others', external_id: 'c 7' })
  t.match(await run('balances', 'show', id), { keys: [key], balance: '14' })
  t.match(await run('keys', 'edit', key, '--cap', 'none', '--type', 'famA', '--name', 'Rob'), {
    cap: null,
    type: 'famA',
    name: 'Rob',
    balance: '14',
  })
  t.match(await place.run('keys', 'edit', key), { code: 2, err: /give what to change/ })
  const alone = await place.key('famC', '1')
  t.match(await run('keys', 'move', alone.id, id), { balance_id: id, balance: '14' })
  t.match(await place.run('keys', 'move', key, 'bal_none'), { code: 1, err: /there is no balance bal_none/ })
  t.match(await run('balances', 'show', alone.id), { keys: [], balance: '1' })
  t.match(await run('keys', 'delete', alone.id), { status: 'deleted' })
  t.match(await place.run('keys', 'create', '--type', 'famC'), { code: 2, err: /either --credits .* or --balance/ })
  t.match(await place.run('balances', 'show', 'bal_none'), { code: 2, err: /there is no balance bal_none/ })
  const later = await run('keys', 'create', '--type', 'famC', '--credits', '1', '--expires', '30d', '--from-first-use')
  t.match(await run('keys', 'show', later.id), { expires_at: null, lifetime: 30 * 86_400_000 })
  t.match(await place.run('audit'), { code: 0 })
})

t.test('a key that is disabled while it is moved stays disabled, and spends from no balance', async t => {
  const g = await startGateway(t)
  const { keys, ledger } = g.gateway
  const [first, moved = ''] = await keysOfOne(g, 2)
  const [from, to, id] = [await g.id(first), await g.id(await g.key('famC')), await g.id(moved)]
  const move = ledger.records.keys.move.bind(ledger.records.keys)
  ledger.records.keys.move = async (...args) => {
    const done = await move(...args)
    ledger.records.keys.move = move
    await keys.changes.disable(id)
    return done
  }
  await keys.changes.move(id, to)
  t.match(await ledger.records.keys.get(id), { status: 'disabled', account: to })
  t.match(await g.call(CHAT, { key: moved, body: BODY }), { status: 401 })
  t.equal(await keys.changes.enable(id), 'store')
  const version = (await keys.refind(moved))?.version ?? ''
  const wish = { key: id, id: timedId(Date.now()), amount: 1n, least: 1n, version, notes: NOTES, floor: () => ({ charge: 0n, notes: {} }) } // prettier-ignore
  t.match(await ledger.hold({ ...wish, account: from }), { kind: 'stale' }, 'the old balance holds nothing more for it')
  t.same((await audit(ledger)).drifts, [])
})

t.test(
  'a lone key with a cap that is moved while its request runs counts what that request holds and is charged',
  async t => {
    const g = await startGateway(t)
    const { keys, ledger, records } = g.gateway
    const wish = { type: 'famC', name: '', credits: 10n * NANO, expiresAt: undefined, cap: 100n }
    const { key, secret } = await keys.changes.create(wish)
    const to = await g.id(await g.key('famC', 5n))
    const holdOf = (account: string, version: string, amount: bigint) => ({
      account,
      key: key.id,
      id: timedId(Date.now()),
      amount,
      least: 1n,
      version,
      notes: NOTES,
      floor: () => ({ charge: 0n, notes: {} }),
    })
    const hold = async (account: string, amount: bigint) => {
      const request = holdOf(account, (await keys.refind(secret))?.version ?? '', amount)
      return { request, answer: await ledger.hold(request) }
    }
    const before = await hold(key.id, 60n)
    t.match(before.answer, { kind: 'held' })
    t.equal(await keys.changes.move(key.id, to), 'store')
    const left = async (): Promise<bigint | undefined> => (await keys.refind(secret))?.balance
    t.equal(await left(), 40n, 'what runs on the balance before counts to its cap')
    ledger.settle(
      { account: key.id, id: before.request.id },
      { charge: 70n, kind: 'settle', notes: { ...NOTES, status: 'ok' } },
    )
    await until(async () => (await ledger.reads.balance(key.id)).held === 0n)
    await ledger.background.applyPending()
    t.equal(await left(), 30n, 'as does its charge, which was more')
    t.match((await Array.fromAsync(records.keys.pending(9))).flat(), [])
    t.match((await hold(to, 31n)).answer, { kind: 'held', hold: { amount: 30n } })
  },
)

t.test('a key that is moved twice while its request runs counts it, and a refund, to its cap', async t => {
  const g = await startGateway(t)
  const { keys, ledger, records } = g.gateway
  const wish = { type: 'famC', name: '', credits: NANO, expiresAt: undefined, cap: 1000n }
  const { key, secret } = await keys.changes.create(wish)
  const [second, third] = [await g.id(await g.key('famC', 5n)), await g.id(await g.key('famC', 5n))]
  const version = (await keys.refind(secret))?.version ?? ''
  const id = timedId(Date.now())
  const request = { account: key.id, key: key.id, id, amount: 600n, least: 1n, version, notes: NOTES }
  t.match(await ledger.hold({ ...request, floor: () => ({ charge: 0n, notes: {} }) }), { kind: 'held' })
  await keys.changes.move(key.id, second)
  await keys.changes.move(key.id, third)
  const left = async (): Promise<bigint | undefined> => (await keys.refind(secret))?.balance
  t.equal(await left(), 400n)
  t.equal(await keys.changes.disable(key.id), 'store')
  await ledger.background.applyPending()
  const names = ledger.scripts.keys
  t.equal(await ledger.scripts.redis.hget(names.record({ account: key.id, key: key.id }), FIELDS.status), 'disabled')
  await keys.changes.enable(key.id)
  ledger.settle({ account: key.id, id }, { charge: 500n, kind: 'settle', notes: { ...NOTES, status: 'ok' } })
  await until(async () => (await ledger.reads.balance(key.id)).held === 0n)
  await ledger.background.applyPending()
  t.equal(await left(), 500n)
  await ledger.background.archiveAll()
  const [entry] = await ledger.reads.history({ account: key.id }, { count: 1 })
  if (entry) await ledger.accounts.credit(key.id, entry, 'sorry')
  await ledger.background.applyPending()
  t.equal(await left(), 1000n)
  t.match(await Array.fromAsync(records.keys.pending(9)), [])
})

t.test('changes that meet a disable leave the key disabled', async t => {
  const g = await startGateway(t)
  const { keys, ledger, records } = g.gateway
  const to = await g.id(await g.key('famC'))
  for (const others of [
    'move',
    'edit',
    'extend',
    'rotate',
    'move edit',
    'extend extend',
    'edit extend',
    'extend rotate',
  ]) {
    const { key } = await keys.changes.create({ type: 'famC', name: '', credits: NANO, expiresAt: Date.now() + DAY_MS })
    const change = {
      move: () => keys.changes.move(key.id, to),
      edit: () => keys.changes.edit(key.id, { name: 'x' }),
      extend: () =>
        records.database.transaction(keys.changes.extension(key.id, DAY_MS)).then(() => keys.changes.bringUp([key.id])),
      rotate: () => keys.changes.rotate(key.id),
    } as const
    const all = others.split(' ') as (keyof typeof change)[]
    await Promise.allSettled([...all.map(name => change[name]()), keys.changes.disable(key.id)])
    await ledger.background.applyPending()
    await ledger.background.applyPending()
    const recorded = await records.keys.get(key.id)
    t.equal(recorded?.status, 'disabled', others)
    const record = ledger.scripts.keys.record({ account: recorded?.account ?? '', key: key.id })
    t.equal(await ledger.scripts.redis.hget(record, FIELDS.status), 'disabled', others)
  }
})

t.test('the first use of a key is noted until it is recorded', async t => {
  const { g } = await scene(t)
  const { keys, ledger } = g.gateway
  const wish = { type: 'famC', name: '', credits: NANO, expiresAt: undefined, lifetimeMs: 86_400_000 }
  const { key, secret } = await keys.changes.create(wish)
  const { redis, keys: names } = ledger.scripts
  const ask = async (): Promise<void> => {
    t.match(await g.call(CHAT, { key: secret, body: BODY }), { status: 200 })
    await g.settledAll([secret])
  }
  await ask()
  // A process that dies here notes nothing.
  await redis.srem(names.shared('disabled'), key.id)
  await ask()
  await ledger.background.applyPending()
  await ledger.background.applyPending()
  t.match(await ledger.records.keys.get(key.id), { expiresAt: Number, pending: false })
  await ask()
  t.equal(await redis.scard(names.shared('disabled')), 0, 'then no longer')
})

t.test(
  'an extension keeps a disabled key disabled, and counts although the key is first used at that moment',
  async t => {
    const g = await startGateway(t)
    const { keys, ledger } = g.gateway
    const { records, scripts } = ledger
    const { key, secret } = await keys.changes.create({
      type: 'famC',
      name: '',
      credits: NANO,
      expiresAt: undefined,
      lifetimeMs: DAY_MS,
    })
    const extend = keys.changes.extension(key.id, 30 * DAY_MS)
    const begun = String(Date.now() + DAY_MS)
    await scripts.redis.hset(scripts.keys.record({ account: key.id, key: key.id }), FIELDS.expiresAt, begun)
    await records.database.transaction(extend)
    await keys.changes.bringUp([key.id])
    t.equal((await keys.refind(secret))?.expiresAt, Number(begun) + 30 * DAY_MS)
    await ledger.background.recordChanged(key.id)
    t.match(await records.keys.get(key.id), { expiresAt: Number(begun) + 30 * DAY_MS })
    await ledger.background.applyPending()
    await disableInStore(scripts, key.id)
    await records.database.transaction(keys.changes.extension(key.id, DAY_MS))
    await keys.changes.bringUp([key.id])
    await ledger.background.applyPending()
    t.match(await records.keys.get(key.id), { status: 'disabled', expiresAt: Number(begun) + 31 * DAY_MS })
    t.match(await g.call(CHAT, { key: secret, body: BODY }), { status: 401 })
  },
)

t.test('the first key of a balance sees only its own requests as soon as another one spends from it', async t => {
  const { g } = await scene(t)
  const first = await g.key('famC')
  t.match(await g.call(CHAT, { key: first, body: BODY }), { status: 200 })
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account: await g.id(first) }
  const { secret } = await g.gateway.keys.changes.create(wish)
  t.match(await g.call(CHAT, { key: secret, body: BODY }), { status: 200 })
  await g.settledAll([first, secret])
  t.match(await g.history(first), { length: 1 })
})
