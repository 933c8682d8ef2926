import t from 'tap'
import { after, windowAt } from '../../core/plans/calendar.ts'
import { endOf, extendedEnd, newPlan, planFrom, usableAgainAt } from '../../core/plans/plan.ts'
import { windowViews } from '../../core/plans/state.ts'
import { timesOf } from '../../core/plans/times.ts'
import type { PlanTerms, WindowTerms } from '../../core/plans/terms.ts'
import { Place } from '../process.ts'

/** What ends first: a window, its plan or its key. */

const DAY_MS = 86_400_000
const terms = (until: string, ...windows: WindowTerms[]): PlanTerms => ({ windows, then: 'refuse', until })
const month = { credits: '20', per: 'month', anchor: 'purchase' }

t.test('a plan of a month gives its month once, on whatever day it is bought', t => {
  const times = (until: string, ...windows: WindowTerms[]): unknown =>
    timesOf(terms(until, ...windows)).map(({ least, most }) => [least, most])
  t.same(times('30d', month), [[1, 2]], 'bought on 30 January, it outlasts its first month')
  t.same(times('1 month', month), [[1, 1]])
  t.same(times('3 months', month), [[3, 3]])
  t.same(times('30d', { credits: '20', per: 'month' }), [[1, 3]], 'from 31 January to 2 March')
  t.same(times('1d', { requests: 5, per: 'day' }), [[2, 2]])
  t.same(times('1d', { requests: 5, per: 'day', anchor: 'purchase' }), [[1, 1]])
  t.same(times('7d', { requests: 5, per: 'week', anchor: 'purchase', zone: 'Europe/Berlin' }), [[1, 2]], 'a week with a change of clocks is shorter') // prettier-ignore
  t.same(times('1 week', { requests: 5, per: 'week', anchor: 'purchase', zone: 'Europe/Berlin' }), [[1, 1]])
  t.same(times('5h', { requests: 5, per: '5h', anchor: 'first use' }), [[1, 1]])
  t.same(times('30d', { requests: 5, per: 'day' }, { requests: 5, per: '5h' }), [], 'many windows are no surprise')
  t.end()
})

t.test('a plan that is extended by months ends as long after its purchase', t => {
  const at = Date.UTC(2027, 0, 31, 12)
  const own = terms('1 month', month)
  let plan = newPlan(own, at)
  const ends = [1, 2, 3, 4].map(() => {
    const end = plan.until ?? 0
    plan = { ...plan, until: extendedEnd(plan, own) }
    return new Date(end).toISOString().slice(0, 10)
  })
  t.same(ends, ['2027-02-28', '2027-03-31', '2027-04-30', '2027-05-31'])
  const moved = { ...plan, until: at + 5 * DAY_MS }
  t.equal(
    extendedEnd(moved, own),
    after(moved.until, { per: 'month', zone: 'UTC' }, 1),
    'an end that an operator has set',
  )
  t.equal(extendedEnd(moved, terms('30d', month)), moved.until + 30 * DAY_MS)
  t.equal(endOf({ windows: [], then: 'refuse' }, at), undefined)
  t.end()
})

t.test('nothing says that a window can be used again after its plan or its key has ended', t => {
  t.equal(usableAgainAt(10, undefined, undefined), 10)
  t.equal(usableAgainAt(10, { until: 10 }, undefined), undefined)
  t.equal(usableAgainAt(10, { until: 11 }, 12), 10)
  t.equal(usableAgainAt(10, { until: 20 }, 5), undefined)
  t.equal(usableAgainAt(undefined, undefined, undefined), undefined)
  const now = Date.now()
  const plan = planFrom(JSON.stringify(newPlan(terms('3d', { requests: 5, per: 'week', anchor: 'purchase' }, { requests: 5, per: 'day' }), now))) // prettier-ignore
  const again = (at: number, expiresAt?: number): unknown => windowViews(plan, null, at, expiresAt).map(({ resetsAt }) => resetsAt) // prettier-ignore
  const { until: tomorrow } = windowAt({ per: 'day', zone: 'UTC', weekday: 1, day: 1, hour: 0, minute: 0 }, now)
  t.same(again(now), [undefined, tomorrow])
  t.same(again(now, tomorrow - 1), [undefined, undefined])
  t.end()
})

t.test('check warns of a plan that may give more than its period, with what to write', async t => {
  const place = (plan: object): Place => new Place(t, file => file.set('keyTypes.famC.plan', plan))
  const { code, err } = await place({ windows: [{ credits: 20, per: 'month', anchor: 'purchase' }], until: '30d' }).run(
    'check',
  )
  t.match([code, err], [0, /keyTypes\.famC\.plan\.windows\[0\]: this window begins 1 to 2 times before the plan ends, by the day of purchase, so that a customer may use 20 to 40 credits[^]*write `until: 1 month`/]) // prettier-ignore
  const card = await place({ windows: [{ requests: 9, per: 'day' }], until: '1d' }).run('check')
  t.match(
    card.err,
    /begins 2 times before the plan ends[^]*may use 18 requests[^]*`anchor: purchase` here, and `until: 1 day`/,
  )
  t.notMatch((await place({ windows: [{ credits: 20, per: 'month', anchor: 'purchase' }], until: '1 month' }).run('check')).err, /begins/) // prettier-ignore
  t.match(await place({ windows: [{ credits: 20, per: 'month' }], until: '1 year' }).run('check'), { code: 78, err: /expected 1 month, 2 weeks and the like/ }) // prettier-ignore
})
