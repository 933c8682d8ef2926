/** The errors for holds that are refused. */
import { afterWait, GatewayError } from '../errors.ts'
import type { Format } from '../formats/index.ts'
import type { Key } from '../keys/keys.ts'
import type { HoldAnswer, HoldRequest, Limited } from '../ledger/hold.ts'
import { formatCredits } from '../money/credits.ts'
import type { KeyLimits } from '../plans/limits.ts'
import { isValid, limitIn, type Plan, usableAgainAt } from '../plans/plan.ts'
import { type RateNow, ratesNow } from '../plans/rates.ts'

/** Who is refused, and when. */
interface Refused {
  readonly limits: KeyLimits
  readonly format: Pick<Format, 'rateHeaders'>
  readonly contact: string
  readonly now: number
  /** When the key expires. */
  readonly expiresAt: number | undefined
}

/** Returns the error for a key that has too few credits. @param need what needs more: the rest of a sentence, and others */
export function tooFewCredits(
  { balance, plan }: Pick<Key, 'balance' | 'plan'>,
  need: string,
  { contact, now }: Pick<Refused, 'contact' | 'now'>,
): GatewayError {
  const who = plan && !isValid(plan, now) ? `The plan of this key ended at ${iso(plan.until)}. It` : 'This key'
  return new GatewayError('allocation_exhausted', {
    message: `${who} has ${formatCredits(balance)} credits left, but ${need} For more, ask ${contact}.`,
  })
}

/** Returns the error for a hold that a key does not get. */
export function refusal(answer: HoldAnswer, request: HoldRequest, refused: Refused): GatewayError {
  const { limits, format, contact, now } = refused
  const plan = request.bounds?.plan
  switch (answer.kind) {
    case 'insufficient': {
      const quieter = request.notes.stream ? '' : ' A lower output limit, or a stream, needs less.'
      const need = `this request may need ${formatCredits(request.least)}.${quieter}`
      return tooFewCredits({ balance: answer.balance, plan }, need, { contact, now })
    }
    case 'capped':
      return new GatewayError('allocation_exhausted', {
        message: `This key may use ${formatCredits(answer.left < 0n ? 0n : answer.left)} credits more, but this request may need ${formatCredits(request.least)}. For more, ask ${contact}.`,
      })
    case 'busy':
      return new GatewayError('rate_limited', {
        message: 'Too many requests of this key run at the same time.',
        retryAfterMs: 1000,
      })
    case 'limited': {
      const retryAfterMs = Math.max(1, answer.waitMs)
      const wait = `in ${Math.ceil(retryAfterMs / 1000)} s.`
      const message =
        answer.what === 'requests'
          ? `The ${limits.requestsPerMinute} requests a minute of this key are used; more ${wait}`
          : `Too few of the ${limits.tokensPerMinute} tokens a minute of this key are left for this request, which may use ${request.bounds?.leastTokens ?? 0}; enough ${wait}`
      return new GatewayError('rate_limited', {
        message,
        retryAfterMs,
        headers: format.rateHeaders(usedUp(limits, answer, now), now),
      })
    }
    case 'used':
    case 'filled':
      return ofWindow(answer, request, refused)
    case 'expired':
      return new GatewayError('key_expired')
    case 'disabled':
      return new GatewayError('key_disabled')
    default:
      return new GatewayError('internal', { cause: new Error(`a new hold was answered with ${answer.kind}`) })
  }
}

/** The rate that is used up. */
function usedUp(
  limits: KeyLimits,
  { what, fullInMs }: Extract<Limited, { kind: 'limited' }>,
  now: number,
): readonly RateNow[] {
  const due = now + fullInMs
  return ratesNow(limits, what === 'requests' ? [due] : [0, due], now).filter(({ unit }) => unit === what)
}

function ofWindow(
  { kind, isOfKey, place, resetsAt, balance, left }: Extract<Limited, { kind: 'used' | 'filled' }>,
  request: HoldRequest,
  { limits, contact, now, expiresAt }: Refused,
): GatewayError {
  const plan = request.bounds?.plan
  const window = isOfKey ? undefined : plan?.windows[place]
  const unit = window?.unit ?? 'credits'
  const shown = (number: bigint): string => (unit === 'credits' ? formatCredits(number) : String(number))
  const most = window && plan ? limitIn(plan, place, now).limit : (limits.creditsPerDay ?? 0n)
  const of = window
    ? `your ${lengthWords(window.per)}${window.models ? ` for ${window.models.join(', ')}` : ''}`
    : 'the day of this key'
  if (kind === 'filled')
    return new GatewayError('rate_limited', {
      message: `Running requests ${isOfKey ? 'of this key ' : ''}hold what is left of the ${shown(most)} ${unit} of ${of}. Try again in a moment.`,
      retryAfterMs: 1000,
    })
  const least = formatCredits(request.least)
  const need = unit === 'tokens' ? String(request.bounds?.leastTokens ?? 0) : least
  const isUsedUp = left === 0n || unit === 'requests'
  const lacks = isUsedUp ? `, but this request may need ${least}` : ''
  const also =
    plan?.terms.then === 'credits' && !isOfKey
      ? ` Beside the plan, it may use ${formatCredits(balance)} credits${lacks}.`
      : ''
  const again = usableAgainAt(resetsAt, isOfKey ? undefined : plan, expiresAt)
  const more = again === undefined ? '' : `; more at ${clock(again, now)}`
  const what = isUsedUp
    ? `The ${shown(most)} ${unit} of ${of} are used${more}.`
    : `${shown(left)} of the ${shown(most)} ${unit} of ${of} are left, but this request may need ${need}${more}.`
  const end = again === undefined ? ` ${endsFirst(isOfKey ? undefined : plan, expiresAt)}` : ''
  return new GatewayError('window_exhausted', {
    message: `${what}${end}${also} For more, ask ${contact}.`,
    ...(again === undefined ? { retry: false } : { resetsAt: again, ...afterWait(Math.max(1000, again - now)) }),
  })
}

/** Says what ends before a window begins anew. */
function endsFirst(plan: Plan | undefined, expiresAt = Infinity): string {
  const { until = Infinity } = plan ?? {}
  return until < expiresAt ? `Its plan ends at ${iso(until)}.` : `It expires at ${iso(expiresAt)}.`
}

const UNITS: Readonly<Record<string, string>> = { m: 'minute', h: 'hour', d: 'day' }

/** Names the length of a window for customers, such as `5 hours` or `week`. */
function lengthWords(per: string): string {
  return per.replace(/^(\d+)([mhd])$/, (_, count: string, unit: string) =>
    count === '1' ? (UNITS[unit] ?? '') : `${count} ${UNITS[unit]}s`,
  )
}

/** Writes a time for customers: without its day if that is today, in UTC. */
function clock(ms: number, now: number): string {
  const [day, time] = iso(Math.ceil(ms / 60_000) * 60_000)
    .slice(0, 16)
    .split('T')
  return `${iso(now).startsWith(day as string) ? '' : `${day} `}${time} UTC`
}

function iso(ms = 0): string {
  return new Date(ms).toISOString()
}
