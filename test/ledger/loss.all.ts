import { Writable } from 'node:stream'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { Continuity } from '../../core/ledger/recovery/continuity.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { audit } from '../../core/ledger/audit.ts'
import { timedId } from '../../core/lib/ids.ts'
import { parseAddress } from '../../core/config/store-address.ts'
import type { Hold, HoldRequest } from '../../core/ledger/hold.ts'
import type { Quota } from '../../core/config/config.ts'
import { EMPTY_STORE, NOT_EMPTY, OTHER_STORE } from '../../core/ledger/recovery/refusals.ts'
import { Restorer } from '../../core/ledger/recovery/restore.ts'
import { RefusedOperation, Scripts } from '../../core/ledger/script/scripts.ts'
import { unavailable } from '../../core/records/unavailable.ts'
import { openStore, type Store } from '../../core/store/store.ts'
import type { EndedEntry } from '../../core/records/entry.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { testEnvironment } from '../environment.ts'
import type { Edit } from '../gateway-file.ts'
import { beside, recordsEnv, startGateway, type TestGateway, until } from '../gateway.ts'
import { ownPrefix, RealRedis } from '../redis.ts'

/** A test can make only a redis-server of its own lose something. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const NOTES = { endpoint: '/x', model: 'm', stream: false }

function settle(ledger: Ledger, account: string): void {
  ledger.settle({ account, id: timedId(Date.now()) }, { charge: 10n, kind: 'settle', notes: NOTES })
}

t.test(
  'after a store was emptied or replaced, every gateway sends again what is not recorded, even if another one restored the store',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const env = { REDIS_URL: redis.url, ...recordsEnv() }
    // Nothing is recorded by itself.
    const slow: Edit = file => ownPrefix(file).set('ledger.archiveEvery', '1h')
    const one = await startGateway(t, { edit: slow, env })
    const shared = beside(one, slow)
    const gateways: TestGateway[] = [one, await startGateway(t, { edit: shared, env })]
    const account = await one.id(await one.key('famC', 1n))
    const used = async (): Promise<bigint> => (await one.gateway.ledger.reads.balance(account)).settled
    for (const { gateway } of gateways) for (let nth = 0; nth < 10; nth++) settle(gateway.ledger, account)
    await until(async () => (await used()) === 200n)

    // As the command does it, in a process of its own.
    const { scripts, records, restorer } = one.gateway.ledger
    const rebuilder = new Continuity({
      scripts,
      records,
      restorer,
      store: one.gateway.store,
      environment: testEnvironment(),
    })
    await redis.command('FLUSHALL')
    await rebuilder.rebuildAll()
    await until(async () => (await used()) === 200n)

    // A server with another identity that lacks its last writes: one of the gateways restores it.
    for (const key of (await redis.command('KEYS', '*:x')) as string[]) await redis.command('DEL', key)
    const { keys } = scripts
    await redis.command('HSET', keys.of(account).account, 'bal', '1000000000', 'sq', '0')
    for (const key of (await redis.command('KEYS', '*:o:*')) as string[]) await redis.command('DEL', key)
    await redis.command('HSET', keys.shared('meta'), 'servers', 'another')
    await until(async () => (await used()) === 200n)
    // The other gateway may still be about to use the store.
    await until(() =>
      one.gateway.ledger.background.archiveAll().then(
        () => true,
        () => false,
      ),
    )
    t.match(await audit(one.gateway.ledger, [account]), { entries: 20, drifts: { length: 0 } })
  },
)

t.test('in a restored store, running requests of all gateways have their holds again', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const env = { REDIS_URL: redis.url, ...recordsEnv() }
  const one = await startGateway(t, { edit: ownPrefix, env })
  const shared = beside(one, ownPrefix)
  const other = await startGateway(t, { edit: shared, env })
  const account = await one.id(await one.key('famC', 1n))
  const quota: Quota = { name: 'credits', unit: 'credits', amount: 1_000_000_000n, window: { rollingMs: 18_000_000 }, fairShare: false } // prettier-ignore
  const request = (of: string, amount: bigint, more: Partial<HoldRequest> = {}): HoldRequest => ({
    account: of, id: timedId(Date.now()), amount, least: amount, version: '1', concurrency: 2, notes: NOTES,
    floor: () => ({ charge: 0n, notes: {} }), ...more,
  }) // prettier-ignore
  const hold = async (g: TestGateway, asked: HoldRequest): Promise<Hold> => {
    const answer = await g.gateway.ledger.hold(asked)
    if (answer.kind !== 'held') throw new Error(answer.kind)
    return answer.hold
  }
  const running = [
    await hold(one, request(account, 600_000_000n)),
    await hold(other, request(account, 300_000_000n)),
    await hold(other, request('quota:main', 700_000_000n, { quota, concurrency: 0 })),
  ]
  const { scripts, records, restorer } = one.gateway.ledger
  const rebuilder = new Continuity({
    scripts,
    records,
    restorer,
    store: one.gateway.store,
    environment: testEnvironment(),
  })
  for (const lose of [
    async () => {
      await redis.command('FLUSHALL')
      await rebuilder.rebuildAll()
    },
    async () => {
      for (const key of (await redis.command('KEYS', '*:h:*')) as string[]) await redis.command('DEL', key)
      for (const key of (await redis.command('KEYS', '*:l')) as string[]) await redis.command('DEL', key)
      const { keys } = scripts
      await redis.command('HSET', keys.of(account).account, 'bal', '1000000000', 'rsv', '0', 'n', '0')
      await redis.command('DEL', keys.of('quota:main').account)
      await redis.command('HSET', keys.shared('meta'), 'servers', 'another')
    },
  ]) {
    const { epoch } = one.gateway.ledger.continuity
    await lose()
    await until(() =>
      [one, other].every(({ gateway: { ledger } }) => ledger.continuity.epoch > epoch && ledger.continuity.open),
    )
    t.match(await one.gateway.ledger.hold(request(account, 1n)), { kind: 'busy' })
    t.match(await one.gateway.ledger.hold(request(account, 200_000_000n, { concurrency: 9 })), { kind: 'insufficient' })
    t.match(await one.gateway.ledger.hold(request('quota:main', 400_000_000n, { quota, concurrency: 0 })), {
      kind: 'busy',
    })
    t.match(await one.gateway.ledger.reads.balance(account), { balance: 100_000_000n, held: 900_000_000n })
  }
  for (const [nth, each] of running.entries())
    (nth === 0 ? one : other).gateway.ledger.settle(each, { charge: 10n, kind: 'settle', notes: NOTES })
  await until(async () => (await one.gateway.ledger.reads.balance(account)).settled === 20n)
  await one.gateway.ledger.background.archiveAll()
  t.match(await audit(one.gateway.ledger, [account]), { entries: 2, drifts: { length: 0 } })
})

t.test('a store that has been emptied is reported once in a while, not at each look', { skip }, async t => {
  const redis = await RealRedis.start(t)
  let logged = ''
  const read = new Writable({ write: (piece, _, done) => ((logged += String(piece)), done()) })
  const log = createLog(new Scrubber(), 'warn', read)
  const env = { REDIS_URL: redis.url, LOG_LEVEL: 'warn' }
  const g = await startGateway(t, { edit: ownPrefix, env, environment: { log } })
  const { continuity } = g.gateway.ledger
  await g.key('famC', 1n)
  await redis.command('FLUSHALL')
  await until(() => !continuity.open)
  for (let look = 0; look < 20; look++) {
    continuity.recheck()
    await continuity.whenOpen()
  }
  t.equal(continuity.open, false)
  await until(() => logged.includes('the store cannot be used yet'))
  t.equal(logged.split('the store cannot be used yet').length, 2)
  t.match(logged, /run `npx tollgate rebuild`/)
})

/** A gateway on a Redis of its own, an account, and the name of the store's key `meta`. */
async function losing(t: Test): Promise<{ g: TestGateway; account: string; redis: RealRedis; meta: string }> {
  const redis = await RealRedis.start(t)
  const g = await startGateway(t, { edit: ownPrefix, env: { REDIS_URL: redis.url, ...recordsEnv() } })
  const account = await g.id(await g.key('famC', 1n))
  return { g, account, redis, meta: g.gateway.ledger.scripts.keys.shared('meta') }
}

t.test('what is lost is counted from the last moment at which the server was known', { skip }, async t => {
  const { g, redis, meta } = await losing(t)
  const { continuity, records } = g.gateway.ledger
  const next = records.nextEpoch.bind(records)
  let failed = 0
  records.nextEpoch = () => Promise.reject(new Error(`the database is away ${++failed}`))
  await redis.command('HSET', meta, 'servers', 'another')
  continuity.recheck()
  await until(() => failed > 0 && !continuity.open)
  const beat = await redis.command('HGET', meta, 'beat')
  // Several attempts, and a beat of the process that records.
  await until(() => failed > 6)
  t.equal(await redis.command('HGET', meta, 'beat'), beat)
  records.nextEpoch = next
  await until(() => continuity.open)
  await until(async () => (await redis.command('HGET', meta, 'beat')) !== beat)
})

t.test('processes that start while the store is being restored wait for that', { skip }, async t => {
  const { g, redis, meta } = await losing(t)
  const { scripts, records, restorer } = g.gateway.ledger
  g.gateway.ledger.continuity.close()
  await redis.command('HSET', meta, 'servers', 'another')
  const starting = Array.from(
    { length: 3 },
    () => new Continuity({ scripts, records, restorer, store: g.gateway.store, environment: testEnvironment() }),
  )
  const before = await records.epoch()
  await Promise.all(starting.map(continuity => continuity.start(false)))
  t.ok(starting.every(({ open, epoch }) => open && epoch === before + 1))
  for (const continuity of starting) continuity.close()
})

t.test('a store of an older epoch than its records is compared with them, and recorded again', { skip }, async t => {
  const { g, account } = await losing(t)
  const { ledger } = g.gateway
  // A process that was about to restore the store did not finish.
  await ledger.records.nextEpoch()
  settle(ledger, account)
  await until(async () => (await ledger.records.history.totals(account)).settled === 10n)
  t.equal(ledger.continuity.epoch, await ledger.records.epoch())
  t.match(await audit(ledger, [account]), { entries: 1, drifts: { length: 0 } })
})

t.test('an account that the surviving store lacks gets its recorded charges once', { skip }, async t => {
  const { g, account, redis, meta } = await losing(t)
  const { ledger } = g.gateway
  for (let nth = 0; nth < 3; nth++) settle(ledger, account)
  await ledger.scripts.answered()
  await ledger.background.archiveAll()
  const own = ledger.scripts.keys.of(account).account
  for (const key of (await redis.command('KEYS', '*:o:*')) as string[]) await redis.command('DEL', key)
  await redis.command('DEL', own)
  await redis.command('HSET', meta, 'servers', 'another')
  const { epoch } = ledger.continuity
  await until(() => ledger.continuity.epoch > epoch && ledger.continuity.open)
  t.match(await ledger.reads.balance(account), { granted: 1_000_000_000n, settled: 30n })
  settle(ledger, account)
  await until(async () => (await ledger.reads.balance(account)).settled === 40n)
  await ledger.background.archiveAll()
  t.match(await audit(ledger, [account]), { entries: 4, drifts: { length: 0 } })
})

t.test('records are used with one store at a time, and an earlier one can be filled again', { skip }, async t => {
  const { g, account, redis } = await losing(t)
  const { ledger, config, store } = g.gateway
  const second = await RealRedis.start(t)
  const place = { ...config.store, address: parseAddress(second.url) }
  const otherStore = await openStore(place, 'guest', testEnvironment())
  t.teardown(() => otherStore.close())
  const { records } = ledger
  const watching = (of: Store): Continuity => {
    const scripts = new Scripts(of, place.prefix)
    return new Continuity({
      scripts,
      records,
      restorer: new Restorer(scripts, records),
      store: of,
      environment: testEnvironment(),
    })
  }
  const other = watching(otherStore)
  await t.rejects(other.start(false), { message: EMPTY_STORE })
  t.equal(await other.rebuildAll(), 1)
  settle(ledger, account)
  await until(() => !ledger.continuity.open)
  await t.rejects(watching(store).start(false), { message: OTHER_STORE })
  await t.rejects(ledger.hold({ account } as HoldRequest), { code: 'unavailable' })

  t.comment('The first store is emptied and filled again.')
  await t.rejects(watching(store).rebuildAll(), { message: OTHER_STORE })
  await redis.command('FLUSHALL')
  await watching(store).rebuildAll()
  await until(() => ledger.continuity.open)
  await t.rejects(watching(otherStore).start(false), { message: OTHER_STORE })
  await t.rejects(watching(store).rebuildAll(), { message: NOT_EMPTY })
  await until(async () => (await records.history.totals(account)).settled === 10n)
  t.match(await audit(ledger, [account]), { entries: 1, drifts: { length: 0 } })
})

t.test('processes that start together make one store of an empty one', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const g = await startGateway(t, { edit: ownPrefix, env: { REDIS_URL: redis.url, ...recordsEnv() } })
  const { ledger, store } = g.gateway
  const { records, scripts, restorer } = ledger
  ledger.continuity.close()
  for (let round = 0; round < 10; round++) {
    await redis.command('FLUSHALL')
    const all = Array.from(
      { length: 6 },
      () => new Continuity({ scripts, records, restorer, store, environment: testEnvironment() }),
    )
    await Promise.all(all.map(continuity => continuity.start(false)))
    await Promise.all(all.map(continuity => continuity.state()))
    await Promise.all(all.map(continuity => continuity.whenOpen()))
    t.ok(all.every(({ open }) => open))
    t.equal(await redis.command('HGET', scripts.keys.shared('meta'), 'store'), await records.store())
    for (const continuity of all) continuity.close()
  }
})

t.test('an idle gateway learns that its records are used with another store', { skip }, async t => {
  const { g } = await losing(t)
  await g.gateway.records.nextEpoch('another store')
  await until(() => !g.gateway.ledger.continuity.open)
})

t.test('an account at the largest balance is restored, and closes the store for nobody', { skip }, async t => {
  const { g, account, redis, meta } = await losing(t)
  const { ledger } = g.gateway
  const own = ledger.scripts.keys.of(account).account
  const most = 9_000_000_000_000_000n
  await ledger.accounts.grant(account, { id: 'all', amount: most - 1_000_000_000n, notes: {} })
  await t.rejects(ledger.accounts.grant(account, { id: 'more', amount: 1n, notes: {} }), RangeError)
  settle(ledger, account)
  await ledger.scripts.answered()
  await ledger.background.archiveAll()
  await ledger.accounts.grant(account, { id: 'what was used', amount: 10n, notes: {} })
  const two = await Promise.allSettled(
    [1n, 2n].map(amount => ledger.accounts.grant(account, { id: `at once ${amount}`, amount, notes: {} })),
  )
  t.ok(two.every(({ status }) => status === 'rejected'))
  // The charge and the grant after it are lost.
  for (const key of (await redis.command('KEYS', '*:o:*')) as string[]) await redis.command('DEL', key)
  await redis.command('HSET', own, 'bal', String(most), 'sq', '0', 'gn', '2', 'gra', String(most))
  // The store refuses what is recorded of another account.
  const other = await g.id(await g.key('famC', 1n))
  await redis.command('DEL', ledger.scripts.keys.of(other).account)
  const run = ledger.scripts.run.bind(ledger.scripts)
  ledger.scripts.run = operation =>
    operation.name === 'put' && operation.account === other
      ? Promise.reject(unavailable(new RefusedOperation('no')))
      : run(operation)
  const { epoch } = ledger.continuity
  await redis.command('HSET', meta, 'servers', 'another')
  await until(() => ledger.continuity.epoch > epoch && ledger.continuity.open)
  ledger.scripts.run = run
  t.match(await ledger.reads.balance(account), { granted: most + 10n, settled: 10n })
  t.match(await audit(ledger, [account]), { drifts: { length: 0 } })
  t.match(await audit(ledger, [other]), { drifts: [{ account: other }] }, 'the audit finds it')
})

t.test('an exchange that ended again is restored, even if another one has its number since', { skip }, async t => {
  const { g, account, redis, meta } = await losing(t)
  const { ledger } = g.gateway
  const id = timedId(Date.now() - 7_200_000)
  const entry = { id, account, balance: 0n, bucket: '1.0', waived: 0n, notes: NOTES }
  const record = (...entries: EndedEntry[]): Promise<void> => ledger.records.recorder.record(entries, new Map())
  await record({ ...entry, kind: 'reaped', charge: 4n, ordinal: 1, at: Date.now() - 7_200_000 })
  await redis.command('HINCRBY', ledger.scripts.keys.of(account).account, 'bal', '-4')
  await redis.command('HINCRBY', ledger.scripts.keys.of(account).account, 'sq', '1')
  // The server that took over never knew of its second end, and gives the number to another exchange.
  await record({ ...entry, kind: 'late', charge: 10n, ordinal: 2, at: Date.now() })
  settle(ledger, account)
  await until(async () => (await ledger.reads.balance(account)).settled === 14n)
  const { epoch } = ledger.continuity
  await redis.command('HSET', meta, 'servers', 'another')
  await until(() => ledger.continuity.epoch > epoch && ledger.continuity.open)
  t.equal((await ledger.reads.balance(account)).settled, 20n)
})

t.test(
  'a full store takes all but new requests: it settles, changes its leader, learns of keys and is restored',
  { skip },
  async t => {
    const { g, account, redis, meta } = await losing(t)
    const { ledger } = g.gateway
    await redis.command('CONFIG', 'SET', 'maxmemory', '1')
    for (let look = 0; look < 5; look++) {
      ledger.continuity.recheck()
      await ledger.continuity.whenOpen()
    }
    t.equal(ledger.continuity.open, true)
    settle(ledger, account)
    await until(async () => (await ledger.records.history.totals(account)).settled === 10n)

    t.comment('It gives the duty of a process that died to another one.')
    const duty = ledger.scripts.keys.shared('lease')
    await redis.command('DEL', duty)
    await until(async () => (await redis.command('GET', duty)) !== null)

    t.comment('It learns of new keys, and of disabled ones.')
    const secret = await g.key('famC', 1n)
    const id = await g.id(secret)
    t.match(await g.gateway.ledger.reads.balance(id), { granted: 1_000_000_000n })
    t.equal(await g.gateway.keys.changes.disable(id), 'store')
    t.match(await g.gateway.keys.changes.record(id), { status: 'disabled' })

    t.comment('It takes settlements although it has lost its scripts.')
    await redis.command('SCRIPT', 'FLUSH')
    for (let nth = 0; nth < 500; nth++) {
      settle(ledger, account)
      if (nth % 50 === 0) await new Promise(resolve => setImmediate(resolve))
    }
    await until(async () => (await ledger.reads.balance(account)).settled === 5010n)
    await until(() => ledger.waiting === 0)
    await ledger.background.archiveAll()

    t.comment('It is restored when it has lost something.')
    for (const key of (await redis.command('KEYS', '*:o:*')) as string[]) await redis.command('DEL', key)
    await redis.command('DEL', ledger.scripts.keys.of(account).account)
    const { epoch } = ledger.continuity
    await redis.command('HDEL', meta, 'servers')
    await until(() => ledger.continuity.epoch > epoch && ledger.continuity.open)
    t.match(await ledger.reads.balance(account), { granted: 1_000_000_000n, settled: 5010n })
    t.match(await audit(ledger, [account, id]), { entries: 501, drifts: { length: 0 } })
  },
)
