/** What tools ask other gateways and providers about a key, and the shapes of the answers. */
import type { Key } from 'tollgate/plugin'
import { isoTime, type Standing, usedShare, type WindowView } from 'tollgate/plugin/operator'
import { plain, rounded } from './numbers.ts'
import { lengthMs, resetSeconds, twoWindows } from './windows.ts'

/** What is left of a key, in the unit of the tools, and where its answers come from. */
export interface Account {
  readonly key: Key
  readonly now: number
  readonly granted: number
  readonly balance: number
  /** What was charged, and what is held for running requests. */
  readonly used: number
  readonly standing: Standing['status']
  /** How often the limit begins anew, as key tools name it. Null for never. */
  readonly limitReset: string | null
  /** The windows of the plan. */
  readonly windows: readonly WindowView[]
  /** The same in the shape of `rate_limits`. */
  readonly rows: readonly object[]
  /** Charges of today, of this week and of this month. Null while the records are away. */
  readonly daily: number | null
  readonly weekly: number | null
  readonly monthly: number | null
  /** Usage of today, in total, by day and by model. Empty while the records are away. */
  readonly usage: Record<string, unknown>
}

/** An answer in the shape of one tool. */
export type Answer = (account: Account) => object

/** The unit in which new-api counts. */
const QUOTA_UNITS_PER_DOLLAR = 500_000

const seconds = (ms: number | undefined): number => (ms === undefined ? 0 : Math.floor(ms / 1000))

/** The paths that tools ask, without `/v1` before them and without a slash at the end, and what each answers. */
const ANSWERS: Readonly<Record<string, Answer>> = {
  // sub2api, as CodexBar and cc-switch read it. `isValid: false` would mean that the key is refused.
  '/usage': account => ({
    object: 'usage',
    mode: 'quota_limited',
    isValid: true,
    status: stateOf(account),
    planName: account.key.type,
    unit: 'USD',
    remaining: account.balance,
    balance: account.balance,
    quota: { limit: account.granted, used: account.used, remaining: account.balance, unit: 'USD' },
    rate_limits: account.rows,
    expires_at: isoTime(account.key.expiresAt),
    ...account.usage,
  }),
  // new-api.
  '/api/usage/token': ({ key, balance, used }) => ({
    code: true,
    success: true,
    message: 'ok',
    data: {
      object: 'token_usage',
      name: key.label,
      total_granted: units(used) + Math.max(0, units(balance)),
      total_used: units(used),
      total_available: Math.max(0, units(balance)),
      unlimited_quota: false,
      model_limits: {},
      model_limits_enabled: false,
      expires_at: seconds(key.expiresAt),
    },
  }),
  '/api/user/self': ({ key, balance, used }) => ({
    success: true,
    message: '',
    data: {
      id: 0,
      username: key.label,
      display_name: key.label,
      group: key.type,
      status: 1,
      quota: Math.max(0, units(balance)),
      used_quota: units(used),
    },
  }),
  '/api/status': () => ({
    success: true,
    message: '',
    data: { quota_per_unit: QUOTA_UNITS_PER_DOLLAR, quota_display_type: 'USD', display_in_currency: true },
  }),
  // one-api, as many desktop clients read it. The period that they ask for does not count.
  '/dashboard/billing/subscription': ({ key, granted }) => ({
    object: 'billing_subscription',
    has_payment_method: true,
    soft_limit_usd: granted,
    hard_limit_usd: granted,
    system_hard_limit_usd: granted,
    access_until: seconds(key.expiresAt),
  }),
  '/dashboard/billing/usage': ({ used }) => ({ object: 'list', total_usage: rounded(used * 100) }),
  '/dashboard/billing/credit_grants': ({ granted, balance, used }) => ({
    object: 'credit_summary',
    total_granted: granted,
    total_used: used,
    total_available: balance,
  }),
  // OpenRouter.
  '/api/v1/key': ({ key, granted, balance, used, limitReset, daily, weekly, monthly }) => ({
    data: {
      label: key.label,
      limit: granted,
      limit_remaining: balance,
      limit_reset: limitReset,
      include_byok_in_limit: false,
      usage: used,
      usage_daily: daily,
      usage_weekly: weekly,
      usage_monthly: monthly,
      byok_usage: 0,
      byok_usage_daily: 0,
      byok_usage_weekly: 0,
      byok_usage_monthly: 0,
      is_free_tier: false,
      is_management_key: false,
      is_provisioning_key: false,
      creator_user_id: null,
      expires_at: isoTime(key.expiresAt),
      rate_limit: { requests: -1, interval: '10s', note: 'This field is not used.' },
    },
  }),
  '/api/v1/credits': ({ granted, used }) => ({ data: { total_credits: granted, total_usage: used } }),
  // DeepSeek, with what cc-switch's template reads beside it.
  '/user/balance': account => ({
    is_available: stateOf(account) === 'active',
    balance_infos: [
      {
        currency: 'USD',
        total_balance: plain(account.balance),
        granted_balance: '0.00',
        topped_up_balance: plain(account.balance),
      },
    ],
    is_active: stateOf(account) === 'active',
    balance: account.balance,
    currency: 'USD',
    unit: 'USD',
  }),
  // Claude's own account.
  '/api/oauth/usage': ({ granted, used, windows, now }) => ({
    five_hour: utilization(twoWindows(windows).short, now),
    seven_day: utilization(twoWindows(windows).long, now),
    seven_day_opus: null,
    seven_day_sonnet: null,
    extra_usage: {
      is_enabled: true,
      monthly_limit: Math.round(granted * 100),
      used_credits: Math.round(used * 100),
      utilization: granted > 0 ? rounded((100 * used) / granted) : 100,
      currency: 'USD',
    },
  }),
  // Codex's own account.
  '/api/codex/usage': ({ balance, windows, standing, now }) => ({
    plan_type: 'pro',
    rate_limit: codexLimit(windows, standing, now),
    additional_rate_limits: null,
    credits: { has_credits: balance > 0, unlimited: false, balance: plain(balance) },
    rate_limit_reached_type: null,
  }),
}

/** Other names of the same answers. */
const ALIASES: Readonly<Record<string, string>> = {
  '/api/usage': '/user/balance',
  '/key': '/api/v1/key',
  '/credits': '/api/v1/credits',
}

/** Tools put the paths after a base address that may end in `/v1`, and some end them with a slash. */
export const PATHS: ReadonlyMap<string, Answer> = new Map(
  [...Object.keys(ANSWERS), ...Object.keys(ALIASES)].flatMap(path => {
    const answer = ANSWERS[ALIASES[path] ?? path] as Answer
    // These names are too common to be taken without `/v1`.
    const bare = ['/usage', '/key', '/credits'].includes(path) ? [] : [path]
    return [...bare, `/v1${path}`, `/v1/v1${path}`].flatMap(each => [
      [each, answer] as const,
      [`${each}/`, answer] as const,
    ])
  }),
)

function utilization(view: WindowView | undefined, now: number): object | null {
  if (!view) return null
  const resets = isoTime(resetSeconds(view, now) * 1000)
  return { utilization: rounded(100 * usedShare(view)), resets_at: resets }
}

function codexLimit(windows: readonly WindowView[], standing: Account['standing'], now: number): object | null {
  const { short, long } = twoWindows(windows)
  const shown = (view: WindowView | undefined): object | null =>
    view
      ? {
          used_percent: Math.round(100 * usedShare(view)),
          limit_window_seconds: Math.round(lengthMs(view) / 1000),
          reset_after_seconds: Math.max(0, resetSeconds(view, now) - Math.floor(now / 1000)),
          reset_at: resetSeconds(view, now),
        }
      : null
  if (!short && !long) return null
  const isReached = standing === 'exhausted' || windows.some(({ left, window }) => left === 0n && !window.models)
  return {
    allowed: !isReached,
    limit_reached: isReached,
    primary_window: shown(short ?? long),
    secondary_window: shown(short && long),
  }
}

function stateOf({ standing }: Account): string {
  return standing === 'exhausted' ? 'quota_exhausted' : standing
}

function units(amount: number): number {
  return Math.round(amount * QUOTA_UNITS_PER_DOLLAR)
}
