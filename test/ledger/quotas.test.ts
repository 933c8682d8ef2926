import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import type { Quota } from '../../core/config/config.ts'
import { type CalendarWindow, windowAt } from '../../core/plans/calendar.ts'
import type { HoldAnswer } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { quotaAccount } from '../../core/ledger/quotas.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { timedId } from '../../core/lib/ids.ts'
import { expireHolds, startGateway, until } from '../gateway.ts'

const CALENDAR: CalendarWindow = { per: 'day', zone: 'UTC', weekday: 1, day: 1, hour: 0, minute: 0 }
const NOTES = { endpoint: '/x', model: 'm', stream: true }

/** Returns the window of a local time, as local times with their distances from UTC, and its hours. */
function windowOf(calendar: Partial<CalendarWindow>, at: string): string {
  const { from, until } = windowAt({ ...CALENDAR, ...calendar }, Date.parse(at))
  return `${new Date(from).toISOString().slice(0, 16)} ${(until - from) / 3_600_000}`
}

t.test('windows begin at the same local time, also when clocks are changed', t => {
  const zone = 'Europe/Berlin'
  for (const [calendar, at, expected] of [
    [{}, '2026-11-26T23:59:59Z', '2026-11-26T00:00 24'],
    [{ per: 'week' }, '2026-11-26T12:00:00Z', '2026-11-23T00:00 168'],
    [{ per: 'week', weekday: 4, hour: 12 }, '2026-11-26T11:59:59Z', '2026-11-19T12:00 168'],
    [{ per: 'week', weekday: 4, hour: 12 }, '2026-11-26T12:00:00Z', '2026-11-26T12:00 168'],
    [{ per: 'week', zone }, '2026-03-28T12:00:00Z', '2026-03-22T23:00 167'],
    [{ per: 'week', zone }, '2026-10-25T12:00:00Z', '2026-10-18T22:00 169'],
    [{ zone }, '2026-03-29T12:00:00Z', '2026-03-28T23:00 23'],
    [{ zone }, '2026-10-25T12:00:00Z', '2026-10-24T22:00 25'],
    // There is no half past two on this day.
    [{ zone, hour: 2, minute: 30 }, '2026-03-29T12:00:00Z', '2026-03-29T01:30 23'],
    [{ per: 'month' }, '2026-02-28T23:59:59Z', '2026-02-01T00:00 672'],
    [{ per: 'month', day: 15, hour: 8, zone: 'America/New_York' }, '2026-03-14T00:00:00Z', '2026-02-15T13:00 671'],
    [{ zone: 'Asia/Kathmandu' }, '2026-11-26T18:14:59Z', '2026-11-25T18:15 24'],
  ] as const)
    t.equal(windowOf(calendar, at), expected, JSON.stringify([calendar, at]))
  // Each moment belongs to one window.
  const calendar = { ...CALENDAR, zone, hour: 2, minute: 30 }
  let next = Date.parse('2026-03-25T00:00:00Z')
  for (let days = 0; days < 400; days++) {
    const { from, until: end } = windowAt({ ...calendar }, next)
    t.ok(from <= next && next < end)
    t.same(windowAt({ ...calendar }, end - 1), { from, until: end })
    next = end
  }
  t.end()
})

interface Scene {
  readonly ledger: Ledger
  readonly hold: (amount: bigint, least?: bigint, sharer?: string) => Promise<HoldAnswer>
  readonly charge: (amount: bigint, sharer?: string) => Promise<void>
  readonly used: () => Promise<bigint>
  readonly share: (key: string) => Promise<string>
}

async function scene(t: Test, quota: Quota): Promise<Scene> {
  const { ledger } = (await startGateway(t)).gateway
  const hold = (amount: bigint, least = amount, sharer?: string): Promise<HoldAnswer> =>
    ledger.hold({
      account: quotaAccount('u/1', quota),
      id: timedId(Date.now()),
      amount,
      least,
      version: '',
      quota,
      sharer,
      notes: NOTES,
      floor: () => ({ charge: 3n, notes: {} }),
    })
  return {
    ledger,
    hold,
    charge: async (amount, sharer) => {
      const answer = await hold(10n, 1n, sharer)
      if (answer.kind !== 'held') throw new Error(answer.kind)
      ledger.settle(answer.hold, { charge: amount, kind: 'settle', notes: NOTES })
      await ledger.scripts.answered()
    },
    share: async key => {
      const { limit, used } = await ledger.reads.quotaShare('u/1', quota, key, Date.now())
      return `${used} of ${limit}`
    },
    used: async () => (await ledger.reads.quotaUsed('u/1', quota, Date.now())).used,
  }
}

/** Moves the window of a quota of a calendar to another day. */
async function beginsAt(redis: Redis, account: string, from: number): Promise<void> {
  const text = (await redis.hget(account, FIELDS.windows)) ?? ''
  const moved = text.replace(/:\d+:\d+(:\d+:\d+)$/, (_, rest: string) => `:${from}:${from + 86_400_000}${rest}`)
  await redis.hset(account, FIELDS.windows, moved)
}

t.test('a quota of a calendar is granted anew in the next window, less what is held', async t => {
  const quota = { name: 'day', amount: 100n, window: CALENDAR, unit: 'credits' as const, fairShare: false }
  const { ledger, hold, charge, used } = await scene(t, quota)
  await charge(60n)
  t.equal(await used(), 60n)
  const running = await hold(30n)
  t.equal(running.kind, 'held')
  t.match(await hold(20n), { kind: 'busy' }, 'it would be served after the running request')
  t.match(await hold(50n, 41n), { kind: 'insufficient', balance: 10n })
  // As if all this had been yesterday.
  const { redis, keys } = ledger.scripts
  const { account } = keys.of(quotaAccount('u/1', quota))
  const today = windowAt(CALENDAR, Date.now()).from
  await beginsAt(redis, account, today - 86_400_000)
  t.equal(await used(), 30n)
  t.equal((await hold(70n)).kind, 'held')
  t.match(await hold(1n), { kind: 'busy' })
  // The store knows a window that began later.
  await beginsAt(redis, account, today + 1)
  t.match(await hold(1n), { kind: 'busy' })
})

t.test('a hold that was voided is not extended', async t => {
  const quota = { name: 'day', amount: 1000n, window: CALENDAR, unit: 'credits' as const, fairShare: false }
  const { ledger, hold, used } = await scene(t, quota)
  const answer = await hold(100n)
  if (answer.kind !== 'held') throw new Error(answer.kind)
  ledger.settle(answer.hold, { charge: 0n, kind: 'void', notes: NOTES })
  t.equal(await ledger.extend(answer.hold, 200n), 'over')
  t.equal(await used(), 0n)
})

t.test('what was used in a rolling window comes back when it is over', async t => {
  const quota = { name: '6s', amount: 100n, window: { rollingMs: 6000 }, unit: 'credits' as const, fairShare: false }
  const { ledger, hold, charge, used } = await scene(t, quota)
  await charge(60n)
  await charge(30n)
  t.equal(await used(), 90n)
  const refused = await hold(20n)
  t.match(refused, { kind: 'insufficient', balance: 10n })
  const waitMs = refused.kind === 'insufficient' ? refused.resetsAt - Date.now() : 0
  t.ok(waitMs > 0 && waitMs <= 6200, String(waitMs))
  await until(async () => (await used()) === 0n)
  t.equal((await hold(100n)).kind, 'held')
  t.match(await hold(1n), { kind: 'busy' })

  t.comment('A hold whose gateway died counts what was delivered.')
  const account = quotaAccount('u/1', quota)
  await ledger.background.archiveAll()
  for (const lease of await ledger.scripts.redis.zrange(ledger.scripts.keys.of(account).leases, '0', '-1'))
    await ledger.scripts.run({
      name: 'renew',
      account,
      keys: [
        ledger.scripts.keys.of(account).account,
        ledger.scripts.keys.hold(account, lease.split(' ')[1] ?? ''),
        ledger.scripts.keys.of(account).leases,
        ledger.scripts.keys.of(account).shares,
      ],
      args: [lease, lease.split(' ')[1] ?? '', '3', '60000', '', '', '[1]', '0'],
    })
  await expireHolds(ledger, account)
  await ledger.background.reap()
  t.equal(await used(), 3n)
  await until(async () => (await used()) === 0n)
  t.equal((await hold(100n)).kind, 'held')
})

/** Moves the beginning of the shares of keys, as if they had asked earlier. */
async function shiftShares(ledger: Ledger, quota: Quota, ms: number): Promise<void> {
  const { redis, keys } = ledger.scripts
  const { shares } = keys.of(quotaAccount('u/1', quota))
  for (const [key, text] of Object.entries(await redis.hgetall(shares)))
    await redis.hset(
      shares,
      key,
      text.replace(/^\d+/, began => String(Number(began) - ms)),
    )
}

t.test('one key cannot use up a quota that is shared fairly', async t => {
  // A window of a million hours, so that nothing of it passes during the test.
  const quota = {
    name: '1000000h',
    amount: 1200n,
    window: { rollingMs: 3_600_000_000_000 },
    unit: 'credits' as const,
    fairShare: true,
  }
  const { ledger, hold, charge, share } = await scene(t, quota)
  t.equal(await share('a'), '0 of 600', 'a share is kept for a key that has not asked')

  t.comment('Half of what others have not used is lent.')
  await charge(600n, 'a')
  t.equal(await share('a'), '600 of 600')
  t.match(await hold(550n, 550n, 'new'), { kind: 'insufficient', ofShare: true }, 'nothing is held')
  t.match(await hold(301n, 301n, 'a'), { kind: 'insufficient', balance: 600n, ofShare: true })
  const lent = await hold(400n, 1n, 'a')
  t.match(lent, { kind: 'held', hold: { amount: 300n } })

  t.comment('It comes back when it was not spent, and a new key gets what is left.')
  if (lent.kind === 'held') ledger.settle(lent.hold, { charge: 0n, kind: 'void', notes: NOTES })
  await charge(100n, 'b')
  t.equal(await share('b'), '100 of 400')
  t.equal(await share('a'), '600 of 400')
  t.match(await hold(200n, 200n, 'a'), { kind: 'insufficient', balance: 500n, ofShare: true })
  const many = await Promise.all(Array.from({ length: 50 }, () => hold(10n, 10n, 'b')))
  t.equal(many.filter(({ kind }) => kind === 'held').length, 30, 'the whole share, and no more at once')
  t.match(await hold(1n, 1n, 'c'), { kind: 'held' })

  t.comment('A hold that grows counts, and so does one whose gateway died.')
  const [first] = many
  if (first?.kind === 'held') await ledger.extend(first.hold, 60n)
  t.equal(await share('b'), '450 of 300')
  const account = quotaAccount('u/1', quota)
  await expireHolds(ledger, account)
  await ledger.background.reap()
  t.equal(await share('b'), '100 of 300')
})

t.test('what a calendar window keeps for others is lent as the window passes', async t => {
  const quota = { name: 'day', amount: 3_000_000_000n, window: CALENDAR, unit: 'credits' as const, fairShare: true }
  const { ledger, hold, charge, share } = await scene(t, quota)
  await charge(1n, 'b')
  const { from, until: ends } = windowAt(CALENDAR, Date.now())
  /** What a key may hold at a moment of which the other keys have used nothing to speak of. */
  const most = (shares: number, at: number): number => {
    const each = Number(quota.amount) / shares
    return each + (Number(quota.amount) - each) * ((at - from) / (ends - from))
  }
  const [before, answer, after] = [Date.now(), await hold(quota.amount, 1n, 'a'), Date.now()]
  if (answer.kind !== 'held') throw new Error(answer.kind)
  t.ok(Number(answer.hold.amount) >= most(3, before) - 10, `${answer.hold.amount} of ${most(3, before)}`)
  t.ok(Number(answer.hold.amount) <= most(3, after) + 10, `${answer.hold.amount} of ${most(3, after)}`)
  ledger.settle(answer.hold, { charge: 5n, kind: 'settle', notes: NOTES })
  t.match(await share('a'), '5 of 1000000000')

  t.comment('In the next window both keep their shares. In the one after it, only those who asked.')
  await shiftShares(ledger, quota, ends - from)
  t.match(await share('a'), '0 of 1000000000')
  t.match(await hold(1_000_000_000n, 1_000_000_000n, 'a'), { kind: 'held' })
  await shiftShares(ledger, quota, ends - from)
  t.match(await hold(1_500_000_000n, 1n, 'a'), { kind: 'held' })
  t.match(await share('a'), / of 1500000000$/, 'the other key has none any more')
})

t.test('what is charged after the end of a window counts in the next one, for the quota and for the share', async t => {
  const quota = { name: 'day', amount: 1000n, window: CALENDAR, unit: 'credits' as const, fairShare: true }
  const { ledger, hold, charge, share } = await scene(t, quota)
  const running = await hold(100n, 100n, 'a')
  // The next day begins, and another key is the first to ask.
  const { redis, keys } = ledger.scripts
  const names = keys.of(quotaAccount('u/1', quota))
  await beginsAt(redis, names.account, windowAt(CALENDAR, Date.now()).from - 86_400_000)
  await shiftShares(ledger, quota, 86_400_000)
  await charge(1n, 'b')
  t.equal(await share('a'), '100 of 333', 'what runs counts')
  if (running.kind === 'held') {
    await ledger.extend(running.hold, 200n)
    ledger.settle(running.hold, { charge: 300n, kind: 'settle', notes: NOTES })
  }
  await ledger.scripts.answered()
  t.equal(await share('a'), '300 of 333')
})

t.test('keys that asked long ago have no share any more', async t => {
  const quota = { name: 'day', amount: 1000n, window: CALENDAR, unit: 'credits' as const, fairShare: true }
  const { ledger, charge, share } = await scene(t, quota)
  for (let nth = 0; nth < 8; nth++) await charge(1n, `old_${nth}`)
  t.equal(await share('new'), '0 of 100')
  await shiftShares(ledger, quota, 3 * 86_400_000)
  t.equal(await share('new'), '0 of 500')
})

t.test('of more than a hundred keys, what they leave is known', async t => {
  const quota = {
    name: '1000000h',
    amount: 1_000_000n,
    window: { rollingMs: 3_600_000_000_000 },
    unit: 'credits' as const,
    fairShare: true,
  }
  const { hold, charge, share } = await scene(t, quota)
  for (let nth = 0; nth < 199; nth++) await charge(1n, `key_${nth}`)
  t.equal(await share('greedy'), '0 of 4975')
  const lent = await hold(1_000_000n, 1n, 'greedy')
  // Half of what 199 keys and a new one have not used.
  const most = 1_000_000n - 199n - (199n * 4974n + 4975n + 1n) / 2n - 4975n / 2n
  t.match(lent, { kind: 'held' })
  if (lent.kind !== 'held') return
  t.ok(lent.hold.amount <= 1_000_000n - 199n - (199n * 4974n) / 2n, String(lent.hold.amount))
  t.ok(lent.hold.amount >= most, String(most))
  t.match(await hold(10_000n, 10_000n, 'greedy'), { kind: 'insufficient', ofShare: true })
  t.match(await hold(4974n, 4974n, 'key_7'), { kind: 'held' })
})

t.test('a refusal by a rolling quota says when enough of it comes back', async t => {
  const hours = 3_600_000
  const quota = {
    name: '60h',
    amount: 100n,
    window: { rollingMs: 60 * hours },
    unit: 'credits' as const,
    fairShare: false,
  }
  const { ledger, hold, charge } = await scene(t, quota)
  await charge(70n)
  // 20 hours pass.
  const { redis, keys } = ledger.scripts
  const { account } = keys.of(quotaAccount('u/1', quota))
  const part = Math.floor(Date.now() / hours)
  const text = (await redis.hget(account, FIELDS.windows)) ?? ''
  await redis.hset(account, FIELDS.windows, text.replace(`${part}=`, `${part - 20}=`))
  await charge(25n)
  const after = async (amount: bigint): Promise<number> => {
    const answer = await hold(amount)
    return answer.kind === 'insufficient' ? answer.resetsAt / hours - part : 0
  }
  t.equal(await after(6n), 40)
  t.equal(await after(75n), 40)
  t.equal(await after(76n), 60)
})
