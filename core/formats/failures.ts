/** Failures as upstreams report them. */
import { object, text } from './json.ts'
import type { Failure } from './terms.ts'

/** A vendor's error member as a Failure. */
export function failureOf(error: unknown): Failure {
  const json = object(error)
  const type = text(json?.['type'])
  const code = text(json?.['code'])
  const errorCode = text(object(json?.['details'])?.['error_code'])
  const param = text(json?.['param'])
  return {
    message: text(error) ?? text(json?.['message']) ?? '',
    ...(type !== undefined && { type }),
    ...(code !== undefined && { code }),
    ...(errorCode !== undefined && { errorCode }),
    ...(param !== undefined && { param }),
  }
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
