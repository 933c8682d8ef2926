/** How an exchange that reached its upstream can end without a whole reply. */
import type { ReplyHooks } from '../../chain/reply-hooks.ts'
import { GatewayError } from '../../errors.ts'
import { type EndCause, causeName } from '../../exchange/request-end.ts'
import type { Failure, Head, Outcome } from '../../exchange/exchange.ts'
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import { failureCause } from '../../formats/failures.ts'
import type { ReplyEvent } from '../../formats/index.ts'
import type { ReplyBody } from '../connection/reply-body.ts'

/** Time limits of the upstream while it replies, in milliseconds. */
export interface UpstreamPatience {
  readonly idleMs: number
  readonly totalMs: number
}

/** Makes the head of a reply, once the beginning of the reply is known. */
export type MakeHead = (failure?: Failure, opening?: ReplyEvent) => Head

/** An upstream's answer on its way to the client. */
export interface Relayed {
  readonly x: HttpExchange
  readonly hooks: ReplyHooks
  /** The body of the answer, without its content encoding. */
  readonly body: ReplyBody
  readonly makeHead: MakeHead
  readonly patience: UpstreamPatience
  /** Whether another account would be asked if the stream fails before its first content. */
  readonly mayAskAnother: boolean
  /** Called when a stream begins. */
  readonly begun: () => void
  /** Closes the connection to the upstream. */
  readonly abort: () => void
}

/**
 * How an attempt failed before anything of its reply went to the client:
 * - `not asked`: another request tries the account, or the account must wait
 * - `connect`: the request was not sent completely
 * - `timeout`: the request was sent, and no answer came, or not all of a reply in one piece; a stream was silent; or the
 *   reply could not be translated
 * - `empty`: status 200, and a failure, the end of the stream, or something that is no reply
 * - `too large`: over the limits of the gateway
 * - `unknown end`: a reply for another format, which ends with an unknown word
 * - a status other than 200
 */
export type FailureKind = 'not asked' | 'connect' | 'timeout' | 'empty' | 'too large' | 'unknown end' | number

/** An attempt failed before anything of its reply went to the client, so that another account may be asked. */
export class FailedAttempt extends Error {
  readonly kind: FailureKind
  /** What the client is told if no other account is asked and no stage decides otherwise. */
  readonly error: GatewayError
  /** The upstream's answer, if there was one. */
  readonly head: Head | undefined

  constructor(kind: FailureKind, error: GatewayError, head?: Head) {
    super(error.message)
    this.kind = kind
    this.error = error
    this.head = head
  }
}

/** The failure of an attempt that an upstream answered with a failure, or with something that is no reply. */
export function failedWith(head: Head): FailedAttempt {
  const error = new GatewayError('upstream_failed', { cause: failureCause(head.status, head.failure) })
  return new FailedAttempt(head.status === 200 ? 'empty' : head.status, error, head)
}

/** The failure of an answer that is over a limit of the gateway. @param what is over which limit */
export function tooLarge(what: string): FailedAttempt {
  return new FailedAttempt('too large', new GatewayError('upstream_failed', { cause: new Error(what) }))
}

/**
 * The outcome of an exchange whose clients have left, or that the gateway gave up.
 * @throws GatewayError if the gateway gave it up before the reply began, and its client still waits
 */
export function endedByClient(x: HttpExchange): Outcome {
  if (x.stopped && !x.gone) throw stopError(x.stopped)
  return { kind: 'broken', by: 'client', status: x.outlet.status, attempts: x.attempts }
}

/** The error that a client is sent when the gateway ends its exchange. */
export function stopError(cause: EndCause): GatewayError {
  if (typeof cause === 'object' && 'disabled' in cause) return cause.disabled
  if (typeof cause === 'object') {
    const message = "The input and the reasoning of this request used up this key's allocation."
    return new GatewayError('allocation_exhausted', { message })
  }
  return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.', retryAfterMs: 1000 })
}

/** How a running stream ends. */
export type StreamEnd = 'complete' | 'upstream' | 'timeout' | { readonly failed: GatewayError } | EndCause

/** The error for a stream that ends before its reply began. */
export function unbegun(end: Exclude<StreamEnd, 'client'>): FailedAttempt | GatewayError {
  if (typeof end === 'object' && 'failed' in end) return end.failed
  if (end === 'drain' || typeof end === 'object') return stopError(end)
  return end === 'timeout'
    ? new FailedAttempt('timeout', new GatewayError('upstream_timeout', { cause: new Error('a silent stream') }))
    : new FailedAttempt('empty', new GatewayError('upstream_failed', { cause: new Error('a stream without content') }))
}

/** Returns who broke a stream. @param clientWasStuck whether its client took nothing just before */
export function brokenBy(
  end: Exclude<StreamEnd, 'complete' | 'client'>,
  clientWasStuck: boolean,
): Extract<Outcome, { kind: 'broken' }>['by'] {
  if (typeof end === 'object' && 'failed' in end) return 'gateway'
  if (end !== 'upstream' && end !== 'timeout') return causeName(end)
  return clientWasStuck ? 'client' : 'upstream'
}
