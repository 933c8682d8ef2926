import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { Balances } from '../../core/keys/balances.ts'
import { Keys } from '../../core/keys/keys.ts'
import { Plans } from '../../core/keys/plans.ts'
import { Hold, type HoldRequest, UNBOUNDED } from '../../core/ledger/hold.ts'
import {
  extendOperation,
  holdOperation,
  renewOperation,
  reapOperation,
  settleOperation,
} from '../../core/ledger/operations.ts'
import { FIELDS, operation } from '../../core/ledger/script/names.ts'
import { leaseName } from '../../core/ledger/script/store-keys.ts'
import { settlementOf } from '../../core/ledger/settlement.ts'
import { entriesBack } from '../../core/ledger/recovery/used-windows.ts'
import { compareWindows } from '../../core/ledger/windows-audit.ts'
import { timedId } from '../../core/lib/ids.ts'
import { utcDay } from '../../core/plans/limits.ts'
import { askedOf, type Plan } from '../../core/plans/plan.ts'
import { statesIn } from '../../core/plans/state.ts'
import type { WindowTerms } from '../../core/plans/terms.ts'
import type { HistoryEntry } from '../../core/records/entry.ts'
import type { RecordedKey } from '../../core/records/key-records.ts'
import type { HistoryRange } from '../../core/records/history.ts'
import { findServer } from '../../core/store/managed.ts'
import { RealRedis } from '../redis.ts'
import { openLedger } from './open.ts'

/** Rules of the script that no order of one process's operations reaches: two processes do the same, or one comes late. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const LEASE_MS = 3_600_000
const DAY_MS = 86_400_000
const LIMITS = { retriesMs: LEASE_MS, waivers: 1000, freeEntries: 1000 }
const NOTES = { endpoint: '/x', model: 'm', stream: true }

/** A balance of 1000 nano-credits with a plan, by default of 100 a day, after which credits follow, and a key of it. */
async function planned(t: Test, ...windows: readonly WindowTerms[]) {
  const redis = await RealRedis.start(t)
  const { ledger } = await openLedger(t, redis, 'r')
  const { scripts } = ledger
  const account = await new Balances(ledger, Date.now).create({
    name: '',
    externalId: '',
    metadata: {},
    credits: 1000n,
  })
  const wish = { type: 'famC', name: '', credits: 0n, expiresAt: undefined, account }
  const { id: key } = (await new Keys(ledger, 0, Date.now).changes.create(wish)).key
  const plans = new Plans(ledger)
  const terms = windows.length > 0 ? windows : [{ credits: '0.0000001', per: 'day' }]
  await plans.set({ account, id: 'plan' }, { then: 'credits', windows: terms })
  const sums = async (): Promise<{ balance: number; used: number; held: number }> => {
    const [balance, windows] = await scripts.redis.hmget(
      scripts.keys.of(account).account,
      FIELDS.balance,
      FIELDS.windows,
    )
    const { used = 0, held = 0 } = statesIn(windows).byPlace.get(0) ?? {}
    return { balance: Number(balance), used: Number(used), held: Number(held) }
  }
  /** Holds an amount. @param floor what the customer has got of it so far */
  const hold = async (amount: bigint, floor = 0n): Promise<Hold> => {
    const plan = (await plans.of(account)) as Plan
    const request: HoldRequest = {
      account,
      key,
      id: timedId(Date.now()),
      amount,
      least: amount,
      rotation: '0',
      version: '1',
      bounds: {
        ...UNBOUNDED,
        plan,
        windows: now => askedOf(plan, ['m'], new Map(), now),
        tokens: 1,
        leastTokens: 1,
      },
      notes: NOTES,
      floor: () => ({ charge: floor, tokens: 0, notes: {} }),
    }
    const bucket = `${Math.floor(Date.now() / 3_600_000)}.0`
    const times = { leaseMs: LEASE_MS, now: Date.now() }
    const [kind, held = '', , , claims] = await scripts.run(holdOperation(request, bucket, times, scripts.keys))
    if (kind !== 'held') throw new Error(kind)
    const held_ = new Hold(request, bucket, BigInt(held), 0n)
    held_.claims = claims ?? held_.claims
    return held_
  }
  const settle = (hold: Hold, charge: bigint, tokens = 0) =>
    scripts.run(settleOperation(settlementOf(hold, { charge, tokens, kind: 'settle', notes: NOTES }, Date.now()), '', scripts.keys, LIMITS)) // prettier-ignore
  return { ledger, scripts, plans, account, sums, hold, settle }
}

t.test('a grant that two processes bring to the store counts once', { skip }, async t => {
  const { scripts, account, sums } = await planned(t)
  const own = scripts.keys.of(account).account
  const number = Number(await scripts.redis.hget(own, FIELDS.grants)) + 1
  const grant = operation('grant', account, { account: own }, { number, amount: 50n })
  const answers = await Promise.all([scripts.run(grant), scripts.run(grant)])
  t.same(answers.map(([kind]) => kind), ['ok', 'done']) // prettier-ignore
  t.equal((await sums()).balance, 1050)
})

t.test('a request that two operators refund at once is refunded once', { skip }, async t => {
  const { ledger, account, sums, hold, settle } = await planned(t)
  await settle(await hold(100n), 100n)
  await settle(await hold(40n), 40n)
  const [entry] = await ledger.reads.history({ account }, { count: 1 })
  t.match(entry, { charge: 40n })
  const refunds = [1, 2].map(() => ledger.accounts.credit(account, entry as NonNullable<typeof entry>, 'x'))
  t.same((await Promise.all(refunds)).map(({ credits }) => credits).toSorted(), [0n, 40n])
  t.equal((await sums()).balance, 1000)
})

t.test('what a plan has paid of a request that was reaped, it pays also when the end comes late', { skip }, async t => {
  const { ledger, scripts, sums, hold, settle } = await planned(t)
  const late = await hold(50n, 50n)
  await scripts.run(renewOperation(late, LEASE_MS, scripts.keys))
  const lease = leaseName(late, late.bucket)
  await scripts.redis.zadd(scripts.keys.of(late.account).leases, 'XX', 1, lease)
  t.same(await scripts.run(reapOperation(lease, scripts.keys)), ['reaped'])
  t.same(await sums(), { balance: 1000, used: 50, held: 0 })
  await settle(late, 90n)
  t.same(await sums(), { balance: 1000, used: 90, held: 0 }, 'the window has room for all of it')
  const { windows } = await ledger.reads.days.used(late, utcDay(Date.now()))
  t.equal(statesIn(windows).byPlace.get(0)?.used, 90n, 'and the day of its key counts it once')
})

t.test(
  'a hold that a torn file has lost takes its part of the plan again, and no credits for it',
  { skip },
  async t => {
    const { scripts, account, sums, hold } = await planned(t)
    const { keys, redis } = scripts
    const own = keys.of(account).account
    const before = await redis.hgetall(own)
    const running = await hold(80n)
    t.same(await sums(), { balance: 1000, used: 0, held: 80 })
    // The store has forgotten the hold.
    await redis.del(own, keys.hold(account, running.id))
    await redis.zrem(keys.of(account).leases, leaseName(running, running.bucket))
    await redis.hset(own, before)
    const asked = { amount: 80n, leaseMs: LEASE_MS, verdict: 'N', now: Date.now() } as const
    t.match(await scripts.run(extendOperation(running, asked, keys)), ['held', '80', '0'])
    t.same(await sums(), { balance: 1000, used: 0, held: 80 })
  },
)

t.test('a refund needs an open window of credits, where the plan has one', { skip }, async t => {
  const windows = [{ credits: '0.0000001', per: 'day' } as const, { requests: 5, per: 'week' } as const]
  const { ledger, plans, account, sums, hold, settle } = await planned(t, ...windows)
  const paid = await hold(50n)
  await settle(paid, 50n)
  const entry = (await ledger.reads.entry(paid.id, account)) as HistoryEntry
  await plans.reset({ account, id: 'day' }, 0)
  await settle(await hold(10n), 10n)
  await t.rejects(
    ledger.accounts.credit(account, entry, 'sorry'),
    { message: /in windows that are over/ },
    'the week would get a request back',
  )
  t.match(await ledger.accounts.credit(account, entry, 'sorry', { asCredits: true }), { credits: 50n, plan: 0n })
  t.match(await sums(), { balance: 1050, used: 10 })
})

t.test('what was used beyond a window is forgotten when an operator resets it', { skip }, async t => {
  const { plans, account, sums, hold, settle } = await planned(t, { tokens: 100, per: 'day' })
  await settle(await hold(1n), 1n, 150)
  t.equal((await sums()).used, 150)
  await plans.reset({ account, id: 'sorry' }, 0)
  await hold(1n)
  t.match(await sums(), { used: 0, held: 1 })
})

t.test('an audit finds what a window of any kind lacks or has too much, and corrects it', { skip }, async t => {
  const kinds: [string, WindowTerms][] = [
    ['of a day', { credits: '0.0000001', per: 'day' }],
    ['from the purchase on', { tokens: 100, per: '5h', anchor: 'purchase' }],
    ['from the first use on', { requests: 100, per: '5h', anchor: 'first use' }],
    ['of the last hours', { credits: '0.0000001', per: '5h' }],
  ]
  for (const [name, window] of kinds) {
    const { ledger, scripts, account, sums, hold, settle } = await planned(t, window)
    await settle(await hold(1n), 20n, 20)
    await settle(await hold(1n), 10n, 10)
    await hold(5n)
    const before = await sums()
    const text = (await scripts.redis.hget(scripts.keys.of(account).account, FIELDS.windows)) ?? ''
    const cut = text.search(/\d+$/)
    const damages: Partial<Record<string, string>> = {
      zero: `${text.slice(0, cut)}0`,
      more: `${text}1`,
      'no window': text.split(' ')[0] ?? '',
    }
    // It may have taken over what was used beyond the one before.
    if (window.anchor === 'first use') delete damages['more']
    t.same((await audit(ledger, [account])).drifts, [], `${name}: nothing is found`)
    for (const [damage, wrong] of Object.entries(damages)) {
      await scripts.redis.hset(scripts.keys.of(account).account, FIELDS.windows, wrong ?? '')
      const { drifts } = await audit(ledger, [account])
      t.match(drifts[0]?.findings, [/^window 1 of the plan: used = the sum of the claims of its entries: \d+ is not \d+$/], `${name}: ${damage}`) // prettier-ignore
      t.match(await compareWindows(ledger, account, true), [/^window 1/])
      t.equal((await sums()).used, before.used, `${name}: ${damage} is corrected`)
      if (damage !== 'no window') t.equal((await sums()).held, before.held, 'what is held stays')
      t.same((await audit(ledger, [account])).drifts, [])
    }
  }
})

t.test('an extra that is over is not given again with the next one', { skip }, async t => {
  const { ledger, plans, account } = await planned(t)
  await plans.add({ account, id: 'first' }, 0, '0.00000005')
  const extra = async () => (await plans.of(account))?.extras?.[0]?.amount
  t.equal(await extra(), '50')
  await plans.add({ account, id: 'second' }, 0, '0.00000005')
  t.equal(await extra(), '100', 'until then they add up')
  ledger.continuity.now = () => Date.now() + DAY_MS
  await plans.add({ account, id: 'third' }, 0, '0.00000005')
  t.equal(await extra(), '50')
})

t.test(
  'a balance that is filled from the records is not charged again when its latest exchanges are replayed',
  { skip },
  async t => {
    const { ledger, scripts, account, sums, hold, settle } = await planned(t)
    const { keys, redis } = scripts
    const ended = await hold(150n)
    await settle(ended, 150n)
    await ledger.background.archiver.runAll()
    const before = await sums()
    // The store has lost the balance, and what ended lately.
    await redis.del(keys.of(account).account, keys.outcomes(account, ended.bucket))
    const [known] = await ledger.records.accounts.withIds([account])
    await ledger.restorer.restoreAccount(known as NonNullable<typeof known>, 0)
    t.same(await sums(), before)
  },
)

t.test('a day is not filled without what a plan pays for a request that ends meanwhile', { skip }, async t => {
  const { ledger, scripts, hold, settle } = await planned(t)
  const running = await hold(50n)
  const record = scripts.keys.record(running)
  const { keys: records } = ledger.records
  const usedOn = records.usedOn.bind(records)
  records.usedOn = async (...args) => {
    records.usedOn = usedOn
    await settle(running, 50n)
    await hold(1n)
    return usedOn(...args)
  }
  const today = utcDay(Date.now())
  await ledger.reads.days.fillDay(running, today)
  t.equal(await scripts.redis.hget(record, FIELDS.keyWindows), null)
  const windows = await ledger.reads.days.fillDay(running, today)
  t.match(statesIn(windows).byPlace.get(0), { used: 50n, held: 1n })
  t.equal(await scripts.redis.hget(record, FIELDS.keyWindows), windows)
})

t.test('the day of a moved key is added up again when what ran on its plan before has ended', { skip }, async t => {
  const { ledger, scripts, hold, settle } = await planned(t)
  const running = await hold(50n)
  const key = String(running.key)
  const owner = { name: '', externalId: '', metadata: {}, credits: 1000n }
  const account = await new Balances(ledger, Date.now).create(owner)
  await new Keys(ledger, 0, Date.now).changes.move(key, account)
  const moved = { account, key }
  await ledger.reads.days.fillDay(moved, utcDay(Date.now()))
  const inStore = () => scripts.redis.hget(scripts.keys.record(moved), FIELDS.keyWindows)
  t.equal(statesIn(await inStore()).byPlace.get(0)?.used, 0n)
  await settle(running, 50n)
  await ledger.restorer.restore((await ledger.records.keys.get(key)) as RecordedKey)
  t.equal(await inStore(), null)
  const windows = await ledger.reads.days.fillDay(moved, utcDay(Date.now()))
  t.equal(statesIn(windows).byPlace.get(0)?.used, 50n)
})

t.test('a short page of entries is not taken for the last one', async t => {
  const ofOrdinals = (...ordinals: number[]) => ordinals.map(ordinal => ({ ordinal }) as HistoryEntry)
  const pages = [ofOrdinals(9, 8), ofOrdinals(5), []]
  const asked: number[] = []
  const read = async ({ before = Infinity }: HistoryRange) => {
    asked.push(before)
    return pages.shift() ?? []
  }
  const found = await Array.fromAsync(entriesBack(read, { last: 9, from: 0 }), ({ ordinal }) => ordinal)
  t.same(found, [9, 8, 5])
  t.same(asked, [10, 8, 5])
})
