/** How an exchange that reached its upstream can end without a whole reply. */
import type { Up } from '../chain.ts'
import { GatewayError } from '../errors.ts'
import type { Failure, Head, Outcome } from '../exchange.ts'
import type { ReplyEvent, StreamTranslation } from '../formats/index.ts'
import type { Why } from '../afterlife.ts'
import type { LiveExchange } from '../live.ts'

/** Time limits of the upstream, in milliseconds. */
export interface Patience {
  readonly idle: number
  readonly total: number
}

/** The head of a reply, once it is known how it begins. */
export type MakeHead = (failure?: Failure, opening?: ReplyEvent) => Head

/** A failed answer is given to the stages; if none makes an error of it, it is a plain failure. */
export function refuse(up: Up, head: Head): never {
  up.response(head)
  throw new GatewayError('upstream_failed', { cause: failureCause(head.status, head.failure) })
}

/** Characters of an upstream's words that are of use. */
const WORDS = 400
/** The beginning of something quoted; an apostrophe in a word is none. */
const OPENING = /["`“«]|(?<!\p{L})['‘]|\bb'/u
const CLOSING = ['"', '`', '”', '»', "'", '’']
/** What is quoted and no longer than this is the name of something. */
const NAME = 12

/** What an upstream said went wrong, for the log: without what it quotes, which may be the customer's. */
export function failureCause(status: number, failure: Failure | undefined): Error {
  const { type, code, message = '' } = failure ?? {}
  const kinds = [type, code].filter(kind => kind !== undefined && /^[\w.:/-]{1,64}$/.test(kind))
  return new Error(`upstream status ${[status, ...kinds, unquoted(message)].filter(part => part !== '').join(' ')}`)
}

/** A text's beginning, without what stands between the first quotation mark and the last. */
function unquoted(message: string): string {
  const text = message.slice(0, WORDS)
  const open = text.search(OPENING)
  if (open === -1) return text
  const close = Math.max(...CLOSING.map(mark => text.lastIndexOf(mark)))
  // The end of a quotation may have been cut off.
  const whole = text.length === message.length && close > open
  return whole && close - open <= NAME ? text : `${text.slice(0, open)}…${whole ? text.slice(close + 1) : ''}`
}

/**
 * Nobody waits for the reply any more: its clients have left, or the gateway gave it up before it began.
 * @throws GatewayError for a client that is still there and has got nothing yet
 */
export function left(x: LiveExchange): Outcome {
  if (x.stopped && !x.gone) throw stopError(x.stopped)
  return { kind: 'broken', by: 'client', status: x.outlet.status, attempts: x.attempts }
}

/** What a client is told whose exchange the gateway ends. */
export function stopError(why: Why): GatewayError {
  if (typeof why === 'object' && 'disabled' in why) return why.disabled
  if (typeof why === 'object') {
    return new GatewayError('allocation_exhausted', { message: "This key's allocation was used up by the input and the reasoning of this request." })
  }
  return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.', retryAfterMs: 1000 })
}

/** How a running stream ends. */
export type End = 'complete' | 'upstream' | 'timeout' | Why

/** What ends a translated stream. */
export function lastTranslated(end: Exclude<End, 'client'>, translation: StreamTranslation): readonly ReplyEvent[] {
  if (typeof end === 'object' && 'budget' in end) return translation.cut(end.budget)
  return end === 'complete' ? translation.finish() : translation.fail(endError(end))
}

/** The error that a client is told whose stream breaks. */
export function endError(end: Exclude<End, 'complete' | 'client' | { budget: unknown }>): GatewayError {
  if (end === 'timeout') return new GatewayError('upstream_timeout')
  if (end !== 'upstream') return stopError(end)
  return new GatewayError('upstream_failed', { message: 'The provider broke off in the middle of the reply.' })
}
