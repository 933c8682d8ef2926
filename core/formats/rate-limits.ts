/** When a provider says that an account may ask again: its `retry-after`, and the reset times of its rate limits. */
import type { IncomingHttpHeaders } from 'node:http'

/** Longest wait that is believed, in milliseconds. */
export const WAIT_MS_MAX = 8 * 86_400_000

/** A larger number of seconds is a time since the epoch: this one is in 2017. */
const EPOCH_FROM = 1_500_000_000

const DURATION_UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Limits of a whole account, as plans have them: whether one is used up, and the header that says when it resets. */
const ACCOUNT_LIMITS: readonly { isUsedUp: (headers: Readonly<IncomingHttpHeaders>) => boolean; reset: string }[] = [
  {
    isUsedUp: headers => headers['anthropic-ratelimit-unified-status'] === 'rejected',
    reset: 'anthropic-ratelimit-unified-reset',
  },
  {
    isUsedUp: headers => Number(headers['x-codex-primary-used-percent']) >= 100,
    reset: 'x-codex-primary-reset-after-seconds',
  },
  {
    isUsedUp: headers => Number(headers['x-codex-secondary-used-percent']) >= 100,
    reset: 'x-codex-secondary-reset-after-seconds',
  },
]

/** Whether headers say that a limit of the whole account is used up. */
export function isLimitOfAccount(headers: Readonly<IncomingHttpHeaders>): boolean {
  return ACCOUNT_LIMITS.some(({ isUsedUp }) => isUsedUp(headers))
}

/**
 * Returns how long a provider asks to wait, in milliseconds. Undefined if it does not say.
 * @param now milliseconds since the epoch
 */
export function waitAsked(headers: Readonly<IncomingHttpHeaders>, now: number): number | undefined {
  const of = (name: string): string | undefined => {
    const value = headers[name]
    return typeof value === 'string' ? value.trim() : undefined
  }
  const ms = Number(of('retry-after-ms'))
  const waits = [ms > 0 ? ms : untilTime(of('retry-after'), now)]
  // A limit that is used up says when it begins anew.
  for (const name in headers) {
    if (!/^(?:x|anthropic)-ratelimit-(?:.+-)?remaining/.test(name) || of(name) !== '0') continue
    waits.push(untilTime(of(name.replace('remaining', 'reset')), now))
  }
  for (const { isUsedUp, reset } of ACCOUNT_LIMITS) if (isUsedUp(headers)) waits.push(untilTime(of(reset), now))
  const known = waits.filter(wait => wait !== undefined && wait >= 0) as number[]
  return known.length === 0 ? undefined : Math.min(Math.max(...known), WAIT_MS_MAX)
}

function seconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,12}(?:\.\d+)?$/.test(text) ? Math.ceil(Number(text) * 1000) : undefined
}

/** Seconds, seconds since the epoch, a duration such as `6m0s`, or a date. */
function untilTime(text: string | undefined, now: number): number | undefined {
  if (text === undefined || text === '') return undefined
  if (/^[1-4]\d{9}$/.test(text) && Number(text) >= EPOCH_FROM) return Number(text) * 1000 - now
  const plain = seconds(text)
  if (plain !== undefined) return plain
  if (/^(?:\d+(?:\.\d+)?(?:ms|[smhd]))+$/.test(text)) {
    const parts = text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)
    return [...parts].reduce((sum, [, number, unit = 's']) => sum + Number(number) * (DURATION_UNITS_MS[unit] ?? 0), 0)
  }
  // Date.parse accepts many texts that are no dates.
  const at = /[A-Z]/.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}
