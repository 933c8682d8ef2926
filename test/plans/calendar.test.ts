/** The windows of plans: each moment belongs to one, whatever clocks and calendars do. */
import t from 'tap'
import { DateTime } from 'luxon'
import { after, lengthOf, type Period, type Span, windowAt, windowSince } from '../../core/plans/calendar.ts'
import { newPlan, planFrom, spanOf } from '../../core/plans/plan.ts'
import { problemsOf, readWindows, type WindowTerms } from '../../core/plans/terms.ts'
import { Random } from '../ledger/simulation.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Kathmandu', 'Australia/Lord_Howe', 'Pacific/Apia']
const PERS = ['day', 'week', 'month'] as const
const random = new Random(20_261_129)

/** A time between 2023 and 2033, with several leap days. */
function someTime(): number {
  return Date.UTC(2023, 0, 1) + random.below(10 * 365 * 24 * 60) * 60_000
}

/** Checks that windows cover the time without a gap, from one moment on. */
function covers(of: (now: number) => Span, from: number, count: number): string | undefined {
  let now = from
  for (let nth = 0; nth < count; nth++) {
    const { from: begin, until } = of(now)
    if (!(begin <= now && now < until)) return `${now} is not in its window of ${begin} to ${until}`
    const middle = of(begin + Math.floor((until - begin) / 2))
    const last = of(until - 1)
    if (middle.from !== begin || last.from !== begin) return `the window from ${begin} is not one`
    if (of(until).from !== until) return `the window from ${begin} is not followed at ${until}`
    now = until
  }
  return undefined
}

t.test('windows from a purchase follow each other, whatever the day of the month, leap days and clocks', t => {
  for (let nth = 0; nth < 12; nth++) {
    const at = someTime()
    const zone = ZONES[nth % ZONES.length] as string
    const period: Period =
      nth % 4 === 3 ? { ms: 60_000 + random.below(40 * DAY_MS) } : { per: PERS[nth % 3] as 'day', zone }
    const words = `${new Date(at).toISOString()} ${JSON.stringify(period)}`
    t.equal(
      covers(now => windowSince(at, period, now), at, 60),
      undefined,
      words,
    )
    const far = at + random.below(8 * 365) * DAY_MS
    const { from, until } = windowSince(at, period, far)
    t.ok(from <= far && far < until && until - from <= lengthOf(period) + HOUR_MS, `${words}, far away`)
  }
  t.end()
})

t.test('a month from a purchase ends on the same day, or on the last day of a shorter month', t => {
  const days = (at: string, count: number): string[] =>
    Array.from({ length: count }, (_, nth) =>
      new Date(after(Date.parse(at), { per: 'month', zone: 'UTC' }, nth + 1)).toISOString().slice(0, 10),
    )
  t.same(days('2027-01-31T10:00:00Z', 4), ['2027-02-28', '2027-03-31', '2027-04-30', '2027-05-31'])
  t.same(days('2028-01-30T10:00:00Z', 3), ['2028-02-29', '2028-03-30', '2028-04-30'])
  t.same(days('2028-02-29T10:00:00Z', 3), ['2028-03-29', '2028-04-29', '2028-05-29'])
  t.end()
})

t.test('a window from a purchase begins at the same local time, also when clocks are changed', t => {
  const zone = 'Europe/Berlin'
  const at = DateTime.fromISO('2027-03-20T09:30', { zone }).toMillis()
  for (let day = 0; day < 300; day++) {
    const { from } = windowSince(at, { per: 'day', zone }, at + day * DAY_MS + 12 * HOUR_MS)
    t.equal(DateTime.fromMillis(from, { zone }).toFormat('HH:mm'), '09:30')
  }
  t.end()
})

t.test('windows of a calendar cover the time in every zone', t => {
  for (let nth = 0; nth < 12; nth++) {
    const calendar = {
      per: PERS[nth % 3] as 'day',
      zone: ZONES[nth % ZONES.length] as string,
      weekday: 1 + random.below(7),
      day: 1 + random.below(28),
      hour: random.below(24),
      minute: random.below(60),
    }
    // The latest window of an object is remembered, so each question has an object of its own.
    t.equal(
      covers(now => windowAt({ ...calendar }, now), someTime(), 60),
      undefined,
      JSON.stringify(calendar),
    )
  }
  t.end()
})

t.test('a clock that jumps back or ahead finds the window that it would have found then', t => {
  const plan = planFrom(
    JSON.stringify(newPlan({ then: 'refuse', windows: [{ requests: 1, per: 'month', anchor: 'purchase' }, { requests: 1, per: 'week', anchor: 'Mon 08:00', zone: 'Europe/Berlin' }] }, someTime())), // prettier-ignore
  )
  for (let nth = 0; nth < 50; nth++) {
    const now = plan.at + random.below(5 * 365 * 24) * HOUR_MS
    for (const place of [0, 1]) {
      const span = spanOf(plan, place, now)
      t.ok(span && span.from <= now && now < span.until)
      t.same(spanOf(plan, place, span?.from ?? 0), span)
    }
  }
  t.end()
})

t.test('a window that was reset by hand begins there, and ends as it would have', t => {
  const at = Date.parse('2027-01-10T00:00:00Z')
  const terms = { then: 'refuse', windows: [{ requests: 5, per: 'day' }] } as const
  const reset = at + 6 * HOUR_MS
  const plan = planFrom(JSON.stringify({ ...newPlan(terms, at), resets: { 0: reset } }))
  t.same(spanOf(plan, 0, at + 7 * HOUR_MS), { from: reset, until: at + DAY_MS })
  t.same(spanOf(plan, 0, at + 25 * HOUR_MS), { from: at + DAY_MS, until: at + 2 * DAY_MS })
  t.end()
})

t.test('terms that cannot be used are reported with their place', t => {
  const wrong: readonly (readonly [WindowTerms, RegExp])[] = [
    [{ per: 'day' }, /one of credits, requests and tokens/],
    [{ per: 'day', credits: '1', requests: 1 }, /one of credits, requests and tokens/],
    [{ per: 'year', credits: '1' }, /expected day, week, month, or a duration/],
    [{ per: '30s', credits: '1' }, /expected day, week, month, or a duration/],
    [{ per: '5h', credits: '1', anchor: '08:00' }, /expected purchase or first use/],
    [{ per: '5h', credits: '1', zone: 'UTC' }, /no time zone/],
    [{ per: 'day', credits: '1', zone: 'Europe/Berln' }, /there is no time zone/],
    [{ per: 'day', credits: '1', anchor: 'Mon 08:00' }, /no beginning of a day/],
    [{ per: 'week', credits: '1', anchor: '15 08:00' }, /no beginning of a week/],
    [{ per: 'month', credits: '1', anchor: '31 08:00' }, /no beginning of a month/],
    [{ per: 'day', credits: '1', anchor: '25:00' }, /no beginning of a day/],
    [{ per: 'day', credits: '1.0000000001' }, /plain decimal/],
    [{ per: 'day', credits: '10000000' }, /plain decimal/],
  ]
  for (const [window, message] of wrong) {
    const [found, ...others] = problemsOf({ windows: [window], then: 'refuse' })
    t.same(others, [], 'one mistake is one problem')
    t.match(found?.message ?? '', message, JSON.stringify(window))
    t.same(found?.path.slice(0, 2), ['windows', 0])
  }
  t.match(problemsOf({ windows: [], then: 'refuse', until: '1 year' })[0], { path: ['until'] })
  t.match(problemsOf({ windows: [], then: 'refuse', cachedInput: '1.5' })[0], { path: ['cachedInput'] })
  t.end()
})

t.test('terms are read as they are meant', t => {
  const [month, hours, week, session] = readWindows([
    { credits: '20', per: 'month', anchor: 'purchase' },
    { credits: '5', per: '5h' },
    { requests: 500, per: 'week', anchor: 'Mon 08:00', zone: 'Europe/Berlin', models: ['large'] },
    { tokens: 1_000_000, per: '5h', anchor: 'first use' },
  ])
  t.match(month, { unit: 'credits', amount: 20_000_000_000n, timing: { kind: 'purchase', period: { per: 'month' } } })
  t.match(hours, { timing: { kind: 'rolling', ms: 5 * HOUR_MS } })
  t.match(week, { unit: 'requests', amount: 500n, models: ['large'], timing: { calendar: { weekday: 1, hour: 8 } } })
  t.match(session, { unit: 'tokens', timing: { kind: 'first use', period: { ms: 5 * HOUR_MS } } })
  t.end()
})
