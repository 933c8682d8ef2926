/** The messages format: typed SSE events, usage in two of them, cached tokens counted apart from the input. */
import type { ErrorCode, GatewayError } from '../errors.ts'
import { frame, typedEvent } from './events.ts'
import type { CountedUsage, Format, RawUsage, Reading } from './format.ts'
import { Counter, failureOf, forwarding, object, positive } from './reading.ts'

/** Sent upstream when neither the request nor the model's entry names an output limit. */
const DEFAULT_MAX_TOKENS = 4096

const TYPES: Readonly<Record<ErrorCode, string>> = {
  missing_key: 'authentication_error',
  invalid_key: 'authentication_error',
  key_disabled: 'authentication_error',
  key_expired: 'authentication_error',
  bad_request: 'invalid_request_error',
  invalid_body: 'invalid_request_error',
  model_not_found: 'not_found_error',
  format_not_allowed: 'not_found_error',
  allocation_exhausted: 'billing_error',
  quota_exhausted: 'rate_limit_error',
  rate_limited: 'rate_limit_error',
  context_too_long: 'invalid_request_error',
  body_too_large: 'request_too_large',
  unsupported_encoding: 'invalid_request_error',
  not_found: 'not_found_error',
  method_not_allowed: 'invalid_request_error',
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

function envelope(error: GatewayError, requestId: string): unknown {
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

function read(json: unknown): Reading {
  const event = object(json)
  switch (event?.['type']) {
    case 'message_start':
      return withUsage(object(event['message'])?.['usage'], false)
    case 'message_delta':
      return withUsage(event['usage'], false)
    case 'message':
      return withUsage(event['usage'], true)
    case 'content_block_start':
      return { opens: [Number(event['index'])] }
    case 'content_block_stop':
      return { closes: [Number(event['index'])] }
    case 'message_stop':
      return { last: true, terminal: true }
    case 'error':
      return { failure: failureOf(event['error']), last: true }
    default:
      return {}
  }
}

function withUsage(raw: unknown, last: boolean): Reading {
  const usage = object(raw)
  return { ...(usage && { usage }), ...(last && { last }) }
}

function countOnce(raw: RawUsage, counter: Counter): CountedUsage['usage'] {
  const split = object(raw['cache_creation'])
  const written = counter.of(raw, 'cache_creation_input_tokens')
  const cacheWrite1h = counter.of(split, 'ephemeral_1h_input_tokens')
  const output = counter.of(raw, 'output_tokens')
  return {
    input: counter.of(raw, 'input_tokens'),
    cacheRead: counter.of(raw, 'cache_read_input_tokens'),
    // The split may come without the sum, or the sum without the split: the short-lived class takes what is not named.
    cacheWrite5m: Math.max(counter.of(split, 'ephemeral_5m_input_tokens'), written - cacheWrite1h),
    cacheWrite1h,
    output,
    reasoning: Math.min(counter.of(object(raw['output_tokens_details']), 'thinking_tokens'), output),
  }
}

function count(raw: RawUsage): CountedUsage | undefined {
  const counter = new Counter()
  // After a compaction the top-level counters tell only of the last pass: the passes are billed together.
  const passes = Array.isArray(raw['iterations']) ? raw['iterations'].map(object).filter(pass => pass !== undefined) : []
  if (passes.length === 0 && counter.maybe(raw, 'input_tokens', 'output_tokens') === undefined) return undefined
  const parts = (passes.length > 0 ? passes : [raw]).map(pass => countOnce(pass, counter))
  const sum = (part: keyof CountedUsage['usage']) => parts.reduce((all, usage) => all + usage[part], 0)
  return {
    usage: {
      input: sum('input'),
      cacheRead: sum('cacheRead'),
      cacheWrite5m: sum('cacheWrite5m'),
      cacheWrite1h: sum('cacheWrite1h'),
      output: sum('output'),
      reasoning: sum('reasoning'),
    },
    sound: counter.sound,
  }
}

export const messages: Format = {
  name: 'messages',
  path: '/v1/messages',
  required: { messages: 'array' },
  typed: { stream: 'boolean', max_tokens: 'count' },
  forwards: forwarding(['anthropic-version', 'anthropic-beta', 'x-claude-code-session-id'], []),
  // Required upstream; plain HTTP callers and the interface allow it to be absent. The older version serves every client.
  defaultHeaders: { 'anthropic-version': '2023-06-01' },
  choices: () => 1,
  ends: () => false,
  outputLimit: body => positive(body.get('max_tokens')),
  limitOutput: (body, tokens) => body.set('max_tokens', tokens),
  prepare(body, model) {
    // Required upstream, optional here.
    if (body.get('max_tokens') === undefined) body.set('max_tokens', model.maxOutput ?? DEFAULT_MAX_TOKENS)
    return undefined
  },
  telling: ['"message_start"', '"message_delta"', '"message_stop"', '"error"', '"content_block_start"', '"content_block_stop"'],
  text: { stream: ['text', 'thinking', 'partial_json'], reply: ['text', 'thinking', 'input'] },
  read,
  count,
  tell: usage => ({
    input_tokens: usage.input,
    cache_creation_input_tokens: usage.cacheWrite5m + usage.cacheWrite1h,
    cache_read_input_tokens: usage.cacheRead,
    cache_creation: { ephemeral_5m_input_tokens: usage.cacheWrite5m, ephemeral_1h_input_tokens: usage.cacheWrite1h },
    output_tokens: usage.output,
    output_tokens_details: { thinking_tokens: usage.reasoning },
  }),
  // 529 is this format's own status for an overloaded provider; its SDKs have a class for it.
  status: error => (error.code === 'overloaded' ? 529 : error.status),
  error: envelope,
  disguise: (_json, error, requestId) => envelope(error, requestId),
  tail: (error, requestId) => frame('error', JSON.stringify(envelope(error, requestId))),
  cut(usage, { opened, closed }) {
    return [
      ...[...opened].filter(index => !closed.has(index)).map(index => typedEvent({ type: 'content_block_stop', index })),
      typedEvent({ type: 'message_delta', delta: { stop_reason: 'max_tokens', stop_sequence: null }, usage: messages.tell(usage) }),
      typedEvent({ type: 'message_stop' }),
    ]
  },
}
