import t, { type Test } from 'tap'
import { Balances } from '../../core/keys/balances.ts'
import { Keys } from '../../core/keys/keys.ts'
import { Plans } from '../../core/keys/plans.ts'
import { type Hold, type HoldBounds, UNBOUNDED } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { reapOperation, renewOperation, settleOperation } from '../../core/ledger/operations.ts'
import { FIELDS, operation } from '../../core/ledger/script/names.ts'
import { leaseName, ownerOf, type Spender } from '../../core/ledger/script/store-keys.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { compareWindows } from '../../core/ledger/windows-audit.ts'
import { timedId } from '../../core/lib/ids.ts'
import { keyWindowsAsked, utcDay } from '../../core/plans/limits.ts'
import { askedOf, type Plan } from '../../core/plans/plan.ts'
import { dayUsed, statesIn, type WindowView, windowViews } from '../../core/plans/state.ts'
import type { PlanTerms } from '../../core/plans/terms.ts'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import { CLOCK, openLedger } from './open.ts'

/** Windows and days over many midnights, by a clock that the test sets. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const NOTES = { endpoint: '/x', model: 'm', stream: true } as const
const LIMITS = { retriesMs: HOUR_MS, waivers: 1000, freeEntries: 1000 }
/** More than anything here costs, in nano-credits. */
const WIDE = 1_000_000n

/** A key on a ledger with a clock. */
class Use {
  now = Date.UTC(2026, 11, 1, 12)
  ledger!: Ledger
  spender!: Spender

  static async open(t: Test, isShared = false): Promise<Use> {
    const use = new Use()
    const redis = await RealRedis.start(t)
    use.ledger = (await openLedger(t, redis, 'w', {}, () => use.now)).ledger
    const { changes } = new Keys(use.ledger, 0, () => use.now)
    const wish = { type: 'famC', name: '', expiresAt: undefined }
    const balance = { name: '', externalId: '', metadata: {}, credits: WIDE }
    const account = isShared ? await new Balances(use.ledger, () => use.now).create(balance) : undefined
    const { key } = await changes.create({ ...wish, credits: isShared ? 0n : WIDE, account })
    use.spender = account === undefined ? { account: key.id } : { account, key: key.id }
    return use
  }

  async pass(ms: number): Promise<void> {
    this.now += ms
    await this.ledger.scripts.redis.set(CLOCK, this.now / 1000)
  }

  get plans(): Plans {
    return new Plans(this.ledger)
  }

  /** Gives its balance a plan. @returns the bounds of its holds */
  async plan(window: string | PlanTerms['windows'][number], then: 'credits' | 'refuse'): Promise<Partial<HoldBounds>> {
    const windows = [typeof window === 'string' ? ({ credits: window, per: 'day' } as const) : window]
    await this.plans.set({ account: this.spender.account, id: JSON.stringify(window) }, { then, windows })
    return this.bounds()
  }

  /** The bounds of holds as its plan is now. */
  async bounds(): Promise<Partial<HoldBounds>> {
    const plan = (await this.plans.of(this.spender.account)) as Plan
    return { plan, credits: plan.terms.then === 'credits', windows: now => askedOf(plan, ['m'], new Map(), now) }
  }

  /** What look-ups say of the first window of its plan. */
  async view(): Promise<Pick<WindowView, 'used' | 'held' | 'left' | 'from' | 'resetsAt'> | undefined> {
    const { plan } = await this.bounds()
    const { windows } = (await this.ledger.reads.knownBalance(this.spender.account)) ?? {}
    return windowViews(plan as Plan, windows, this.now)[0]
  }

  async ask(amount: bigint, limit: bigint | undefined, bounds: Partial<HoldBounds> = {}) {
    const { account, key = account } = this.spender
    const keyWindows = (now: number): string =>
      limit === undefined ? '' : keyWindowsAsked({ creditsPerDay: limit }, now)
    return this.ledger.hold({
      ...this.spender,
      id: timedId(this.now),
      amount,
      least: amount,
      rotation: '0',
      version: String((await this.ledger.records.keys.get(key))?.version),
      bounds: { ...UNBOUNDED, keyWindows, tokens: 1, leastTokens: 1, ...bounds },
      notes: NOTES,
      floor: () => ({ charge: 0n, tokens: 0, notes: {} }),
    })
  }

  async hold(amount: bigint, limit: bigint | undefined, bounds: Partial<HoldBounds> = {}): Promise<Hold> {
    const answer = await this.ask(amount, limit, bounds)
    if (answer.kind !== 'held') throw new Error(answer.kind)
    return answer.hold
  }

  async settle(hold: Hold, charge: bigint, tokens = 0): Promise<void> {
    const { scripts } = this.ledger
    const end = settlementOf(hold, { charge, tokens, kind: 'settle', notes: NOTES }, this.now)
    await scripts.run(settleOperation(end, '', scripts.keys, LIMITS))
  }

  /** Reaps a hold whose customer has received something. */
  async reap(hold: Hold, charge = 0n): Promise<void> {
    const { scripts } = this.ledger
    Object.assign(hold.request, { floor: () => ({ charge, tokens: 3, notes: {} }) })
    if (charge > 0n) await scripts.run(renewOperation(hold, HOUR_MS, scripts.keys))
    const lease = leaseName(hold, hold.bucket)
    await scripts.redis.zadd(scripts.keys.of(hold.account).leases, 'XX', 1, lease)
    await scripts.run(reapOperation(lease, scripts.keys))
  }

  /** What is used and held of the day in the store. */
  async day(): Promise<readonly bigint[]> {
    const { redis, keys } = this.ledger.scripts
    const { used = -1n, held = -1n } =
      statesIn(await redis.hget(keys.record(this.spender), FIELDS.keyWindows)).byPlace.get(0) ?? {}
    return [used, held]
  }

  /** What the audit finds of its windows. */
  audit(): Promise<readonly string[]> {
    return compareWindows(this.ledger, this.spender.account, false)
  }
}

t.test('what a request uses beyond a window counts in the one that follows, and in no other', { skip }, async t => {
  const days = async (use: Use, limit: bigint | undefined, bounds?: Partial<HoldBounds>): Promise<string[]> => {
    const kinds: string[] = []
    for (let day = 2; day <= 4; day++) {
      await use.pass(DAY_MS)
      kinds.push((await use.ask(1000n, limit, bounds)).kind)
    }
    return kinds
  }
  const use = await Use.open(t)
  await use.settle(await use.hold(1000n, 2000n), 5000n)
  t.same(await days(use, 2000n), ['used', 'held', 'held'], 'a day of a key')

  const planned = await Use.open(t, true)
  const bounds = await planned.plan('0.000002', 'refuse')
  await planned.settle(await planned.hold(1000n, undefined, bounds), 5000n)
  t.same(await days(planned, undefined, bounds), ['used', 'held', 'held'], 'a window of a plan')

  const little = await Use.open(t)
  await little.settle(await little.hold(1000n, 2000n), 2500n)
  const { from } = utcDay(little.now + DAY_MS)
  const { redis, keys } = little.ledger.scripts
  const text = await redis.hget(keys.record(little.spender), FIELDS.keyWindows)
  t.equal(dayUsed(text, from), 500n, 'look-ups say so')
  await little.pass(DAY_MS)
  await little.hold(10n, 2000n)
  t.same(await little.day(), [500n, 10n])

  const idle = await Use.open(t)
  await idle.settle(await idle.hold(1000n, 2000n), 3000n)
  await idle.pass(30 * DAY_MS)
  await idle.hold(10n, 2000n)
  t.same(await idle.day(), [0n, 10n], 'after thirty days')
})

t.test('a window that begins with a use takes over what was used beyond the one before', { skip }, async t => {
  const use = await Use.open(t, true)
  const bounds = await use.plan({ credits: '0.000001', per: '5h', anchor: 'first use' }, 'refuse')
  await use.pass(HOUR_MS)
  await use.settle(await use.hold(10n, undefined, bounds), 1500n)
  const from = (await use.view())?.resetsAt ?? 0
  await use.pass(6 * HOUR_MS)
  const next = { used: 500n, from, resetsAt: from + 5 * HOUR_MS }
  t.match(await use.view(), next, 'which begins at once')
  await use.hold(0n, undefined, bounds)
  t.match(await use.view(), next)
  t.same(await use.audit(), [])

  const later = await Use.open(t, true)
  const own = await later.plan({ credits: '0.000001', per: '5h', anchor: 'first use' }, 'refuse')
  await later.settle(await later.hold(10n, undefined, own), 1500n)
  await later.pass(11 * HOUR_MS)
  t.match(await later.view(), { used: 0n }, 'not after another five hours')
})

t.test('what was used or held before a limit was set or lowered is not beyond it', { skip }, async t => {
  const use = await Use.open(t)
  await use.settle(await use.hold(1000n, undefined), 50_000n)
  t.equal((await use.ask(100n, 2000n)).kind, 'used')
  await use.settle(await use.hold(0n, 2000n), 0n)
  await use.pass(DAY_MS)
  await use.hold(100n, 2000n)
  t.same(await use.day(), [0n, 100n], 'a limit of the day that was set at noon')

  const planned = await Use.open(t, true)
  const wide = await planned.plan('0.000005', 'refuse')
  const held = await planned.hold(2000n, undefined, wide)
  await planned.settle(await planned.hold(2000n, undefined, wide), 2000n)
  const narrow = await planned.plan('0.000001', 'refuse')
  t.equal((await planned.ask(100n, undefined, narrow)).kind, 'used')
  await planned.settle(await planned.hold(0n, undefined, narrow), 0n)
  await planned.settle(held, 2000n)
  await planned.pass(DAY_MS)
  t.equal((await planned.ask(1000n, undefined, narrow)).kind, 'held', 'a plan that was replaced by a smaller one')

  const lowered = await Use.open(t)
  const [big, small] = [await lowered.hold(4000n, 5000n), await lowered.hold(500n, 5000n)]
  await lowered.settle(await lowered.hold(0n, 1000n), 0n)
  await lowered.settle(big, 0n)
  await lowered.settle(small, 5000n)
  await lowered.pass(DAY_MS)
  t.equal((await lowered.ask(100n, 1000n)).kind, 'used', 'but what a request uses beyond its hold is')
})

t.test('a window that was reset takes nothing over, and is taken over as any other', { skip }, async t => {
  const use = await Use.open(t, true)
  const before = await use.plan('0.000001', 'refuse')
  await use.settle(await use.hold(1000n, undefined, before), 5000n)
  await use.pass(DAY_MS)
  await use.plans.reset({ account: use.spender.account, id: 'noon' }, 0)
  t.match(await use.view(), { used: 0n, left: 1000n })
  const bounds = await use.bounds()
  await use.settle(await use.hold(1000n, undefined, bounds), 3000n)
  await use.pass(DAY_MS)
  t.match(await use.view(), { used: 2000n })
  t.equal((await use.ask(10n, undefined, bounds)).kind, 'used')
})

t.test('who pays for a request that ends after its window does not depend on other requests', { skip }, async t => {
  for (const isRenewed of [false, true]) {
    const use = await Use.open(t, true)
    const bounds = await use.plan('0.000001', 'credits')
    const hold = await use.hold(600n, undefined, bounds)
    await use.pass(DAY_MS)
    if (isRenewed) await use.settle(await use.hold(10n, undefined, bounds), 10n)
    await use.settle(hold, 1400n)
    const entries = await use.ledger.reads.history(use.spender, { count: 5 })
    const entry = entries.find(({ id }) => id === hold.id)
    t.match(entry, { charge: 800n, plan: { covered: 600n } }, isRenewed ? 'the next has begun' : 'it has not')
    t.same(await use.audit(), [])
  }
})

t.test('a late end of yesterday changes yesterday, whenever the limit was set', { skip }, async t => {
  for (const isShared of [false, true]) {
    const use = await Use.open(t, isShared)
    const old = await use.hold(1000n, undefined)
    const more = await use.hold(1000n, undefined)
    await use.reap(old, 500n)
    await use.reap(more)
    await use.pass(DAY_MS)
    await use.settle(await use.hold(100n, WIDE), 100n)
    t.same(await use.day(), [100n, 0n])
    await use.settle(old, 200n)
    await use.settle(more, 700n)
    await use.hold(10n, WIDE)
    t.same(await use.day(), [100n, 10n])
    t.same(await use.audit(), [])
  }
})

t.test('a sum of yesterday that arrives after midnight is not written', { skip }, async t => {
  const use = await Use.open(t)
  await use.settle(await use.hold(5n, undefined), 5n)
  const { account } = use.spender
  const { scripts, reads } = use.ledger
  const used = await reads.days.used(use.spender, utcDay(use.now))
  await use.pass(DAY_MS)
  const running = await use.hold(1000n, undefined)
  const { account: own, leases } = scripts.keys.of(account)
  const names = { account: own, record: scripts.keys.record(use.spender), leases }
  const args = { name: account, owner: ownerOf(use.spender), holdPrefix: scripts.keys.hold(account, ''), ...used }
  t.same(await scripts.run(operation('fill', account, names, args)), ['changed'])
  const other = await use.hold(10n, WIDE)
  t.same(await use.day(), [0n, 1010n], 'what runs counts today')
  await use.settle(running, 900n)
  await use.settle(other, 10n)
  t.same(await use.day(), [910n, 0n])
})

t.test('a hold that was reaped and restored gives its reserved tokens back once', { skip }, async t => {
  const fitting = async (isReaped: boolean): Promise<number> => {
    const use = await Use.open(t)
    const hold = await use.hold(100n, undefined, { rates: '0 1000', tokens: 400, leastTokens: 400 })
    if (isReaped) {
      await use.reap(hold)
      await use.ledger.extend(hold, 100n)
    }
    await use.settle(hold, 100n, 400)
    let others = 0
    while ((await use.ask(1n, undefined, { rates: '0 1000', tokens: 200, leastTokens: 200 })).kind === 'held') others++
    return others
  }
  t.same([await fitting(false), await fitting(true)], [3, 3])
})

t.test(
  'a refund of a reaped request goes to the purses that have paid, or to the balance if the windows are over',
  { skip },
  async t => {
    for (const meanwhile of ['nothing', 'the next day', 'more in the window', 'another plan'] as const) {
      const use = await Use.open(t, true)
      const { account } = use.spender
      const bounds = await use.plan('0.000001', 'credits')
      const hold = await use.hold(600n, WIDE, bounds)
      await use.ledger.extend(hold, 1500n)
      await use.reap(hold, 1400n)
      const [reaped] = await use.ledger.reads.history(use.spender, { count: 1 })
      t.match(reaped, { kind: 'reaped', charge: 400n, plan: { covered: 1000n } })
      if (meanwhile === 'the next day') await use.pass(DAY_MS)
      if (meanwhile === 'more in the window') await use.plans.add({ account, id: 'more' }, 0, '0.000009')
      if (meanwhile === 'another plan') await use.plan({ credits: '0.000003', per: 'week' }, 'credits')
      await use.settle(await use.hold(10n, WIDE, await use.bounds()), 10n)
      const isOver = meanwhile === 'the next day' || meanwhile === 'another plan'
      const refund = (asCredits: boolean) => use.ledger.credit(account, reaped as never, 'x', asCredits)
      if (isOver) await t.rejects(refund(false), { message: /windows that are over/ })
      t.same(await refund(isOver), isOver ? { credits: 1400n, plan: 0n } : { credits: 400n, plan: 1000n }, meanwhile)
      t.same(await refund(isOver), { credits: 0n, plan: 0n }, 'once')
      const entries = await use.ledger.reads.history(use.spender, { count: 5 })
      t.match(
        entries.find(({ id }) => id === reaped?.id),
        { charge: 400n, plan: { covered: 1000n, tokens: reaped?.plan?.tokens } },
      )
      t.same(await use.audit(), [], meanwhile)
    }
  },
)
