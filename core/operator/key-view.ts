/** A key as operators see it. */
import type { Config } from '../config/config.ts'
import { allowanceOf } from '../ledger/allowance.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { keyDay, planStanding } from '../account/plan-views.ts'
import { type Allowance, shownAllowance, standing } from '../account/views.ts'
import { leastOf } from '../config/key-types.ts'
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import type { Metadata } from '../records/account-rows.ts'
import { keyLimitsFrom, limitedDay, type LimitTerms, narrowed, narrower } from '../plans/limits.ts'
import { planFrom } from '../plans/plan.ts'
import type { RecordedKey } from '../records/key-records.ts'
import { type PlanView, planView } from './plan-view.ts'

/** A key with its balance. Amounts are exact decimals, times are ISO 8601. */
export interface KeyView {
  readonly id: string
  readonly label: string
  readonly hint: string
  readonly name: string
  readonly batch: string
  readonly type: string
  /** Milliseconds for which it is valid from its first use; null for a fixed expiry. */
  readonly lifetime: number | null
  readonly metadata: Metadata
  /** Whether its owner may create other keys for the balance. */
  readonly manage: boolean
  /** The id of the balance that it spends from. */
  readonly balance_id: string
  /** The most that it may use in its life; null for none of its own. */
  readonly cap: string | null
  /** Limits of this key alone; null for none. */
  readonly limits: LimitTerms | null
  /** `active`, `disabled`, `deleted`, `expired`, `exhausted`, or `no_type` if the type is not in the file any more. */
  readonly status: string
  /** What its balance was granted. */
  readonly granted: string
  /** What it may still use of its credits. */
  readonly balance: string
  /** What it may use now, and of how much: of the window of credits that has least, beside `balance`, or of its grants. */
  readonly left: string
  readonly left_of: string
  /** What was used and is held of the widest window of credits; null without one. */
  readonly used_of_plan: string | null
  /** The plan of its balance; null without one. */
  readonly plan: PlanView | null
  /** What it holds and has used itself. */
  readonly held: string
  readonly used: string
  readonly created_at: string | null
  readonly expires_at: string | null
  /** When its latest recorded request ended. */
  readonly last_used_at: string | null
}

/**
 * Returns a key with its balance at this moment. While the store does not know the key, since it is new or the store has
 * lost something, the balance is what the records know of it.
 * @throws GatewayError unavailable
 */
export async function keyView(
  ledger: Ledger,
  key: RecordedKey,
  { keyTypes }: Pick<Config, 'keyTypes'>,
  now: number,
): Promise<KeyView> {
  const { id, account } = key
  const type = keyTypes.get(key.type)
  const ofType = type?.limits
  // A key whose type is no longer in the file is refused.
  const own = ofType && narrowed(ofType, key.limits === undefined ? undefined : keyLimitsFrom(key.limits))
  const cap = narrower(key.cap, own?.credits)
  const wish = { spender: { account, key: id }, cap, today: own && limitedDay(own, now) }
  const inStore = ledger.continuity.open ? await ledger.reads.limits(wish) : undefined
  const recorded = { granted: key.granted, balance: key.granted - key.settled, held: 0n, settled: key.settled }
  const limits = inStore ?? {
    account: recorded,
    cap,
    elsewhere: key.elsewhere,
    part: { charged: key.used - key.elsewhere, held: 0n, holds: 0 },
  }
  const credits = allowanceOf(limits)
  const { charged, held } = limits.part ?? { charged: limits.account.settled, held: limits.account.held }
  const planned = { plan: key.plan === undefined ? undefined : planFrom(key.plan), expiresAt: key.expiresAt }
  const plan = planStanding(planned, inStore?.windows, now)
  const may = {
    credits,
    plan,
    ofKey: inStore?.ofKey,
    leftToday: own && keyDay(own, inStore?.ofKey, now)?.left,
    least: type ? leastOf(type) : 0n,
  }
  const active = own ? standing(key, may, now).status : 'no_type'
  return {
    id,
    label: key.label,
    hint: key.hint,
    name: key.name,
    batch: key.batch,
    type: key.type,
    lifetime: key.lifetimeMs ?? null,
    metadata: key.metadata,
    manage: key.manage === true,
    balance_id: account,
    cap: key.cap === undefined ? null : formatCredits(key.cap),
    limits: key.limits === undefined ? null : (JSON.parse(key.limits) as LimitTerms),
    status: key.status === 'active' ? active : key.status,
    granted: formatCredits(limits.account.granted),
    balance: formatCredits(credits.balance),
    ...purseOf(may),
    plan: planView({ plan: key.plan, windows: inStore?.windows }, now),
    held: formatCredits(held),
    used: formatCredits(charged + key.elsewhere),
    created_at: isoTime(key.createdAt),
    expires_at: isoTime(key.expiresAt),
    last_used_at: isoTime(key.endedAt || undefined),
  }
}

function purseOf(may: Allowance): Pick<KeyView, 'left' | 'left_of' | 'used_of_plan'> {
  const ofPlan = may.plan?.widestOfCredits && { ...may, credits: { ...may.credits, balance: 0n } }
  const { remaining, limit, used } = shownAllowance(ofPlan ?? may)
  return {
    left: formatCredits(remaining),
    left_of: formatCredits(may.plan?.tightestOfCredits?.limit ?? limit),
    used_of_plan: ofPlan ? formatCredits(used) : null,
  }
}
