import t, { type Test } from 'tap'
import { Archiver } from '../../core/ledger/archiver.ts'
import { Balances } from '../../core/keys/balances.ts'
import { Keys } from '../../core/keys/keys.ts'
import { type Hold, UNBOUNDED } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { reapOperation, settleOperation } from '../../core/ledger/operations.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { leaseName, type Spender } from '../../core/ledger/script/store-keys.ts'
import { Settler } from '../../core/ledger/settler.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { compareWindows } from '../../core/ledger/windows-audit.ts'
import { timedId } from '../../core/lib/ids.ts'
import { keyWindowsAsked, limitedDay } from '../../core/plans/limits.ts'
import { statesIn } from '../../core/plans/state.ts'
import type { RecordedKey } from '../../core/records/key-records.ts'
import { findServer } from '../../core/store/managed.ts'
import { testEnvironment } from '../environment.ts'
import { RealRedis } from '../redis.ts'
import { openLedger } from './open.ts'
import { Random } from './simulation.ts'

/** A limit of the day counts the same whenever it is set. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const STEPS = Number(process.env['STEPS'] ?? 150)
const HOUR_MS = 3_600_000
const LIMITS = { retriesMs: HOUR_MS, waivers: 1000, freeEntries: 1000 }
const NOTES = { endpoint: '/x', model: 'm', stream: true } as const
/** More than anything here costs, in nano-credits. */
const WIDE = { creditsPerDay: 1_000_000_000n }

/** A key, and what runs on it. */
class Use {
  readonly holds: Hold[] = []
  /** Holds that were reaped, whose ends may still come. */
  readonly reaped: Hold[] = []
  readonly spender: Spender
  readonly #ledger: Ledger

  constructor(ledger: Ledger, spender: Spender) {
    this.#ledger = ledger
    this.spender = spender
  }

  async hold(amount: bigint, isLimited: boolean): Promise<void> {
    const { account, key } = this.spender
    const answer = await this.#ledger.hold({
      account,
      key,
      id: timedId(Date.now()),
      amount,
      least: amount,
      rotation: '0',
      version: String((await this.#ledger.records.keys.get(key ?? account))?.version),
      bounds: {
        ...UNBOUNDED,
        keyWindows: now => (isLimited ? keyWindowsAsked(WIDE, now) : ''),
        tokens: 1,
        leastTokens: 1,
      },
      notes: NOTES,
      floor: () => ({ charge: 0n, tokens: 0, notes: {} }),
    })
    if (answer.kind !== 'held') throw new Error(answer.kind)
    this.holds.push(answer.hold)
  }

  extend(hold: Hold, amount: bigint): Promise<unknown> {
    return this.#ledger.extend(hold, amount)
  }

  async settle([hold]: readonly Hold[], charge: bigint): Promise<void> {
    const { scripts } = this.#ledger
    const end = { charge, tokens: 0, kind: 'settle', notes: NOTES } as const
    await scripts.run(settleOperation(settlementOf(hold as Hold, end, Date.now()), '', scripts.keys, LIMITS))
  }

  async reap([hold]: readonly Hold[]): Promise<void> {
    const { scripts } = this.#ledger
    const lease = leaseName(hold as Hold, (hold as Hold).bucket)
    await scripts.redis.zadd(scripts.keys.of(this.spender.account).leases, 'XX', 1, lease)
    await scripts.run(reapOperation(lease, scripts.keys))
    this.reaped.push(hold as Hold)
  }

  /** What the store, or a look-up, has used and held of the day. */
  async day(): Promise<readonly bigint[]> {
    const { redis, keys } = this.#ledger.scripts
    const text = await redis.hget(keys.record(this.spender), FIELDS.keyWindows)
    const { used = -1n, held = -1n } = statesIn(text).byPlace.get(0) ?? {}
    return [used, held]
  }

  async shown(): Promise<bigint> {
    const today = limitedDay(WIDE, Date.now())
    const limits = await this.#ledger.reads.limits({ spender: this.spender, cap: undefined, today })
    const { used = 0n, held = 0n } = statesIn(limits?.ofKey?.windows).byPlace.get(0) ?? {}
    return used + held
  }
}

/** Opens a ledger with two keys, which are alone on their accounts or beside others. */
async function twins(t: Test, isShared: boolean) {
  const redis = await RealRedis.start(t)
  const { ledger } = await openLedger(t, redis, 'd')
  const { log } = testEnvironment()
  const archiver = new Archiver(ledger.scripts, ledger.records, ledger.continuity, log)
  const keys = new Keys(ledger, 0, Date.now)
  const create = async (): Promise<Use> => {
    const wish = { type: 'famC', name: '', credits: 10_000_000n, expiresAt: undefined }
    if (!isShared) {
      const { id } = (await keys.changes.create(wish)).key
      return new Use(ledger, { account: id })
    }
    const owner = { name: '', externalId: '', metadata: {}, credits: 10_000_000n }
    const account = await new Balances(ledger, Date.now).create(owner)
    const [own] = await keys.changes.createMany({ ...wish, credits: 0n, account }, 2)
    return new Use(ledger, { account, key: own?.key.id })
  }
  return { ledger, keys, archiver, early: await create(), late: await create() }
}

for (const isShared of [false, true])
  t.test(`a limit of the day counts the same, set late or early; ${isShared ? 'keys share a balance' : 'one key'}`, { skip }, async t => {
    const { ledger, archiver, early, late } = await twins(t, isShared)
    const random = new Random(Number(process.env['SEED'] ?? 1))
    const [began, both] = [limitedDay(WIDE, Date.now())?.from, [early, late]]
    let [isLimited, compared] = [false, 0]
    for (let step = 0; step < STEPS; step++) {
      const dice = random.below(100)
      const amount = BigInt(1 + random.below(3000))
      if (dice < 30) {
        await Promise.all([early.hold(amount, true), late.hold(amount, isLimited)])
      } else if (dice < 40 && early.holds.length > 0) {
        const at = random.below(early.holds.length)
        for (const { holds } of both) await ledger.extend(holds[at] as Hold, (holds[at] as Hold).amount + amount)
      } else if (dice < 65 && early.holds.length > 0) {
        const at = random.below(early.holds.length)
        for (const use of both) await use.settle(use.holds.splice(at, 1), amount)
      } else if (dice < 70 && early.holds.length > 0) {
        const at = random.below(early.holds.length)
        for (const use of both) await use.reap(use.holds.splice(at, 1))
      } else if (dice < 75 && early.reaped.length > 0) {
        const at = random.below(early.reaped.length)
        for (const use of both) await use.settle(use.reaped.splice(at, 1), amount)
      } else if (dice < 80) {
        const at = random.below(8)
        for (const { spender } of both) {
          const entry = (await ledger.reads.history({ account: spender.account }, { count: 8 }))[at]
          if (entry && entry.kind !== 'credit' && entry.kind !== 'reaped' && entry.charge > 0n)
            await ledger.accounts.credit(spender.account, entry, 'a gift')
        }
      } else if (dice < 85) {
        await archiver.runAll()
      } else {
        isLimited = !isLimited
      }
      // The store of the late one says nothing, or the same.
      const [used, held] = await late.day()
      if (held === -1n) continue
      compared++
      t.same([used, held], await early.day(), `step ${step}: ${dice} ${amount}`)
    }
    t.ok(compared > STEPS / 10, `${compared} of ${STEPS}`)
    for (const { spender } of both) t.same(await compareWindows(ledger, spender.account, false), [], 'the audit agrees')
    for (const use of both) for (const hold of use.holds.splice(0)) await use.settle([hold], 7n)
    await late.hold(1n, false)
    await late.settle(late.holds.splice(0), 0n)
    t.same(await late.day(), [-1n, -1n], 'a hold without the limit ends its window')
    const { redis, keys: names } = ledger.scripts
    const [record, day] = [names.record(early.spender), await early.day()]
    const text = (await redis.hget(record, FIELDS.keyWindows)) ?? ''
    await redis.hset(record, FIELDS.keyWindows, text.replace(/\d+$/, '0'))
    t.match(await compareWindows(ledger, early.spender.account, false), [/: 0 is less than \d+$/], 'the audit finds a day that lacks its charges')
    await compareWindows(ledger, early.spender.account, true)
    await early.hold(1n, true)
    await early.settle(early.holds.splice(0), 0n)
    t.same(await early.day(), day, 'a repaired day is filled again')
    t.equal(await late.shown(), await early.shown(), 'a look-up before the first request shows the same')
    const used = await early.shown()
    await archiver.runAll()
    await ledger.scripts.redis.flushall()
    for (const use of both) {
      const { account, key = account } = use.spender
      await ledger.restorer.restore((await ledger.records.keys.get(key)) as RecordedKey)
      t.equal(await use.shown(), used, 'a rebuilt store shows the same')
      await use.hold(5n, true)
      t.same(await use.day(), [used, 5n], 'and counts the same')
    }
    t.equal(limitedDay(WIDE, Date.now())?.from, began, 'all of it happened on one day')
  }) // prettier-ignore

t.test('a key that is moved to another balance, and back, keeps what it has used of its day', { skip }, async t => {
  const { ledger, keys, early: first } = await twins(t, false)
  const id = first.spender.account
  const owner = { name: '', externalId: '', metadata: {}, credits: 10_000_000n }
  const second = new Use(ledger, { account: await new Balances(ledger, Date.now).create(owner), key: id })
  await first.hold(1000n, true)
  await first.settle(first.holds.splice(0), 1000n)
  await first.hold(9000n, true)
  await keys.changes.move(id, second.spender.account)
  t.equal(await second.shown(), 10_000n, 'what runs there counts as used')
  await second.hold(500n, true)
  t.same(await second.day(), [10_000n, 500n])
  await first.settle(first.holds.splice(0), 4000n)
  await ledger.restorer.restore((await ledger.records.keys.get(id)) as RecordedKey)
  await second.hold(50n, true)
  t.same(await second.day(), [5000n, 550n], 'until it has ended')
  for (const hold of second.holds.splice(0)) await second.settle([hold], 300n)
  await keys.changes.move(id, id)
  await first.hold(1n, true)
  t.same(await first.day(), [5600n, 1n])
})

t.test('a restored hold counts in the day of its key', { skip }, async t => {
  const { early } = await twins(t, false)
  await early.hold(1000n, true)
  const [hold] = early.holds as [Hold]
  await early.reap(early.holds.splice(0))
  await early.extend(hold, 50_000n)
  t.same(await early.day(), [0n, 50_000n])
  await early.settle([hold], 700n)
  t.same(await early.day(), [700n, 0n])
})

t.test('fifty requests at once let the day of their key be filled once', { skip }, async t => {
  const { ledger, late } = await twins(t, false)
  for (let at = 0; at < 3; at++) {
    await late.hold(100n, false)
    await late.settle(late.holds.splice(0), 100n)
  }
  let fills = 0
  const run = ledger.scripts.run.bind(ledger.scripts)
  ledger.scripts.run = asked => {
    if (asked.name === 'fill') fills++
    return run(asked)
  }
  await Promise.all(Array.from({ length: 50 }, () => late.hold(10n, true)))
  t.same(await late.day(), [300n, 500n])
  t.equal(fills, 1)
})

t.test('a running request keeps its limit of the day when the store loses what was used', { skip }, async t => {
  const { ledger, early } = await twins(t, false)
  const { redis, keys: names } = ledger.scripts
  for (const isLimited of [true, false]) {
    await early.hold(1000n, isLimited)
    await early.hold(0n, true)
  }
  await redis.hdel(names.record(early.spender), FIELDS.keyWindows)
  const [hold] = early.holds as [Hold]
  const usedOn = ledger.records.keys.usedOn.bind(ledger.records.keys)
  ledger.records.keys.usedOn = () => Promise.reject(new Error('no database'))
  await early.extend(hold, 3000n)
  t.equal(hold.amount, 3000n, 'a stream has its hold also while the records are away')
  t.same(await early.day(), [-1n, -1n])
  ledger.records.keys.usedOn = usedOn
  await early.extend(hold, 5000n)
  t.same(await early.day(), [0n, 6000n])
})

t.test('a restored store lets a running request have its whole hold without the day of its key', { skip }, async t => {
  const { ledger, early } = await twins(t, false)
  await early.hold(1000n, true)
  const [hold] = early.holds as [Hold]
  const { redis, keys: names } = ledger.scripts
  const before = await redis.get(names.hold(hold.account, hold.id))
  await early.extend(hold, 5000n)
  // The store has lost the extension, and its last exchanges were replayed.
  await redis.set(names.hold(hold.account, hold.id), before ?? '')
  await redis.hdel(names.record(early.spender), FIELDS.keyWindows)
  const settler = new Settler(ledger.scripts, ledger.continuity, { ...LIMITS, leaseMs: HOUR_MS }, ledger.reads)
  t.match(await settler.restore(hold), ['held', '5000'])
})

t.test('the day of a key is filled while another key of its balance is busy', { skip }, async t => {
  const { ledger, keys } = await twins(t, false)
  const owner = { name: '', externalId: '', metadata: {}, credits: 10_000_000n }
  const account = await new Balances(ledger, Date.now).create(owner)
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account }
  const [one, other] = (await keys.changes.createMany(wish, 2)).map(
    ({ key }) => new Use(ledger, { account, key: key.id }),
  ) as [Use, Use]
  const use = async (each: Use, charge: bigint): Promise<void> => {
    await each.hold(charge, false)
    await each.settle(each.holds.splice(0), charge)
  }
  await use(one, 70n)
  const { keys: records } = ledger.records
  const usedOn = records.usedOn.bind(records)
  let reads = 0
  records.usedOn = async (...args) => {
    reads++
    await use(other, 1n)
    return usedOn(...args)
  }
  await one.hold(5n, true)
  t.same(await one.day(), [70n, 5n])
  t.equal(reads, 1)
})

t.test('what a key was charged on a balance that the store has lost counts for its cap', { skip }, async t => {
  const { ledger, keys, archiver, early: first } = await twins(t, false)
  const id = first.spender.account
  await first.hold(1000n, false)
  await first.settle(first.holds.splice(0), 1000n)
  const owner = { name: '', externalId: '', metadata: {}, credits: 10_000_000n }
  const [second, third] = [
    await new Balances(ledger, Date.now).create(owner),
    await new Balances(ledger, Date.now).create(owner),
  ]
  await keys.changes.move(id, second)
  await keys.changes.move(id, third)
  await archiver.runAll()
  const { redis, keys: names } = ledger.scripts
  await redis.del(names.of(id).account)
  await ledger.restorer.restore((await ledger.records.keys.get(id)) as RecordedKey)
  t.equal(await redis.hget(names.record({ account: third, key: id }), FIELDS.elsewhere), '1000')
})
