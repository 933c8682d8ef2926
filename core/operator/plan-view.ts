/** A plan as operators see it. */
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import { isValid, type Plan, planFrom } from '../plans/plan.ts'
import { renewsAt, type WindowView, windowViews } from '../plans/state.ts'
import type { PlanTerms } from '../plans/terms.ts'

/** A window. Amounts are exact decimals: credits, requests or tokens. Times are ISO 8601. */
export interface PlanWindowView {
  /** Counts the windows of the plan from 1 on. */
  readonly window: number
  readonly unit: string
  readonly per: string
  /** Null for all models. */
  readonly models: readonly string[] | null
  readonly limit: string
  /** What was used, and is held by running requests. */
  readonly used: string
  readonly held: string
  readonly left: string
  readonly since: string | null
  /** When it begins anew; of the last hours, when some of them comes back. */
  readonly resets_at: string | null
}

/** A plan. */
export interface PlanView {
  /** The key type that its terms are of; null for terms of its own. */
  readonly type: string | null
  readonly valid: boolean
  readonly bought_at: string | null
  readonly ends_at: string | null
  readonly renews_at: string | null
  /** The terms as they are in force. */
  readonly terms: PlanTerms
  /** None if it has ended. */
  readonly windows: readonly PlanWindowView[]
}

/**
 * Returns the plan of a balance. Null without one.
 * @param stored the plan and its windows, as the records and the store have them
 */
export function planView(
  stored: { readonly plan: string | undefined; readonly windows: string | null | undefined },
  now: number,
): PlanView | null {
  if (stored.plan === undefined) return null
  const plan = planFrom(stored.plan)
  const windows = windowViews(plan, stored.windows, now)
  return { ...planFacts(plan, now, windows), windows: windows.map(planWindowView) }
}

/** Returns what a plan is, without what was used of it. */
export function planFacts(
  plan: Plan,
  now: number,
  windows = windowViews(plan, undefined, now),
): Omit<PlanView, 'windows'> {
  return {
    type: plan.type ?? null,
    valid: isValid(plan, now),
    bought_at: isoTime(plan.at),
    ends_at: isoTime(plan.until),
    renews_at: isoTime(renewsAt(plan, windows)),
    terms: plan.terms,
  }
}

/** Returns a window of a plan as operators see it. */
export function planWindowView({ place, window, limit, used, held, left, from, resetsAt }: WindowView): PlanWindowView {
  const { unit, per, models } = window
  const exact = (number: bigint): string => (unit === 'credits' ? formatCredits(number) : String(number))
  return {
    window: place + 1,
    unit,
    per,
    models: models ?? null,
    limit: exact(limit),
    used: exact(used),
    held: exact(held),
    left: exact(left),
    since: isoTime(from),
    resets_at: isoTime(resetsAt),
  }
}
