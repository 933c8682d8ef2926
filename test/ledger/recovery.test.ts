/** What processes see of a store and of records that fall back while they read. */
import t, { type Test } from 'tap'
import { Archiver } from '../../core/ledger/archiver.ts'
import { Hold, type HoldRequest } from '../../core/ledger/hold.ts'
import { Keys } from '../../core/keys/keys.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { extendOperation, holdOperation, settleOperation } from '../../core/ledger/operations.ts'
import { recoverRecords } from '../../core/ledger/recovery/records-recovery.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { timedId } from '../../core/lib/ids.ts'
import type { EndedEntry, EntryKind } from '../../core/records/entry.ts'
import type { RecordedKey } from '../../core/records/key-records.ts'
import { findServer } from '../../core/store/managed.ts'
import { testEnvironment } from '../environment.ts'
import { RealRedis } from '../redis.ts'
import { startGateway, until } from '../gateway.ts'
import { openLedger } from './open.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const HOUR_MS = 3_600_000
const NOTES = { endpoint: '/x', model: 'm', stream: false, status: 'ok' } as const
const NOW = Date.now()

/** An account with 1000 nano-credits, and what a test does with it. */
async function account(t: Test) {
  const redis = await RealRedis.start(t)
  const { ledger } = await openLedger(t, redis, 'r')
  const { key } = await new Keys(ledger, 0, Date.now).changes.create({
    type: 'famC',
    name: '',
    credits: 1000n,
    expiresAt: undefined,
  })
  const { records, scripts } = ledger
  const own = scripts.keys.of(key.id)
  const settled = async (): Promise<bigint | undefined> => (await records.keys.withIds([key.id]))[0]?.settled
  const entryOf =
    (id: string, bucket: string) =>
    (kind: EntryKind, ordinal: number, charge: bigint, before = 0n): EndedEntry => {
      return {
        id,
        account: key.id,
        ordinal,
        at: NOW,
        kind,
        charge,
        before,
        balance: 0n,
        bucket,
        waived: 0n,
        notes: NOTES,
      }
    }
  /** What the store has counted, as if the script had done it. */
  const has = async (ordinal: number, charged: bigint, bucket: string, outcomes: object): Promise<void> => {
    await scripts.redis.hset(own.account, { sq: ordinal, bal: String(1000n - charged) })
    await scripts.redis.hset(scripts.keys.outcomes(key.id, bucket), outcomes)
  }
  return { id: key.id, ledger, entryOf, has, settled, own }
}

/** The outcome of a reaped exchange, as the script writes it. */
const reaped = (charge: number, ordinal: number): string => `R${charge}:${ordinal}:${NOW}`

const record = ({ records }: Ledger, ...entries: EndedEntry[]): Promise<void> =>
  records.recorder.record(entries, new Map())

async function recover({ scripts, records }: Ledger): Promise<void> {
  const epoch = await records.nextEpoch()
  await recoverRecords(scripts, records, { at: NOW, newId: () => timedId(NOW), epoch })
}

t.test(
  'an exchange that was reaped three times counts once, although the database fell back twice',
  { skip },
  async t => {
    const { ledger, entryOf, has, settled } = await account(t)
    const [id, bucket] = [timedId(NOW), `${Math.floor(NOW / HOUR_MS)}.0`]
    const entry = entryOf(id, bucket)
    await has(1, 4n, bucket, { [id]: reaped(4, 1) })
    await recover(ledger)
    await has(2, 6n, bucket, { [id]: reaped(6, 2) })
    await record(ledger, entry('reaped', 2, 6n, 4n))
    await has(3, 8n, bucket, { [id]: reaped(8, 3) })
    await recover(ledger)
    t.equal(await settled(), 8n)
    await record(ledger, entry('late', 4, 9n, 8n))
    t.equal(await settled(), 9n)
  },
)

t.test(
  'an exchange that was reaped hours ago, and again since, is found after the database fell back',
  { skip },
  async t => {
    const { ledger, entryOf, has, settled } = await account(t)
    const began = NOW - 3 * HOUR_MS
    const [id, bucket] = [timedId(began), `${Math.floor(began / HOUR_MS)}.0`]
    const entry = entryOf(id, bucket)
    await record(ledger, { ...entry('reaped', 1, 4n), at: began })
    await has(2, 6n, bucket, { [id]: reaped(6, 2) })
    await recover(ledger)
    await record(ledger, entry('late', 3, 9n, 6n))
    t.equal(await settled(), 9n)
  },
)

t.test('an exchange that is reaped while its account is compared does not hide a lost charge', { skip }, async t => {
  const { ledger, entryOf, has, settled } = await account(t)
  const [id, lost, bucket] = [timedId(NOW), timedId(NOW + 1), `${Math.floor(NOW / HOUR_MS)}.0`]
  const entry = entryOf(id, bucket)
  await record(ledger, entry('reaped', 1, 4n))
  await has(2, 54n, bucket, { [id]: reaped(4, 1), [lost]: 'F50' })
  const { redis } = ledger.scripts
  const hgetall = redis.hgetall.bind(redis)
  const meanwhile = async (name: string): Promise<Record<string, string>> => {
    const read = await hgetall(name)
    await has(3, 56n, bucket, { [id]: reaped(6, 3) })
    return read
  }
  Object.assign(redis, { hgetall: meanwhile })
  await recover(ledger)
  await record(ledger, entry('reaped', 3, 6n, 4n))
  t.equal(await settled(), 56n)
})

t.test(
  'a process that was too slow to record what a database lost records nothing after another one',
  { skip },
  async t => {
    const { ledger, has, settled } = await account(t)
    await has(1, 50n, `${Math.floor(NOW / HOUR_MS)}.0`, { x: 'F50' })
    const { keys } = ledger.records
    const withIds = keys.withIds.bind(keys)
    keys.withIds = async ids => {
      const read = await withIds(ids)
      keys.withIds = withIds
      await recover(ledger)
      return read
    }
    await t.rejects(recover(ledger))
    t.equal(await settled(), 50n)
  },
)

t.test('a hold learns of an earlier end only from a store that has it', { skip }, async t => {
  const { id: account_, ledger, entryOf } = await account(t)
  const { scripts, records } = ledger
  const [id, bucket] = [timedId(NOW), `${Math.floor(NOW / HOUR_MS)}.0`]
  const request: HoldRequest = {
    account: account_,
    id,
    amount: 20n,
    least: 20n,
    version: '1',
    notes: NOTES,
    floor: () => ({ charge: 4n, notes: {} }),
  }
  await scripts.run(holdOperation(request, bucket, { leaseMs: 60_000, now: NOW }, scripts.keys))
  // The store fell back to before the exchange was reaped.
  await record(ledger, entryOf(id, bucket)('reaped', 1, 4n))
  const extend = (): Promise<readonly string[]> => {
    const hold = new Hold(request, bucket, 20n, 0n)
    return scripts.run(extendOperation(hold, { amount: 20n, leaseMs: 60_000, verdict: 'R4:1:0' }, scripts.keys))
  }
  await extend()
  const [key] = await records.keys.withIds([account_])
  await ledger.restorer.restore(key as RecordedKey, 0)
  await extend()
  const settlement = settlementOf({ account: account_, id, bucket }, { charge: 7n, kind: 'settle', notes: NOTES }, NOW)
  await scripts.run(settleOperation(settlement, '?', scripts.keys, { retriesMs: 1000, waivers: 5, freeEntries: 5 }))
  t.equal((await ledger.reads.balance(account_)).settled, 7n)
})

t.test('what another process records after it was looked up waits no longer', { skip }, async t => {
  const { id: account_, ledger } = await account(t)
  const { scripts, records, continuity } = ledger
  const { log } = testEnvironment()
  const [one, other] = [0, 1].map(() => new Archiver(scripts, records, continuity, log)) as [Archiver, Archiver]
  const id = timedId(NOW)
  const settlement = settlementOf({ account: account_, id }, { charge: 7n, kind: 'settle', notes: NOTES }, NOW)
  await scripts.run(settleOperation(settlement, '', scripts.keys, { retriesMs: 1000, waivers: 5, freeEntries: 5 }))
  await one.look()
  t.ok(one.waiting.oldestMs > 0)
  await other.runAll()
  await one.run()
  t.strictSame(one.waiting, { backlogBytes: 0, oldestMs: 0 })
})

t.test('an exchange that no process announced is found by a sweep, once a minute', { skip }, async t => {
  const { id: account_, ledger } = await account(t)
  const { scripts, records, continuity } = ledger
  let nowMs = NOW
  const { epoch, meta } = continuity
  const clock = { now: () => nowMs, epoch, meta, open: true } as unknown as typeof continuity
  const archiver = new Archiver(scripts, records, clock, testEnvironment().log)
  t.ok(archiver.isSweepDue, 'nothing is known of a store at first')
  await archiver.run()
  t.notOk(archiver.isSweepDue)
  const settlement = settlementOf({ account: account_, id: timedId(NOW) }, { charge: 7n, kind: 'settle', notes: NOTES }, NOW) // prettier-ignore
  await scripts.run(settleOperation(settlement, '', scripts.keys, { retriesMs: 1000, waivers: 5, freeEntries: 5 }))
  const waiting = (): Promise<number> => scripts.redis.xlen(scripts.keys.of(account_).stream)
  nowMs += 59_999
  t.notOk(archiver.isSweepDue)
  await archiver.run()
  t.equal(await waiting(), 1, 'only announced shards are read')
  nowMs += 1
  t.ok(archiver.isSweepDue)
  await archiver.run()
  t.equal(await waiting(), 0)
  archiver.announce(3)
  await archiver.run()
  nowMs += 10_000
  t.ok(archiver.isSweepDue, 'while exchanges end, sweeps are more frequent')
})

t.test('while nothing ends, no streams are read', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const g = await startGateway(t, { env: { REDIS_URL: redis.url } })
  const key = await g.key('famC')
  const seen = await redis.monitor(t)
  await g.call('/v1/chat/completions', { key, body: { model: 'acme/famC-5.5', messages: [] } })
  await g.settled(key)
  const times = (name: string): number => seen().filter(({ command }) => command === name).length
  const reads = (): number => times('xread') + times('xrange')
  // The duty is taken again once a second, which asks for what others announced.
  await until(() => times('spop') >= 2)
  const before = reads()
  t.ok(before > 0, 'the exchange is recorded')
  await until(() => times('spop') >= 5)
  t.equal(reads(), before)
})

t.test('plans and limits of keys that a database has lost come back from the store', { skip }, async t => {
  const { ledger, id } = await account(t)
  const keys = new Keys(ledger, 0, Date.now)
  const windows = [{ requests: 5, per: 'day' }]
  await keys.plans.set({ account: id, id: 'a' }, { windows, then: 'refuse', until: '30d' })
  const { database } = ledger.records
  const rows = async (): Promise<unknown> =>
    database.all(
      'SELECT a.plan, a.plan_until, a.grants, k.limits, k.version FROM accounts a JOIN keys k ON k.no = a.no',
    )
  const before = await rows()
  await keys.plans.extend({ account: id, id: 'b' }, () => undefined)
  await keys.changes.edit(id, { limits: '{"maxOutput":5}' })
  const after = await rows()
  // The database falls back to before both changes.
  const [[row]] = [before as Record<string, string>[]]
  await database.transaction(async sql => {
    await sql.all('UPDATE accounts SET plan = ?, plan_until = ?, grants = ?', [row?.['plan'] ?? '', row?.['plan_until'] ?? 0, row?.['grants'] ?? 0]) // prettier-ignore
    await sql.all("DELETE FROM grants WHERE id = 'b'")
    await sql.all('UPDATE keys SET limits = NULL, version = 1')
  })
  await recover(ledger)
  t.same(await rows(), after)
})
