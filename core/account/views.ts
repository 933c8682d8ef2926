/**
 * Balances, policies and histories in the shapes that customers' tools read: numbers for display, with exact strings
 * beside them.
 */
import type { Config, KeyType, ModelEntry } from '../config/config.ts'
import { allowanceOf, type Limits } from '../ledger/allowance.ts'
import {
  keyDay,
  type PlanStanding,
  planStanding,
  resetWord,
  shownLimits,
  shownNumber,
  shownPlan,
  shownWindow,
} from './plan-views.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { type Balance, type Count, DAY_MS, type Summary } from '../records/entry.ts'
import type { Key } from '../keys/keys.ts'
import { type KeyLimits, limitedDay, narrowed, narrower, utcDay } from '../plans/limits.ts'
import { usableAgainAt } from '../plans/plan.ts'
import { isoTime } from '../lib/iso-time.ts'
import { ERRORS } from '../errors.ts'
import { formatCredits } from '../money/credits.ts'
import { credits, snake } from './entry-view.ts'
import { type PriceText, priceText } from '../money/price-text.ts'
import { leastOf } from '../config/key-types.ts'
import { leastCharge } from '../money/price.ts'

/** Forbids every cache to store a look-up. */
export const PRIVATE = { 'cache-control': 'no-store' } as const

const DAY_USED_UP = 'The credits of this day that this key may use are used up.'

/** Whether a key can buy. */
export interface Standing {
  readonly status: 'active' | 'expired' | 'exhausted'
  /** Why it cannot. */
  readonly message?: string
}

/** Returns whether a key can buy at the moment, and why it cannot. */
export function standing(
  key: Pick<Key, 'expiresAt'>,
  { credits, plan, leftToday, least }: Pick<Allowance, 'credits' | 'plan' | 'leftToday' | 'least'>,
  now: number,
): Standing {
  if (key.expiresAt !== undefined && key.expiresAt <= now)
    return { status: 'expired', message: ERRORS.key_expired.words }
  const isOfCredits = !plan || plan.isUsedUp
  if (isOfCredits && plan?.plan.terms.then === 'refuse')
    return { status: 'exhausted', message: ERRORS.window_exhausted.words }
  if (isOfCredits && least > 0n && credits.balance < least)
    return { status: 'exhausted', message: ERRORS.allocation_exhausted.words }
  if (leftToday === 0n) return { status: 'exhausted', message: DAY_USED_UP }
  return { status: 'active' }
}

/**
 * Returns whose requests and bookings a key sees: those of its balance if it manages the keys of that, else its own. While the
 * records are away, its own.
 */
export async function seenBy({ records }: Pick<Ledger, 'records'>, { id, account, whose }: Key): Promise<Key['whose']> {
  if (whose.key === undefined) return whose
  const record = await records.keys.get(id).catch(() => undefined)
  return record?.manage === true ? { account } : whose
}

/** What a key may use: credits, and a plan. */
export interface Allowance {
  /** All is zero if the store does not know its account. */
  readonly credits: Balance
  readonly plan: PlanStanding | undefined
  /** The windows and the rates of the key itself, as the script writes them. */
  readonly ofKey: Limits['ofKey']
  /** What a key may still use today, in nano-credits. Undefined for no limit. */
  readonly leftToday: bigint | undefined
  /** What the smallest request costs at the cheapest model, in nano-credits. */
  readonly least: bigint
}

/** Returns what a key may use. @throws GatewayError unavailable */
export async function allowance(
  ledger: Ledger,
  key: Pick<Key, 'type' | 'spender' | 'cap' | 'plan' | 'limits' | 'expiresAt'>,
  { keyTypes }: Pick<Config, 'keyTypes'>,
  now: number,
): Promise<Allowance> {
  const { spender, cap } = key
  const type = keyTypes.get(key.type) as KeyType
  const own = narrowed(type.limits, key.limits)
  const asked = { spender, cap: narrower(cap, own.credits), today: limitedDay(own, now) }
  const limits = await ledger.reads.limits(asked)
  return {
    credits: limits ? allowanceOf(limits) : { granted: 0n, balance: 0n, held: 0n, settled: 0n },
    plan: planStanding(key, limits?.windows, now),
    ofKey: limits?.ofKey,
    leftToday: keyDay(own, limits?.ofKey, now)?.left,
    least: leastOf(type),
  }
}

/**
 * Returns what tools show as the limit of a key, in nano-credits: the widest window of credits of its plan, or else its
 * prepaid credits. What remains is what it may use at the moment.
 */
export function shownAllowance(may: Allowance): { limit: bigint; used: bigint; remaining: bigint } {
  const { credits, plan, leftToday } = may
  const least = (left: bigint): bigint => narrower(left, leftToday) ?? left
  const { widestOfCredits: widest, tightestOfCredits: tightest } = plan ?? {}
  const isRefused = plan?.isUsedUp === true && plan.plan.terms.then === 'refuse'
  if (!widest || !tightest || !plan)
    return { limit: credits.granted, used: credits.settled, remaining: isRefused ? 0n : least(credits.balance) }
  const more = plan.plan.terms.then === 'credits' && credits.balance > 0n ? credits.balance : 0n
  const left = plan.isUsedUp ? 0n : tightest.left
  return { limit: widest.limit, used: widest.used + widest.held, remaining: least(left + more) }
}

/** Returns the unit of what tools show, with its numbers: credits, or what the widest window counts if a key has none. */
function shownNumbers(may: Allowance): { unit: string; limit: number; used: number; remaining: number } {
  const { plan } = may
  const view = plan?.widestOfCredits || may.credits.granted > 0n ? undefined : plan?.widest
  const { limit, used, remaining } = view
    ? { limit: view.limit, used: view.used + view.held, remaining: view.left }
    : shownAllowance(may)
  const unit = view?.window.unit ?? 'credits'
  const shown = (number: bigint): number => shownNumber(unit, number)
  return { unit, limit: shown(limit), used: shown(used), remaining: shown(remaining) }
}

/** Returns what is left of a key's allocation: top-level members for balance widgets, `data` for key tools. */
export async function balanceOf(
  ledger: Ledger,
  key: Key,
  may: Allowance,
  now: number,
): Promise<Record<string, unknown>> {
  const { granted, balance, held, settled } = may.credits
  const { plan } = may
  const { unit, ...numbers } = shownNumbers(may)
  const isOfCredits = unit === 'credits'
  const { limit, used, remaining } = shownAllowance(may)
  const { status, message } = standing(key, may, now)
  // While the records are away, a balance is still exact.
  const whose = await seenBy(ledger, key)
  const summary = await ledger.reads.summary(whose, now).catch(() => undefined)
  const periods = summary && dayUsage(summary, now)
  const expiresAt = isoTime(key.expiresAt)
  return {
    isValid: status === 'active',
    ...(message !== undefined && { invalidMessage: message }),
    is_active: status === 'active',
    status,
    mode: 'quota_limited',
    planName: key.type,
    unit,
    balance: credits(balance),
    remaining: numbers.remaining,
    total: isOfCredits ? credits(granted) : numbers.limit,
    used: isOfCredits ? credits(settled) : numbers.used,
    held: credits(held),
    quota: { ...numbers, unit },
    exact: {
      unit: 'nano-credits',
      balance: String(balance),
      granted: String(granted),
      used: String(settled),
      held: String(held),
    },
    expires_at: expiresAt,
    reset_at: isoTime(
      message === DAY_USED_UP ? usableAgainAt(utcDay(now).until, undefined, key.expiresAt) : plan?.resetsAt,
    ),
    plan: shownPlan(key, plan),
    data: {
      label: key.label,
      // It is of credits. Null is no limit.
      limit: isOfCredits ? credits(limit) : null,
      limit_remaining: isOfCredits ? credits(remaining) : null,
      limit_reset: resetWord(plan),
      usage: credits(used),
      usage_daily: periods ? credits(periods.day) : null,
      usage_weekly: periods ? credits(periods.week) : null,
      usage_monthly: periods ? credits(periods.month) : null,
      expires_at: expiresAt,
    },
  }
}

/** Returns the charges of this day, this week from Monday on, and this month, in nano-credits. All are of UTC. */
export function dayUsage(summary: Summary, now: number): { day: bigint; week: bigint; month: bigint } {
  const today = Math.floor(now / DAY_MS)
  const sum = (days: number): bigint => lastDays(summary, today, days).reduce((all, { charge }) => all + charge, 0n)
  return { day: sum(1), week: sum(((today + 3) % 7) + 1), month: sum(new Date(now).getUTCDate()) }
}

function lastDays(summary: Summary, today: number, days: number): Count[] {
  return Array.from({ length: days }, (_, ago) => summary.days.get(today - ago)).filter(count => count !== undefined)
}

const shown = (count: Count): object => ({
  requests: count.requests,
  input_tokens: count.input,
  output_tokens: count.output,
  total_tokens: count.input + count.output,
  cost: credits(count.charge),
})

const NONE: Count = { requests: 0, input: 0, output: 0, charge: 0n }

/** Returns the usage of today, in total, by day and by model. */
export function usageOf(summary: Summary & { readonly unlisted: number }, now: number): Record<string, unknown> {
  const today = Math.floor(now / DAY_MS)
  const days = [...summary.days].sort(([a], [b]) => b - a).slice(0, 30)
  return {
    usage: {
      today: shown(summary.days.get(today) ?? NONE),
      total: shown(summary.total),
      unlisted_free_requests: summary.unlisted,
    },
    daily_usage: days.map(([day, count]) => ({
      date: new Date(day * DAY_MS).toISOString().slice(0, 10),
      ...shown(count),
    })),
    model_stats: [...summary.models].map(([model, count]) => ({ model, ...shown(count) })),
  }
}

/** Returns what a key type allows its customers to do. @param models those that are shown; all of the type by default */
export function policyOf(
  config: Config,
  type: KeyType,
  models: readonly ModelEntry[] = [...type.models.values()],
): Record<string, unknown> {
  return {
    key_type: type.name,
    endpoints: type.formats.map(({ path }) => `POST ${path}`),
    models: models.map(({ id }) => id),
    default_model: type.default.id,
    default_model_is_filled_in: type.fillDefault,
    aliases: Object.fromEntries(
      models.filter(({ aliasOf }) => aliasOf !== undefined).map(({ id, aliasOf }) => [id, aliasOf]),
    ),
    background_model: cheapestOf(models).id,
    smallest_request: credits(leastCharge(models.map(({ price }) => price))),
    prices: models.map(({ id, context, price }) => ({
      model: id,
      context: context ?? null,
      unit: 'credits per million tokens',
      version: price.version,
      input: formatCredits(price.input),
      cache_read: formatCredits(price.cacheRead),
      cache_write_5m: formatCredits(price.cacheWrite5m),
      cache_write_1h: formatCredits(price.cacheWrite1h),
      output: formatCredits(price.output),
      reasoning: formatCredits(price.reasoning),
      ...special(priceText(price)),
    })),
    max_request_bytes: config.limits.bodyBytes,
  }
}

/** Returns the limits of a key and the windows of its plan, each with what is left. */
export function limitsView(
  limits: KeyLimits,
  { ofKey, plan }: Pick<Allowance, 'ofKey' | 'plan'>,
  now: number,
): Record<string, unknown> {
  const { maxInput, maxOutput } = limits
  return {
    rate_limits: [...shownLimits(limits, ofKey, now), ...(plan?.windows ?? []).map(shownWindow)],
    ...(maxInput !== undefined && { max_input: maxInput }),
    ...(maxOutput !== undefined && { max_output: maxOutput }),
  }
}

/** Returns the model for work in the background, such as titles: the cheapest one. */
function cheapestOf(models: readonly ModelEntry[]): ModelEntry {
  return models.reduce((least, each) => (rateOf(each) < rateOf(least) ? each : least))
}

function rateOf({ price }: ModelEntry): bigint {
  return price.input + price.output
}

/** Returns the parts of a price other than its rates for token classes. */
function special({
  audioInput,
  imageInput,
  audioOutput,
  imageOutput,
  rejected,
  tiers,
  factors,
  calls,
}: PriceText): Record<string, unknown> {
  return {
    ...snake({ audioInput, imageInput, audioOutput, imageOutput, rejected }),
    ...(tiers &&
      tiers.length > 0 && {
        tiers: tiers.map(({ above, ...rates }) => ({ above_input_tokens: above, ...snake(rates) })),
      }),
    ...(Object.keys(factors).length > 0 && { factors: snake(factors) }),
    ...(Object.keys(calls).length > 0 && { calls: snake(calls) }),
  }
}
