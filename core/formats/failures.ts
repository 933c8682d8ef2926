/** Failures as upstreams report them. */
import { jsonFrom, list, object, text } from './json.ts'
import { WAIT_MS_MAX } from './rate-limits.ts'
import type { Failure, Json } from './terms.ts'

/** A failure from a vendor's error member. */
export function failureOf(error: unknown): Failure {
  const json = object(error)
  const type = text(json?.['type'])
  const code = codeOf(json)
  const errorCode = text(object(json?.['details'])?.['error_code'])
  const param = text(json?.['param'])
  const waitS = json?.['resets_in_seconds']
  return {
    message: text(error) ?? text(json?.['message']) ?? '',
    ...(type !== undefined && { type }),
    ...(code !== undefined && { code }),
    ...(errorCode !== undefined && { errorCode }),
    ...(param !== undefined && { param }),
    ...(typeof waitS === 'number' && waitS > 0 && { waitMs: Math.min(waitS * 1000, WAIT_MS_MAX) }),
  }
}

/** A code as a text. Numbers below 1000 only repeat a status. Google has its codes in `status`. */
function codeOf(json: Json | undefined): string | undefined {
  const code = json?.['code']
  if (typeof code === 'number' && code >= 1000) return String(code)
  const reasons = list(json?.['details']).map(detail => text(object(detail)?.['reason']))
  const reason = reasons.find(each => each !== undefined)
  if (text(code) === undefined && reason !== undefined) return reason
  const status = typeof code === 'number' ? text(json?.['status']) : undefined
  return text(code) ?? (status !== undefined && /^[A-Z_]{4,}$/.test(status) ? status : undefined)
}

/** Texts of events that may report a failure in the shape of another kind of server. */
export const FOREIGN_FAILURES: readonly string[] = [
  ...['errors', 'detail', 'message', 'msg', 'code', 'success', 'status_code'].map(name => `"${name}":`),
  '"base_resp"',
  'data: {"status":',
]

/** Codes that say that all is well. */
const WELL = /^(?:0|2\d\d|ok|success|succeeded)$/i

/**
 * Returns the failure that an event reports in the shape of another kind of server; undefined if it reports none. Providers
 * also send progress in such events, so a message alone does not make one a failure.
 */
export function foreignFailure(event: Json): Failure | undefined {
  const { error, errors, code, detail, success } = event
  const status = [event['status'], event['status_code'], code].find(each => typeof each === 'number')
  const reported = object(event['base_resp'])?.['status_code']
  const isFailure =
    event['object'] === 'error' ||
    (typeof error === 'object' ? error !== null : Boolean(text(error))) ||
    list(errors).length > 0 ||
    success === false ||
    (typeof status === 'number' && status >= 400) ||
    (typeof code === 'string' && !WELL.test(code) && text(event['message']) !== undefined) ||
    (detail !== undefined && Object.keys(event).length === 1) ||
    (typeof reported === 'number' && reported !== 0)
  return isFailure ? failureFrom(event) : undefined
}

/** Members within which vendors put a failure. */
const ENVELOPES = ['error', 'detail', 'errors'] as const
/** How deep envelopes may be nested. */
const DEPTH_MAX = 8

/**
 * Reads a failure from the text of an answer or from parsed JSON, in any vendor's envelope: `error`, the same members at
 * the top level, a `detail`, a list, the answer of another provider inside, or plain text. A page of HTML has no message.
 */
export function failureFrom(value: unknown): Failure {
  return enveloped(value, 0) ?? { message: '' }
}

function enveloped(value: unknown, depth: number): Failure | undefined {
  if (depth > DEPTH_MAX) return undefined
  if (typeof value === 'string') return ofText(value, depth)
  // A list names several faults. The client gets the first one.
  if (Array.isArray(value)) return enveloped(value[0], depth + 1)
  const json = object(value)
  if (!json) return undefined
  const { type, ...own } = failureOf(json)
  // Every failure of the messages format has this type at the top.
  const codes = { ...own, ...(type !== undefined && type !== 'error' && { type }) }
  const raw = object(json['metadata'])?.['raw']
  const inner = [raw, ...ENVELOPES.map(name => json[name])].map(each => enveloped(each, depth + 1)).find(Boolean)
  if (inner) {
    // `error` may only be the name of the status.
    const isName = typeof json['error'] === 'string' && own.message !== '' && inner.message === json['error'].trim()
    return { ...codes, ...inner, message: isName ? own.message : inner.message || own.message }
  }
  const message = own.message || text(json['msg']) || ''
  return Object.keys(codes).length > 1 || message !== '' ? { ...placeOf(json), ...codes, message } : undefined
}

/** Reads a text, which is the JSON of another provider or a message. */
function ofText(body: string, depth: number): Failure | undefined {
  const plain = body.trim()
  if (plain === '' || plain.startsWith('<')) return undefined
  // JSON without a message, or cut off, says nothing that a customer may read.
  return inside(plain, depth) ?? (/^[[{]/.test(plain) ? undefined : { message: plain.slice(0, MESSAGE_MAX) })
}

/** Reads a failure in a text that is JSON, or whose first line is: an event, or one of several values. */
function inside(plain: string, depth: number): Failure | undefined {
  const [line = ''] = plain.replace(/^data: */, '').split('\n')
  for (const text of [plain, line]) {
    const value = /^[[{]/.test(text) ? jsonFrom(text) : undefined
    const failure = value === undefined ? undefined : enveloped(value, depth + 1)
    if (failure && (failure.message !== '' || failure.code !== undefined)) return failure
  }
  return undefined
}

/**
 * Returns the message of a failure that stands as JSON within a message: a gateway or an SDK puts words around it. Its
 * codes do not count, since it may be a customer's text.
 */
export function wrappedMessage(message: string): string {
  const from = message.indexOf('{')
  if (from === -1 || message.length > MESSAGE_MAX) return ''
  const part = message.slice(from, message.lastIndexOf('}') + 1)
  // Python prints objects with single quotation marks.
  for (const text of [part, part.replaceAll("'", '"').replaceAll('None', 'null')]) {
    const value = jsonFrom(text)
    const found = value === undefined ? undefined : enveloped(value, 0)
    if (found) return found.message
  }
  return ''
}

/** The member that is wrong, as FastAPI tells it: `loc: ['body', 'max_tokens']`. */
function placeOf({ loc }: Json): { param?: string } {
  const names = list(loc).filter(name => name !== 'body')
  return names.length > 0 ? { param: names.join('.') } : {}
}

/** Most characters of a message that is plain text. */
const MESSAGE_MAX = 2000

/** Most characters of an upstream's message that are logged. */
const LOGGED_CHARS_MAX = 400
/** The beginning of a quotation; an apostrophe within a word is not one. */
const OPENING = /["`“«]|(?<!\p{L})['‘]|\bb'/u
const CLOSING = ['"', '`', '”', '»', "'", '’']
/** A quotation of at most this length is a name. */
const NAME_CHARS_MAX = 12

/** What an upstream reported, for the log. Quotations are left out: they may be a customer's text. */
export function failureCause(status: number, failure: Failure | undefined): Error {
  const kinds = failure ? codesOf(failure) : []
  const said = unquoted(failure?.message ?? '')
  return new Error(`upstream status ${[status, ...kinds, said].filter(part => part !== '').join(' ')}`)
}

/** Returns the type and the code of a failure, if they are names. */
export function codesOf({ type, code }: Failure): string[] {
  return [type, code].filter(kind => kind !== undefined && /^[\w.:/-]{1,64}$/.test(kind)) as string[]
}

/**
 * Returns the beginning of a text, without everything between its first and its last quotation mark.
 * @param chars length of the beginning
 */
export function unquoted(message: string, chars = LOGGED_CHARS_MAX): string {
  // A word that is cut may be a part of a credential, which nothing would recognise.
  const text = message.length > chars ? message.slice(0, chars).replace(/\S*$/, '') : message
  const open = text.search(OPENING)
  if (open === -1) return text
  const close = Math.max(...CLOSING.map(mark => text.lastIndexOf(mark)))
  // The end of a quotation may lie beyond the beginning.
  const whole = message.length <= chars && close > open
  // A short quotation is a name, which the log shows. Whose name it is does not matter there.
  const isName = chars === LOGGED_CHARS_MAX && whole && close - open <= NAME_CHARS_MAX
  return isName ? text : `${text.slice(0, open)}…${whole ? text.slice(close + 1) : ''}`
}
