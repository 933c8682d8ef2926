/** Errors in the chat-completions and responses formats, which share one envelope. */
import type { ErrorCode, GatewayError } from '../errors.ts'

interface Spelling {
  readonly type: string
  readonly code: string | null
}

const invalid = (code: string): Spelling => ({ type: 'invalid_request_error', code })
const failure = (code: string): Spelling => ({ type: 'server_error', code })

const KEY = invalid('invalid_api_key')

/** `type` and `code` for each code of the gateway. Agents use them to decide whether to stop, wait or compact. */
const SPELLINGS: Readonly<Record<ErrorCode, Spelling>> = {
  missing_key: KEY,
  invalid_key: KEY,
  key_disabled: KEY,
  key_expired: KEY,
  address_refused: invalid('address_refused'),
  bad_request: invalid('bad_request'),
  invalid_body: invalid('invalid_request_body'),
  member_refused: invalid('unsupported_parameter'),
  model_not_found: invalid('model_not_found'),
  format_not_allowed: invalid('format_not_allowed'),
  allocation_exhausted: { type: 'insufficient_quota', code: 'insufficient_quota' },
  // Agents that know this type show when to go on.
  window_exhausted: { type: 'usage_limit_reached', code: 'rate_limit_exceeded' },
  quota_exhausted: { type: 'rate_limit_exceeded', code: 'rate_limit_exceeded' },
  rate_limited: { type: 'rate_limit_exceeded', code: 'rate_limit_exceeded' },
  context_too_long: invalid('context_length_exceeded'),
  // The vendor's own error has no code.
  item_not_found: { type: 'invalid_request_error', code: null },
  compaction_bound: invalid('compaction_bound'),
  body_too_large: invalid('body_too_large'),
  unsupported_encoding: invalid('unsupported_encoding'),
  not_found: invalid('not_found'),
  method_not_allowed: invalid('method_not_allowed'),
  websocket_unsupported: invalid('websocket_unsupported'),
  request_conflict: invalid('request_conflict'),
  code_refused: invalid('code_refused'),
  sign_in_required: invalid('sign_in_required'),
  forbidden: invalid('forbidden'),
  request_timeout: invalid('request_timeout'),
  url_too_long: invalid('url_too_long'),
  headers_too_large: invalid('headers_too_large'),
  upstream_rejected: invalid('upstream_rejected'),
  upstream_failed: failure('upstream_failed'),
  upstream_timeout: failure('upstream_timeout'),
  unavailable: failure('unavailable'),
  overloaded: failure('server_is_overloaded'),
  internal: failure('internal'),
}

/** The `error` member. What the upstream reported takes precedence, if it may pass. */
export function openaiError(
  error: GatewayError,
): Spelling & { message: string; param: string | null; resets_at?: number; resets_in_seconds?: number } {
  const { type, code } = SPELLINGS[error.code]
  const { upstream, resetsAt, retryAfterMs = 0 } = error.details
  return {
    message: error.message,
    type: upstream?.type ?? type,
    param: error.details.param ?? null,
    // If the upstream gave no code, the client gets none: clients act on the codes they know.
    code: upstream === undefined ? code : (upstream.code ?? upstream.errorCode ?? code),
    ...(resetsAt !== undefined && {
      resets_at: Math.ceil(resetsAt / 1000),
      resets_in_seconds: Math.ceil(retryAfterMs / 1000),
    }),
  }
}

/** Codes of the gateway's own failures, which the vendor's list of codes of a failed response lacks. */
const OWN_FAILURES: ReadonlySet<string> = new Set(['upstream_failed', 'upstream_timeout', 'unavailable', 'internal'])

/** The `error` member of a failed response. */
export function failedResponseError(error: GatewayError): { code: string; message: string } {
  const { code, message } = openaiError(error)
  return { code: code === null || OWN_FAILURES.has(code) ? 'server_error' : code, message }
}
