/** How an exchange that reached its upstream can end without a whole reply. */
import type { Up } from '../chain.ts'
import { GatewayError } from '../errors.ts'
import type { Failure, Head, Outcome } from '../exchange.ts'
import type { LiveExchange } from '../live.ts'

/** A failed answer is given to the stages; if none makes an error of it, it is a plain failure. */
export function refuse(up: Up, head: Head): never {
  up.response(head)
  throw new GatewayError('upstream_failed', { cause: failureCause(head.status, head.failure) })
}

/** Characters of an upstream's words that are of use. */
const WORDS = 400
/** Quoted text that is more than a name, also where its end is cut off. */
const QUOTED = /(?<=^|[\s([{:=])(["'`])(?:.{12,}\1(?=$|[\s.,;:)\]}])|(?:(?!\1(?=[\s.,;:)\]}])).){12,}$)/gs

/**
 * What an upstream said went wrong, for the log: without what it quotes, which may be the customer's. Where the request
 * was at fault, its words are for the customer alone.
 */
export function failureCause(status: number, failure: Failure | undefined, rejected = false): Error {
  const { type, code, message = '' } = failure ?? {}
  const words = rejected ? undefined : message.slice(0, WORDS).replace(QUOTED, '…')
  return new Error(`upstream status ${[status, type, code, words].filter(Boolean).join(' ')}`)
}

/** The client left. */
export function left(x: LiveExchange): Outcome {
  return { kind: 'broken', by: 'client', status: x.begun ? x.res.statusCode : 0, attempts: x.attempts }
}

/** The gateway is stopping and gave the exchange up before its reply began. */
export function stopped(): GatewayError {
  return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.', retryAfterMs: 1000 })
}
