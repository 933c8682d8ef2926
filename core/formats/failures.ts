/** Failures as upstreams report them. */
import { object, text } from './json.ts'
import type { Failure } from './terms.ts'

/** A failure from a vendor's error member. */
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

/** Failures that the request itself caused, by the vendors' `type` or `code`. Clients act on their messages. */
const OF_THE_REQUEST =
  /invalid_request|invalid_prompt|context_length|too_long|request_too_large|invalid_encrypted_content|content_filter|cyber_policy/

/** Failures that concern a provider's account, by the vendors' `type` or `code`. */
const OF_THE_ACCOUNT = /authentication|api_key|deactivated|suspended|billing|quota|credit|balance/

/** Whether a failure says that the account itself is refused, and not the request. */
export function isOfTheAccount({ type = '', code = '' }: Failure): boolean {
  return OF_THE_ACCOUNT.test(`${type} ${code}`)
}

/** Whether the request itself caused a failure, so that any account would refuse it. */
export function isOfTheRequest(status: number, failure: Failure | undefined): boolean {
  if (status !== 200) return status === 400 || status === 413 || status === 422
  return OF_THE_REQUEST.test(`${failure?.type ?? ''} ${failure?.code ?? ''}`)
}

/** Most characters of an upstream's message that are logged. */
const WORDS = 400
/** The beginning of a quotation; an apostrophe within a word is not one. */
const OPENING = /["`“«]|(?<!\p{L})['‘]|\bb'/u
const CLOSING = ['"', '`', '”', '»', "'", '’']
/** A quotation of at most this length is a name. */
const NAME = 12

/** What an upstream reported, for the log. Quotations are left out: they may be a customer's text. */
export function failureCause(status: number, failure: Failure | undefined): Error {
  const { type, code, message = '' } = failure ?? {}
  const kinds = [type, code].filter(kind => kind !== undefined && /^[\w.:/-]{1,64}$/.test(kind))
  return new Error(`upstream status ${[status, ...kinds, unquoted(message)].filter(part => part !== '').join(' ')}`)
}

/** The beginning of a text, without everything between its first and its last quotation mark. */
function unquoted(message: string): string {
  const text = message.slice(0, WORDS)
  const open = text.search(OPENING)
  if (open === -1) return text
  const close = Math.max(...CLOSING.map(mark => text.lastIndexOf(mark)))
  // The end of a quotation may lie beyond the beginning.
  const whole = text.length === message.length && close > open
  return whole && close - open <= NAME ? text : `${text.slice(0, open)}…${whole ? text.slice(close + 1) : ''}`
}
