/** How often the windows of a plan begin before the plan ends, by the day of its purchase. */
import { after, usualMs, windowAt } from './calendar.ts'
import { endOf, periodOf } from './plan.ts'
import { type PlanTerms, type PlanWindow, readWindows, validityOf } from './terms.ts'

/** How often a window begins, and how often it should. */
export interface Times {
  readonly window: PlanWindow
  readonly place: number
  readonly expected: number
  readonly least: number
  readonly most: number
}

const DAY_MS = 86_400_000
/** The days of purchase: four years with their leap day, at noon. */
const [FIRST_DAY, DAYS] = [Date.UTC(2027, 0, 1, 12), 1461]
/** Windows that begin more often than this in a plan give hardly more by one more time. */
const FEW = 3

/** Returns how often each window of a plan begins, of those that begin a few times. None if the plan does not end. */
export function timesOf(terms: PlanTerms): readonly Times[] {
  const validity = validityOf(terms)
  if (!validity) return []
  const lengthMs = usualMs(validity.period) * validity.count
  const days = Array.from({ length: DAYS }, (_, day) => FIRST_DAY + day * DAY_MS)
  return readWindows(terms.windows).flatMap((window, place): Times[] => {
    const expected = Math.round(lengthMs / usualMs(periodOf(window)))
    if (expected > FEW || window.timing.kind === 'rolling') return []
    const begins = counterOf(window, days)
    const counts = days.map(at => begins(at, endOf(terms, at) ?? at))
    return [{ window, place, expected: Math.max(1, expected), least: Math.min(...counts), most: Math.max(...counts) }]
  })
}

/** Returns a function that counts how often a window begins between a purchase and an end. It has begun with the purchase. */
function counterOf(window: PlanWindow, days: readonly number[]): (at: number, ends: number) => number {
  const { timing } = window
  if (timing.kind !== 'calendar')
    return (at, ends) => {
      let count = 1
      while (after(at, periodOf(window), count) < ends) count++
      return count
    }
  const starts: number[] = []
  const last = (days.at(-1) ?? 0) + FEW * 2 * usualMs(timing.calendar)
  for (
    let start = windowAt(timing.calendar, days[0] ?? 0).until;
    start < last;
    start = windowAt(timing.calendar, start).until
  )
    starts.push(start)
  return (at, ends) => 1 + starts.filter(start => start > at && start < ends).length
}
