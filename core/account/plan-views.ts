/** Plans and limits as customers and their tools see them. */
import type { Key } from '../keys/keys.ts'
import type { Limits } from '../ledger/allowance.ts'
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import { lengthOf, type Span } from '../plans/calendar.ts'
import { type KeyLimits, limitedDay } from '../plans/limits.ts'
import { ratesNow } from '../plans/rates.ts'
import { isValid, periodOf, type Plan } from '../plans/plan.ts'
import { dayUsed, renewsAt, type WindowView, windowViews } from '../plans/state.ts'

/** A plan as of now. */
export interface PlanStanding {
  readonly plan: Plan
  readonly windows: readonly WindowView[]
  /** Whether a window that counts every model is used up. */
  readonly isUsedUp: boolean
  /** When it can be used again if it is used up, and otherwise when its widest window begins anew. Undefined for never. */
  readonly resetsAt: number | undefined
  /** The widest window, and the one of credits; the one of credits that has the least left. Of those that count every model. */
  readonly widest: WindowView | undefined
  readonly widestOfCredits: WindowView | undefined
  readonly tightestOfCredits: WindowView | undefined
}

/** Returns how a key's plan stands. Undefined if it has none, or if it has ended. */
export function planStanding(
  { plan, expiresAt }: Pick<Key, 'plan' | 'expiresAt'>,
  text: string | null | undefined,
  now: number,
): PlanStanding | undefined {
  if (!plan || !isValid(plan, now)) return undefined
  const windows = windowViews(plan, text, now, expiresAt)
  const general = windows.filter(({ window }) => window.models === undefined)
  const byLength = [...general].sort((one, other) => lengthOfView(other) - lengthOfView(one))
  const ofCredits = byLength.filter(({ window }) => window.unit === 'credits')
  const full = general.filter(({ left }) => left === 0n)
  const againAt = full.every(({ resetsAt }) => resetsAt !== undefined)
    ? Math.max(...full.map(({ resetsAt = 0 }) => resetsAt))
    : undefined
  const [tightest] = [...ofCredits].sort((one, other) => (one.left < other.left ? -1 : 1))
  return {
    plan,
    windows,
    isUsedUp: full.length > 0,
    resetsAt: full.length > 0 ? againAt : byLength[0]?.resetsAt,
    widest: byLength[0],
    widestOfCredits: ofCredits[0],
    tightestOfCredits: tightest,
  }
}

function lengthOfView({ window }: WindowView): number {
  return lengthOf(periodOf(window))
}

const RESETS: Readonly<Record<string, string>> = { day: 'daily', week: 'weekly', month: 'monthly' }

/** Returns how often the limit of a key begins anew, as key tools name it: that of its widest window of credits. Null for never. */
export function resetWord(standing: PlanStanding | undefined): string | null {
  const { per } = standing?.widestOfCredits?.window ?? {}
  return (per !== undefined && RESETS[per]) || null
}

const NAMES: Readonly<Record<string, string>> = { day: '1d', week: '7d' }

/** Names a window as tools do, such as `5h`, `1d` or `7d`. */
export function windowLabel({ per }: WindowView['window']): string {
  return NAMES[per] ?? per
}

/** Returns a number of a window's unit for display: credits, requests or tokens. */
export function shownNumber(unit: WindowView['window']['unit'], number: bigint): number {
  return unit === 'credits' ? Number(formatCredits(number)) : Number(number)
}

/** Returns a window as customers see it. */
export function shownWindow(view: WindowView): Record<string, unknown> {
  const { window, limit, used, held, left, from, resetsAt } = view
  const { unit, models } = window
  return {
    window: windowLabel(window),
    unit,
    limit: shownNumber(unit, limit),
    used: shownNumber(unit, used + held),
    remaining: shownNumber(unit, left),
    window_start: isoTime(from),
    reset_at: isoTime(resetsAt),
    ...(models && { models }),
  }
}

/** Returns a plan as customers see it. Null without one. */
export function shownPlan({ plan }: Pick<Key, 'plan'>, standing: PlanStanding | undefined): unknown {
  if (!plan) return null
  return {
    valid: standing !== undefined,
    bought_at: isoTime(plan.at),
    ends_at: isoTime(plan.until),
    renews_at: isoTime(renewsAt(plan, standing?.windows ?? [])),
    then: plan.terms.then,
    windows: (standing?.windows ?? []).map(shownWindow),
  }
}

/** The credits of a day that a key may use, in nano-credits. */
interface KeyDay extends Span {
  readonly limit: bigint
  /** What was used, and is held. */
  readonly used: bigint
  readonly left: bigint
}

/** Returns how much of its credits of a day a key has used. Undefined for no limit. */
export function keyDay(
  limits: Pick<KeyLimits, 'creditsPerDay'>,
  ofKey: Limits['ofKey'],
  now: number,
): KeyDay | undefined {
  const { creditsPerDay: limit = 0n } = limits
  const span = limitedDay(limits, now)
  if (!span) return undefined
  const used = dayUsed(ofKey?.windows, span.from)
  return { ...span, limit, used, left: used < limit ? limit - used : 0n }
}

/** Returns the limits of a key, each with what is left, as customers see them. */
export function shownLimits(limits: KeyLimits, ofKey: Limits['ofKey'], now: number): Record<string, unknown>[] {
  const { concurrency } = limits
  const rates = ratesNow(limits, ofKey?.rates?.split(' ') ?? [], now)
  const day = keyDay(limits, ofKey, now)
  return [
    ...(concurrency === undefined ? [] : [{ window: 'concurrent', unit: 'requests', limit: concurrency }]),
    ...rates
      .filter(({ limit }) => limit !== undefined)
      .map(({ unit, limit, left }) => ({ window: '1m', unit, limit, used: (limit ?? 0) - left, remaining: left })),
    ...(day
      ? [
          {
            window: '1d',
            unit: 'credits',
            limit: shownNumber('credits', day.limit),
            used: shownNumber('credits', day.used),
            remaining: shownNumber('credits', day.left),
            window_start: isoTime(day.from),
            reset_at: isoTime(day.until),
          },
        ]
      : []),
  ]
}
