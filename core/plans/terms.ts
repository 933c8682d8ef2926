/**
 * The terms of a plan: what it lets a customer use in each window, as gateway.yaml, the API and the records have them. Reading
 * them says what is wrong with them.
 */
import { IANAZone } from 'luxon'
import { duration } from '../lib/duration.ts'
import { MAX_AMOUNT, NANO, parseDecimal } from '../money/credits.ts'
import type { CalendarWindow, Period } from './calendar.ts'

/** One window as it is written. It counts one of credits, requests and tokens. */
export interface WindowTerms {
  /** A plain decimal. */
  readonly credits?: string | undefined
  readonly requests?: number | undefined
  readonly tokens?: number | undefined
  /** `day`, `week`, `month`, or a duration such as `5h`. */
  readonly per: string
  /** `purchase`, `first use`, or a time such as `08:00`, `Mon 08:00` or `15 08:00`. */
  readonly anchor?: string | undefined
  readonly zone?: string | undefined
  /** Ids of models, and groups of them. All models count if it is left out. */
  readonly models?: readonly string[] | undefined
}

/** A plan as it is written. */
export interface PlanTerms {
  readonly windows: readonly WindowTerms[]
  /** What happens when a window is used up: prepaid credits are used, or requests are refused. */
  readonly then: 'credits' | 'refuse'
  /** For how long the plan is valid from its purchase: a duration such as `30d`, or periods of the calendar such as `1 month`. */
  readonly until?: string | undefined
  /** How much of a token counts that was read from a cache: a plain decimal from 0 to 1. */
  readonly cachedInput?: string | undefined
}

/** What a window may count. */
export const UNITS = ['credits', 'requests', 'tokens'] as const
/** What a window counts. */
export type Unit = (typeof UNITS)[number]

/** When a window begins. */
export type Timing =
  | { readonly kind: 'calendar'; readonly calendar: CalendarWindow }
  | { readonly kind: 'purchase' | 'first use'; readonly period: Period }
  | { readonly kind: 'rolling'; readonly ms: number }

/** A window as it is used. */
export interface PlanWindow {
  readonly unit: Unit
  /** Nano-credits, requests or tokens. */
  readonly amount: bigint
  readonly per: string
  readonly timing: Timing
  /** Ids and groups of models. Undefined for all models. */
  readonly models: readonly string[] | undefined
}

/** Something that is wrong with terms, and where. */
export interface TermsProblem {
  readonly path: readonly (string | number)[]
  readonly message: string
  readonly hint?: string
}

/** Most windows of a plan. */
export const WINDOWS_MAX = 8

const DAY_MS = 86_400_000
/** The longest time of a plan or of a window, in milliseconds. */
const LONGEST_MS = 3660 * DAY_MS
/** The shortest window, in milliseconds. */
const SHORTEST_MS = 60_000

const CALENDAR = ['day', 'week', 'month'] as const
const WEEKDAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']

/** Reads a duration such as `5h` or `30d`, in milliseconds. Returns undefined for any other text, and for a duration of more than ten years. */
export function durationMs(text: string): number | undefined {
  const ms = duration(text)
  return ms > 0 && ms <= LONGEST_MS ? ms : undefined
}

/** Returns the period of a plan, and how many of them it is valid. Undefined for ever, and for what cannot be read. */
export function validityOf({
  until = '',
  windows,
}: PlanTerms): { readonly period: Period; readonly count: number } | undefined {
  const [, number, per] = /^([1-9]\d?) (day|week|month)s?$/.exec(until) ?? []
  const word = CALENDAR.find(each => each === per)
  // Its windows and the plan end together.
  if (word)
    return { period: { per: word, zone: windows.find(({ zone }) => zone)?.zone ?? 'UTC' }, count: Number(number) }
  const ms = durationMs(until)
  return ms === undefined ? undefined : { period: { ms }, count: 1 }
}

/** Reads windows. @param found gets what is wrong with them */
export function readWindows(terms: readonly WindowTerms[], found: TermsProblem[] = []): readonly PlanWindow[] {
  return terms.map((window, place) => {
    const problem = (member: string | undefined, message: string, hint?: string): void =>
      void found.push({
        path: ['windows', place, ...(member === undefined ? [] : [member])],
        message,
        ...(hint !== undefined && { hint }),
      })
    const units = UNITS.filter(unit => window[unit] !== undefined)
    const [unit = 'credits'] = units
    if (units.length !== 1)
      problem(undefined, 'expected one of credits, requests and tokens', '{ credits: 20, per: month }')
    return {
      unit,
      amount: amountOf(window, unit, problem),
      per: window.per,
      timing: timingOf(window, problem),
      models: window.models,
    }
  })
}

type Tell = (member: string | undefined, message: string, hint?: string) => void

function amountOf(window: WindowTerms, unit: Unit, problem: Tell): bigint {
  if (unit !== 'credits' || window.credits === undefined) return BigInt(window[unit] ?? 0)
  const amount = parseDecimal(window.credits)
  if (amount === undefined || amount === 0n || amount > MAX_AMOUNT) {
    problem('credits', 'expected a plain decimal above 0 with at most nine decimal places, such as 0.30')
    return 0n
  }
  return amount
}

function timingOf({ per, anchor, zone }: WindowTerms, problem: Tell): Timing {
  const calendar = CALENDAR.find(word => word === per)
  const ms = durationMs(per)
  if (zone !== undefined && !IANAZone.isValidZone(zone))
    problem('zone', `there is no time zone "${zone}"`, 'use a name such as Europe/Berlin')
  if (!calendar && (ms === undefined || ms < SHORTEST_MS)) {
    problem('per', 'expected day, week, month, or a duration from 1m to 3660d, such as 5h')
    return { kind: 'rolling', ms: DAY_MS }
  }
  const period = calendar ? { per: calendar, zone: zone ?? 'UTC' } : { ms: ms ?? 0 }
  if (!calendar && zone !== undefined) problem('zone', 'a window of a duration has no time zone', 'remove it')
  if (anchor === 'purchase' || anchor === 'first use') return { kind: anchor, period }
  if (!calendar) {
    if (anchor !== undefined)
      problem('anchor', 'expected purchase or first use', 'without an anchor, the window is the last hours')
    return { kind: 'rolling', ms: ms ?? 0 }
  }
  const begin = calendarWindow(calendar, anchor, zone)
  if (begin) return { kind: 'calendar', calendar: begin }
  const hint = `write purchase, first use, or a time like ${ANCHORS[calendar]}`
  problem('anchor', `"${anchor}" is no beginning of a ${calendar}`, hint)
  return { kind: 'rolling', ms: DAY_MS }
}

/** Examples of a time at which a window of a calendar begins. */
export const ANCHORS = { day: "'00:00'", week: "'Mon 00:00'", month: "'1 00:00'" } as const

/** Returns the windows of a calendar that begin at a time such as `08:00`, `Mon 08:00` or `15 08:00`. Undefined for another text. */
export function calendarWindow(per: CalendarWindow['per'], anchor = '00:00', zone = 'UTC'): CalendarWindow | undefined {
  const [, on, hour, minute] = /^(?:(\w+) )?([01]\d|2[0-3]):([0-5]\d)$/.exec(anchor) ?? []
  if (hour === undefined) return undefined
  const weekday = WEEKDAYS.indexOf(on ?? 'Mon') + 1
  const day = /^(?:[1-9]|1\d|2[0-8])$/.test(on ?? '1') ? Number(on ?? '1') : 0
  const fits = { day: on === undefined, week: weekday > 0, month: day > 0 }[per]
  if (!fits) return undefined
  const at = { per, zone, hour: Number(hour), minute: Number(minute) }
  return { ...at, weekday: per === 'week' ? weekday : 1, day: per === 'month' ? day : 1 }
}

/** Returns what is wrong with terms. */
export function problemsOf(terms: PlanTerms): readonly TermsProblem[] {
  const found: TermsProblem[] = []
  readWindows(terms.windows, found)
  if (terms.until !== undefined && validityOf(terms) === undefined)
    found.push({
      path: ['until'],
      message: 'expected 1 month, 2 weeks and the like, or a duration such as 30d, up to 3660d',
    })
  if (cachedWeight(terms) === undefined)
    found.push({ path: ['cachedInput'], message: 'expected a plain decimal from 0 to 1, such as 0.1' })
  return found
}

/** Returns how much of a token counts that was read from a cache, in nano-units. Undefined if that cannot be read. */
export function cachedWeight({ cachedInput }: PlanTerms): bigint | undefined {
  const weight = cachedInput === undefined ? NANO : parseDecimal(cachedInput)
  return weight === undefined || weight > NANO ? undefined : weight
}
