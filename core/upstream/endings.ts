/** How an exchange that reached its upstream can end without a whole reply. */
import type { ReplyHooks } from '../chain/chain.ts'
import { GatewayError } from '../errors.ts'
import type { Failure, Head, Outcome } from '../exchange/exchange.ts'
import type { ReplyEvent, StreamTranslation } from '../formats/index.ts'
import type { EndCause } from '../exchange/abandoned-reply.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { failureCause } from '../formats/failures.ts'

/** Time limits of the upstream, in milliseconds. */
export interface UpstreamPatience {
  readonly idle: number
  readonly total: number
}

/** The head of a reply, once it is known how it begins. */
export type MakeHead = (failure?: Failure, opening?: ReplyEvent) => Head

/** A failed answer is given to the stages; if none makes an error of it, it is a plain failure. */
export function failWith(up: ReplyHooks, head: Head): never {
  up.response(head)
  throw new GatewayError('upstream_failed', { cause: failureCause(head.status, head.failure) })
}

/**
 * Nobody waits for the reply any more: its clients have left, or the gateway gave it up before it began.
 * @throws GatewayError for a client that is still there and has got nothing yet
 */
export function endedByClient(x: HttpExchange): Outcome {
  if (x.stopped && !x.gone) throw stopError(x.stopped)
  return { kind: 'broken', by: 'client', status: x.outlet.status, attempts: x.attempts }
}

/** What a client is told whose exchange the gateway ends. */
export function stopError(why: EndCause): GatewayError {
  if (typeof why === 'object' && 'disabled' in why) return why.disabled
  if (typeof why === 'object') {
    return new GatewayError('allocation_exhausted', { message: "This key's allocation was used up by the input and the reasoning of this request." })
  }
  return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.', retryAfterMs: 1000 })
}

/** How a running stream ends. */
export type End = 'complete' | 'upstream' | 'timeout' | EndCause

/** What ends a translated stream. */
export function lastTranslated(end: Exclude<End, 'client'>, translation: StreamTranslation): readonly ReplyEvent[] {
  if (typeof end === 'object' && 'budget' in end) return translation.truncate(end.budget)
  return end === 'complete' ? translation.finish() : translation.fail(endError(end))
}

/** The error that a client is told whose stream breaks. */
export function endError(end: Exclude<End, 'complete' | 'client' | { budget: unknown }>): GatewayError {
  if (end === 'timeout') return new GatewayError('upstream_timeout')
  if (end !== 'upstream') return stopError(end)
  return new GatewayError('upstream_failed', { message: 'The provider broke off in the middle of the reply.' })
}
