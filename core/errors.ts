/**
 * The one table of the gateway's own errors, the error that stages throw, and the reply that stages may give. The wire
 * formats decide how an error is spelled on the wire.
 */

/**
 * Who a failure comes from: the client with its request, the limits or the state of its key, the gateway, an account of the
 * operator, or its provider.
 */
export const PARTIES = ['client', 'key', 'gateway', 'account', 'provider'] as const
/** Who a failure comes from. */
export type Party = (typeof PARTIES)[number]

/** One row of the table. `retry`: whether the same request can succeed a little later. */
interface ErrorRow {
  readonly status: number
  readonly who: Party
  readonly retry?: true
  /** The message that the customer gets, unless the code that throws gives a more exact one. */
  readonly words: string
}

/** Every code that the gateway can answer with. A test compares the table in the documentation with it. */
export const ERRORS = {
  missing_key: {
    status: 401,
    who: 'client',
    words: 'No API key was sent. Send it as "Authorization: Bearer sk-..." or as "x-api-key: sk-...".',
  },
  invalid_key: { status: 401, who: 'client', words: 'This API key is unknown or has been disabled.' },
  key_disabled: { status: 401, who: 'key', words: 'This API key is unknown or has been disabled.' },
  key_expired: { status: 401, who: 'key', words: 'This API key has expired.' },
  address_refused: { status: 403, who: 'key', words: 'This API key may not be used from this address.' },
  bad_request: { status: 400, who: 'client', words: 'The request is malformed.' },
  invalid_body: { status: 400, who: 'client', words: 'The request body is not valid.' },
  member_refused: { status: 400, who: 'client', words: 'The request asks for something that is not offered here.' },
  model_not_found: { status: 404, who: 'client', words: 'The model does not exist, or this key may not use it.' },
  format_not_allowed: { status: 404, who: 'key', words: 'This key may not use this wire format.' },
  allocation_exhausted: { status: 429, who: 'key', words: "This key's allocation is used up." },
  window_exhausted: { status: 429, who: 'key', retry: true, words: "A window of this key's plan is used up for now." },
  quota_exhausted: { status: 429, who: 'account', retry: true, words: 'The quota of this model is used up for now.' },
  rate_limited: { status: 429, who: 'key', retry: true, words: 'Too many requests.' },
  context_too_long: { status: 400, who: 'client', words: "The input exceeds the model's context window." },
  item_not_found: { status: 404, who: 'client', words: 'An item that the request refers to was not found.' },
  compaction_bound: {
    status: 400,
    who: 'client',
    words:
      'This conversation contains a compaction that only the provider which made it can read. Continue with a model of that provider, or start a new conversation.',
  },
  body_too_large: { status: 413, who: 'client', words: 'The request body is too large.' },
  unsupported_encoding: {
    status: 415,
    who: 'client',
    words: 'This content-encoding is not supported. Send the body as it is, or as gzip, deflate, br or zstd.',
  },
  not_found: { status: 404, who: 'client', words: 'There is nothing at this path. Check the base URL of your client.' },
  websocket_unsupported: {
    status: 426,
    who: 'client',
    words: 'WebSocket connections are not supported here. Send the request by HTTP.',
  },
  method_not_allowed: { status: 405, who: 'client', words: 'This path does not support this method.' },
  request_conflict: {
    status: 409,
    who: 'client',
    words:
      'This request is already running or done, and its reply can no longer be returned in full. Wait until it is done, or send it with another idempotency-key.',
  },
  code_refused: { status: 409, who: 'client', words: 'This code cannot be redeemed.' },
  sign_in_required: {
    status: 401,
    who: 'client',
    words: 'Sign in, or send a token as "Authorization: Bearer tga-...".',
  },
  forbidden: { status: 403, who: 'client', words: 'This is not allowed.' },
  request_timeout: { status: 408, who: 'client', retry: true, words: 'The request did not arrive in time.' },
  url_too_long: { status: 414, who: 'client', words: 'The request URL is too long.' },
  headers_too_large: { status: 431, who: 'client', words: 'The request headers are too large.' },
  upstream_rejected: { status: 400, who: 'client', words: 'The provider rejected the request.' },
  upstream_failed: { status: 502, who: 'provider', retry: true, words: 'The provider failed to answer. Try again.' },
  upstream_timeout: {
    status: 504,
    who: 'provider',
    retry: true,
    words: 'The provider did not answer in time. Try again.',
  },
  unavailable: {
    status: 503,
    who: 'gateway',
    retry: true,
    words: 'The gateway cannot accept requests at the moment. Try again.',
  },
  overloaded: {
    status: 503,
    who: 'account',
    retry: true,
    words: 'The provider is overloaded at the moment. Try again.',
  },
  internal: { status: 500, who: 'gateway', retry: true, words: 'The gateway failed to handle this request.' },
} as const satisfies Record<string, ErrorRow>

/** The code of an error, such as `rate_limited`. */
export type ErrorCode = keyof typeof ERRORS

/** An account of an upstream, and why it does not serve a request, in words for the operator. */
export interface AccountState {
  readonly account: string
  readonly state: string
}

/** What the code that throws knows beyond the row of the table. */
export interface ErrorDetails {
  /** Replaces the words of the row. It must not hold a secret. */
  readonly message?: string
  /** The request member at fault, for formats that name it. */
  readonly param?: string
  /** Replaces the status of the row. Only for the rejection of an upstream, whose own status passes. */
  readonly status?: number
  /**
   * Milliseconds after which a retry makes sense, also of a final error. The client gets them as `retry-after` and
   * `retry-after-ms`.
   */
  readonly retryAfterMs?: number
  /** When what is used up begins anew, in milliseconds since the epoch. Agents show it. */
  readonly resetsAt?: number
  /** Makes a retryable error final if it is false. */
  readonly retry?: boolean
  /** The upstream's own `type`, `code` and `error_code`, which clients act on. Only for `upstream_rejected`. */
  readonly upstream?: { readonly type?: string; readonly code?: string; readonly errorCode?: string }
  /** Further reply headers, such as `allow`. */
  readonly headers?: Readonly<Record<string, string>>
  /** The accounts that could not serve the request, for the record of the failure alone. */
  readonly accounts?: readonly AccountState[]
  /** The real cause, for the log alone. */
  readonly cause?: unknown
}

/** An error of the gateway's own. The client gets it in the wire format of the path that it called. */
export class GatewayError extends Error {
  readonly code: ErrorCode
  readonly status: number
  readonly retry: boolean
  readonly details: ErrorDetails

  constructor(code: ErrorCode, details: ErrorDetails = {}) {
    if (!Object.hasOwn(ERRORS, code))
      throw new TypeError(`there is no error code "${code as string}"; known: ${Object.keys(ERRORS).join(', ')}`)
    const row: ErrorRow = ERRORS[code]
    super(details.message ?? row.words, { cause: details.cause })
    if (details.headers) checkHeaders(details.headers)
    if (details.status !== undefined) checkStatus(details.status, 400)
    this.name = 'GatewayError'
    this.code = code
    this.status = details.status ?? row.status
    this.retry = details.retry ?? row.retry ?? false
    this.details = details
  }

  /**
   * Turns anything thrown into a GatewayError. Anything else becomes `internal`; its text is kept as the cause, for the
   * log.
   */
  static from(thrown: unknown): GatewayError {
    return thrown instanceof GatewayError ? thrown : new GatewayError('internal', { cause: thrown })
  }
}

/** A stage throws it if the store has another record of the key than the request began with: the request begins again. */
export class KeyChanged extends GatewayError {
  constructor() {
    super('unavailable')
  }
}

/** A client is asked to try again within this time, in milliseconds. A later time makes the error final. */
const NEAR_MS = 60_000

/** Returns the details of an error that asks the client to wait. A wait of more than a minute makes the error final. */
export function afterWait(ms: number): Pick<ErrorDetails, 'retryAfterMs' | 'retry'> {
  return { retryAfterMs: ms, ...(ms > NEAR_MS && { retry: false }) }
}

/** The error for a request body that is wrong. @param param the member at fault, if it is a single one */
export function invalidBody(message: string, param?: string): GatewayError {
  return new GatewayError('invalid_body', { message, ...(param !== undefined && { param }) })
}

/** Headers that frame a reply. The gateway sets them. Another value would break the reply. */
const FRAMING: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-length',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * Checks headers that a stage has set. A plugin may be plain JavaScript, so their types are checked too.
 * @param checked headers that need no further check; those that pass are added
 * @throws TypeError if a stage may not set one of the headers, or HTTP cannot carry it
 */
export function checkHeaders(headers: Readonly<Record<string, unknown>>, checked: Record<string, string> = {}): void {
  for (const name in headers) {
    const value = headers[name]
    if (typeof value === 'string' && value === checked[name]) continue
    if (/[^!#$%&'*+.^_`|~0-9a-z-]/.test(name) || name === '')
      throw new TypeError(`"${name}" is not a header name in lower case`)
    if (FRAMING.has(name)) throw new TypeError(`the header ${name} can only be set by the gateway`)
    if (typeof value !== 'string') throw new TypeError(`the value of the header ${name} is not a string`)
    // eslint-disable-next-line no-control-regex
    if (/[^\t\x20-\x7e\x80-\xff]/.test(value))
      throw new TypeError(`the header ${name} has a character that HTTP cannot carry`)
    checked[name] = value
  }
}

/** @throws TypeError if the status is not one of a final HTTP response, or below the least */
function checkStatus(status: number, least: number): void {
  if (!Number.isInteger(status) || status < least || status > 599)
    throw new TypeError(`${status} is not the status of an HTTP response`)
}

/** The headers that go with an error. */
export function errorHeaders(error: GatewayError): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json; charset=utf-8',
    ...error.details.headers,
  }
  if (!error.retry) headers['x-should-retry'] = 'false'
  const after = error.details.retryAfterMs
  if (after !== undefined) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(after / 1000)))
    headers['retry-after-ms'] = String(Math.ceil(after))
  }
  return headers
}

/** Returns a random delay of 1,000 to 3,000 ms before a retry, which spreads the retries of many clients. */
export function soonMs(): number {
  return 1000 + Math.floor(Math.random() * 2000)
}

/** Statuses of replies that have no body. */
const BODILESS: ReadonlySet<number> = new Set([204, 205, 304])

/** A complete reply from a stage. The request hooks of later stages do not run. */
export class Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Buffer

  /** @throws TypeError if HTTP cannot carry the status or a header, or the body is of another type */
  constructor(status: number, body: string | Buffer, headers: Record<string, string> = {}) {
    if (typeof body !== 'string' && !Buffer.isBuffer(body))
      throw new TypeError('the body of a Reply must be a string or a Buffer')
    checkHeaders(headers)
    checkStatus(status, 200)
    if (BODILESS.has(status) && body.length > 0) throw new TypeError(`a reply with status ${status} has no body`)
    this.status = status
    this.body = body
    this.headers = headers
  }

  /** The body as bytes. */
  get bytes(): Buffer {
    return typeof this.body === 'string' ? Buffer.from(this.body) : this.body
  }

  /** A JSON reply. @param headers further headers beside the content type */
  static json(body: unknown, headers: Record<string, string> = {}, status = 200): Reply {
    return new Reply(status, JSON.stringify(body), { 'content-type': 'application/json; charset=utf-8', ...headers })
  }
}
