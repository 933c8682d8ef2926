/** The plan of a balance: its terms, when it was bought, and what an operator has changed by hand. */
import { hash } from 'node:crypto'
import { lru } from '../lib/lru.ts'
import { after, lengthOf, partMs, type Period, type Span, windowAt, windowSince } from './calendar.ts'
import { isListed } from './listed.ts'
import {
  cachedWeight,
  type PlanTerms,
  type PlanWindow,
  readWindows,
  UNITS,
  validityOf,
  type WindowTerms,
} from './terms.ts'

/** A plan as the records and the store have it, as JSON. */
export interface StoredPlan {
  /** Counts the changes. */
  readonly version: number
  readonly terms: PlanTerms
  /** When it was bought, in milliseconds since the epoch. */
  readonly at: number
  /** When it ends. Left out for never. */
  readonly until?: number | undefined
  /** The key type that it was copied from, and the digest of the terms there. Left out for terms of its own. */
  readonly type?: string | undefined
  readonly of?: string | undefined
  /** When a renewal was recorded last. */
  readonly renewedAt?: number | undefined
  /** When a window was reset by hand, by its place. */
  readonly resets?: Readonly<Record<string, number>> | undefined
  /** By the place of a window, until when that ends: what was added by hand, and what was used before an import. */
  readonly extras?: Readonly<Record<string, Extra>> | undefined
}

/** How a window differs from others of its plan until it begins anew. Amounts are in its unit. */
export interface Extra {
  /** What was added by hand. */
  readonly amount: string
  /** What was used before an import. */
  readonly before?: string | undefined
  readonly until: number
}

/** A plan as it is used. */
export interface Plan extends StoredPlan {
  readonly windows: readonly PlanWindow[]
  /** Changes with what its windows count and when they begin. */
  readonly shape: string
  /** The place of its widest window that begins anew, by which the plan renews. Undefined if it has only the last hours. */
  readonly widest: number | undefined
  /** How much of a cached token counts, in nano-units. */
  readonly cached: bigint
}

const plans = lru<string, Plan>(10_000)

/** Reads a plan. The same text gives the same plan. */
export function planFrom(text: string): Plan {
  let plan = plans.get(text)
  if (!plan) plans.set(text, (plan = read(JSON.parse(text) as StoredPlan)))
  return plan
}

function read(stored: StoredPlan): Plan {
  const { terms, at } = stored
  const windows = readWindows(terms.windows)
  return {
    ...stored,
    windows,
    shape: hash('sha256', JSON.stringify([at, terms.windows.map(countedBy)])).slice(0, 8),
    widest: widestOf(windows),
    cached: cachedWeight(terms) ?? 0n,
  }
}

/** Returns what a window counts and when, other than how much: windows with the same text are the same window. */
export function countedBy(window: WindowTerms): string {
  const { per, anchor, zone, models } = window
  return JSON.stringify({ unit: UNITS.find(unit => window[unit] !== undefined), per, anchor, zone, models })
}

/** Returns the digest of terms, by which a change of them is noticed. */
export function digestOf(terms: PlanTerms): string {
  return hash('sha256', JSON.stringify(terms)).slice(0, 16)
}

/** Returns a new plan. @param at when it is bought */
export function newPlan(terms: PlanTerms, at: number, type?: string): StoredPlan {
  const until = endOf(terms, at)
  return {
    version: 1,
    terms,
    at,
    ...(until !== undefined && { until }),
    ...(type !== undefined && { type, of: digestOf(terms) }),
  }
}

/** Returns when a plan ends that is bought at a time. Undefined for never. */
export function endOf(terms: PlanTerms, at: number): number | undefined {
  const validity = validityOf(terms)
  return validity && after(at, validity.period, validity.count)
}

/** Returns when a plan ends that is extended by one validity of these terms. Months count from its purchase. */
export function extendedEnd({ at, until = at }: StoredPlan, terms: PlanTerms): number | undefined {
  const validity = validityOf(terms)
  if (!validity) return undefined
  const { period, count } = validity
  if ('ms' in period) return until + period.ms
  const since = windowSince(at, period, until)
  for (let nth = 1; since.from === until && nth <= 1200; nth++)
    if (after(at, period, nth) === until) return after(at, period, nth + count)
  return after(until, period, count)
}

/** Returns when a window can be used again: when it begins anew, unless its plan or its key ends before. Undefined for never. */
export function usableAgainAt(
  resetsAt: number | undefined,
  plan: Pick<StoredPlan, 'until'> | undefined,
  expiresAt: number | undefined,
): number | undefined {
  const ends = Math.min(plan?.until ?? Infinity, expiresAt ?? Infinity)
  return resetsAt !== undefined && resetsAt < ends ? resetsAt : undefined
}

/** The period of a window, or of the last hours. */
export function periodOf({ timing }: PlanWindow): Period {
  if (timing.kind === 'calendar') return timing.calendar
  return timing.kind === 'rolling' ? { ms: timing.ms } : timing.period
}

function widestOf(windows: readonly PlanWindow[]): number | undefined {
  let widest: number | undefined
  for (const [place, window] of windows.entries())
    if (
      window.timing.kind !== 'rolling' &&
      (widest === undefined || lengthOf(periodOf(window)) > lengthOf(periodOf(windows[widest] as PlanWindow)))
    )
      widest = place
  return widest
}

/** Whether a plan is valid at a time. */
export function isValid({ until }: Pick<Plan, 'until'>, now: number): boolean {
  return until === undefined || now < until
}

/** Returns the time of a window, as it would be if it began with a use now. Undefined for the last hours. */
export function spanOf(plan: Plan, place: number, now: number): Span | undefined {
  const { timing } = plan.windows[place] as PlanWindow
  const reset = plan.resets?.[place]
  switch (timing.kind) {
    case 'calendar':
      return since(reset, windowAt(timing.calendar, now))
    case 'purchase':
      return since(reset, windowSince(plan.at, timing.period, now))
    case 'first use':
      return { from: reset ?? plan.at, until: after(now, timing.period, 1) }
    case 'rolling':
      return undefined
  }
}

/** A window that was reset by hand begins there. */
function since(reset: number | undefined, { from, until }: Span): Span {
  return { from: reset !== undefined && reset > from && reset < until ? reset : from, until }
}

/** Returns the limit of a window as people see it, and what of it was used before an import. */
export function limitIn(plan: Plan, place: number, now: number): { readonly limit: bigint; readonly before: bigint } {
  const { amount } = plan.windows[place] as PlanWindow
  const { amount: more, before } = extraIn(plan, place, now)
  return { limit: amount + BigInt(more), before: BigInt(before ?? 0) }
}

const NO_EXTRA: Extra = { amount: '0', until: 0 }

/** Returns how a window differs from others of its plan now. */
export function extraIn({ extras }: Pick<StoredPlan, 'extras'>, place: number, now: number): Extra {
  const extra = extras?.[place]
  return extra && now < extra.until ? extra : NO_EXTRA
}

/** The kinds of windows, as the script names them. */
export const KINDS = { calendar: 'c', purchase: 'c', 'first use': 'u', rolling: 'r' } as const

/**
 * Returns the windows of a plan that count a model, as the script asks for them; '' if none does. The plan may have ended.
 * @param ids by which the model may be listed
 * @param groups the groups of models
 * @param now by the store's clock
 */
export function askedOf(
  plan: Plan,
  ids: readonly string[],
  groups: ReadonlyMap<string, ReadonlySet<string>>,
  now: number,
): string {
  const asked: string[] = []
  for (const [place, window] of plan.windows.entries()) {
    const { models, unit, timing } = window
    if (models && !isListed(models, ids, groups)) continue
    const span = spanOf(plan, place, now)
    const [from, ends] = span
      ? [span.from, span.until]
      : [plan.resets?.[place] ?? 0, partMs(timing.kind === 'rolling' ? timing.ms : 0)]
    const { limit, before } = limitIn(plan, place, now)
    asked.push(`${place}:${unit[0]}:${KINDS[timing.kind]}:${limit - before}:${from}:${ends}`)
  }
  return asked.length === 0 ? '' : [plan.shape, ...asked].join(' ')
}
