/** The gateway's errors in the messages format. */
import type { ErrorCode, GatewayError } from '../../errors.ts'

const TYPES: Readonly<Record<ErrorCode, string>> = {
  missing_key: 'authentication_error',
  invalid_key: 'authentication_error',
  key_disabled: 'authentication_error',
  key_expired: 'authentication_error',
  address_refused: 'permission_error',
  bad_request: 'invalid_request_error',
  invalid_body: 'invalid_request_error',
  member_refused: 'policy_blocked',
  model_not_found: 'not_found_error',
  format_not_allowed: 'not_found_error',
  allocation_exhausted: 'billing_error',
  window_exhausted: 'rate_limit_error',
  quota_exhausted: 'rate_limit_error',
  rate_limited: 'rate_limit_error',
  context_too_long: 'invalid_request_error',
  item_not_found: 'not_found_error',
  compaction_bound: 'invalid_request_error',
  body_too_large: 'request_too_large',
  unsupported_encoding: 'invalid_request_error',
  not_found: 'not_found_error',
  method_not_allowed: 'invalid_request_error',
  websocket_unsupported: 'invalid_request_error',
  request_conflict: 'conflict_error',
  code_refused: 'conflict_error',
  sign_in_required: 'authentication_error',
  forbidden: 'permission_error',
  request_timeout: 'timeout_error',
  url_too_long: 'invalid_request_error',
  headers_too_large: 'invalid_request_error',
  upstream_rejected: 'invalid_request_error',
  upstream_failed: 'api_error',
  upstream_timeout: 'timeout_error',
  unavailable: 'api_error',
  overloaded: 'overloaded_error',
  internal: 'api_error',
}

/** The body of an error, which is also the event that reports it in a stream. */
export function envelope(error: GatewayError, requestId: string): { type: 'error'; error: object; request_id: string } {
  const upstream = error.details.upstream
  return {
    type: 'error',
    error: {
      type: upstream?.type ?? TYPES[error.code],
      message: error.message,
      ...(upstream?.errorCode !== undefined && { details: { error_code: upstream.errorCode } }),
    },
    request_id: requestId,
  }
}
