/** The messages format: named events, usage in two of them, cached tokens counted apart from the input. */
import { frame, typedEvent } from '../events.ts'
import { messagesRateHeaders } from '../rate-headers.ts'
import type { Json, Reading } from '../terms.ts'
import type { Format } from '../format.ts'
import { indexOf, list, object, positive, text } from '../json.ts'
import { FOREIGN_FAILURES, failureFrom, foreignFailure } from '../failures.ts'
import { recognisedByMessage } from '../overflow.ts'
import { largestLimit, levelLimits, setLimits } from '../output-limits.ts'
import { forwarding } from '../forwarded-headers.ts'
import { decoder, decodeReply } from './decode-reply.ts'
import { CARRIES, decodeRequest, REFUSES } from './decode-request.ts'
import { encoder, encodeReply } from './encode-reply.ts'
import { encodeRequest, marksPrompt } from './encode-request.ts'
import { callOfBlock, roundOfBlock, takesLimit } from '../provider-tools.ts'
import { BUDGET_MIN } from '../translate/tools.ts'
import { passedBetas } from './betas.ts'
import { envelope } from './errors.ts'
import { count, encodeUsage } from './usage.ts'

function read(json: unknown): Reading {
  const event = object(json)
  switch (event?.['type']) {
    case 'message_start': {
      const usage = object(object(event['message'])?.['usage'])
      // The output in this event was counted before there was any.
      return withUsage(usage && { ...usage, output_tokens: undefined, iterations: undefined }, {})
    }
    case 'message_delta': {
      // Some providers leave out `message_stop`, so the stop reason ends the reply.
      const reason = text(object(event['delta'])?.['stop_reason'])
      const isLast = reason !== undefined
      return withUsage(event['usage'], { usageIsFinal: isLast, ...(isLast && { completes: true, ends: [reason] }) })
    }
    case 'message': {
      const blocks = list(event['content']).map(object)
      const calls = blocks.flatMap((block, index) => callOfBlock(block, index) ?? [])
      const rounds = blocks.flatMap((block, index) => roundOfBlock(block, index) ?? [])
      const reason = text(event['stop_reason'])
      const found = {
        ...(calls.length > 0 && { calls }),
        ...(rounds.length > 0 && { rounds }),
        ...(reason !== undefined && { ends: [reason] }),
      }
      return withUsage(event['usage'], { completes: true, usageIsFinal: true, ...found })
    }
    case 'content_block_start': {
      const block = object(event['content_block'])
      const call = callOfBlock(block, event['index'])
      const round = roundOfBlock(block, event['index'])
      return {
        opens: [indexOf(event['index'])],
        ...encryptedIn(block?.['data']),
        ...(call && { calls: [call] }),
        ...(round && { rounds: [round] }),
      }
    }
    case 'content_block_delta':
      return encryptedIn(object(event['delta'])?.['signature'])
    case 'content_block_stop':
      return { closes: [indexOf(event['index'])] }
    case 'message_stop':
      return { completes: true, endsStream: true }
    case 'error':
      return { failure: failureFrom(event['error']), completes: true }
    default:
      return event ? foreign(event) : {}
  }
}

/** An upstream of another kind reports a failure in its own shape. */
function foreign(event: Json): Reading {
  if (text(event['type']) !== undefined && event['object'] !== 'error') return {}
  const failure = foreignFailure(event)
  return failure ? { failure, completes: true } : {}
}

function withUsage(raw: unknown, more: Reading): Reading {
  const usage = object(raw)
  return { ...more, ...(usage && { usage }) }
}

/** Hidden reasoning arrives as a signature, or as the data of a block of its own. */
function encryptedIn(value: unknown): Reading {
  const encryptedBytes = text(value)?.length ?? 0
  return encryptedBytes > 0 ? { encryptedBytes } : {}
}

/** A header that is meant for a browser. */
const OF_A_BROWSER = 'anthropic-dangerous-direct-browser-access'

/** The messages format. */
export const messages: Format = {
  name: 'messages',
  path: '/v1/messages',
  counting: '/v1/messages/count_tokens',
  required: { messages: 'array' },
  conversationMember: 'messages',
  // Without output, a request fills the prompt cache.
  typed: { stream: 'boolean', max_tokens: 'count or 0' },
  forwards: forwarding([], ['anthropic-', 'x-claude-code-'], OF_A_BROWSER),
  passedValue: (header, value) => (header === 'anthropic-beta' ? passedBetas(value) : value),
  query: ['beta'],
  counted: tokens => ({ input_tokens: tokens }),
  // Upstreams require it, but clients may omit it. The older version serves every client.
  defaultHeaders: { 'anthropic-version': '2023-06-01' },
  choices: () => 1,
  isComplete: () => false,
  outputLimit: body => (body.get('max_tokens') === 0 ? 0 : largestLimit('max_tokens')(body)),
  leastOutput: 1,
  storesReply: () => true,
  standardTier: 'standard_only',
  reportsInputFirst: true,
  summaries: ['"thinking_delta"'],
  namesEvents: true,
  ending: frame('message_stop', JSON.stringify({ type: 'message_stop' })),
  isReply: json => Array.isArray(object(json)?.['content']),
  marksFinalUsage: true,
  reportsCalls: true,
  callLimit: 'each tool',
  storesByDefault: false,
  limitCalls(body, most, unsaid) {
    body.change('tools', tool => {
      const said = positive(object(tool)?.['max_uses'])
      if (!takesLimit(object(tool)) || (said !== undefined && said <= most)) return tool
      return { ...object(tool), max_uses: Math.min(most, said ?? unsaid) }
    })
  },
  probe: model => ({ model, max_tokens: 16, messages: [{ role: 'user', content: 'Reply with OK.' }] }),
  isOpening: json => ['message_start', 'ping'].includes(text(object(json)?.['type']) ?? ''),
  mayBeComplete: recent => recent.includes('"message_delta"'),
  limitOutput(body, tokens) {
    setLimits(body, tokens, 'max_tokens')
    // Reasoning is part of the output.
    const thinking = object(body.get('thinking'))
    const budget = positive(thinking?.['budget_tokens'])
    if (budget === undefined || budget < tokens) return
    const half = Math.floor(tokens / 2)
    body.set('thinking', half < BUDGET_MIN ? { type: 'disabled' } : { ...thinking, budget_tokens: half })
  },
  prepare(body, model) {
    levelLimits(body, messages.outputLimit(body))
    // Upstreams require it, but clients may omit it.
    if (body.get('max_tokens') === undefined) body.set('max_tokens', model.output)
    return undefined
  },
  signals: [
    '"message_start"',
    '"message_delta"',
    '"message_stop"',
    '"error"',
    '"content_block_start"',
    '"content_block_stop"',
    '"signature_delta"',
    ...FOREIGN_FAILURES,
  ],
  text: { stream: ['text', 'thinking', 'name', 'partial_json'], reply: ['text', 'thinking', 'name', 'input'] },
  read,
  replyMember: 'message',
  modelOf: json => text((object(object(json)?.['message']) ?? object(json))?.['model']),
  decodeUsage: count,
  encodeUsage,
  // This format has a status of its own for an overloaded provider, and its SDKs have a class for it.
  rateHeaders: messagesRateHeaders,
  status: error => (error.code === 'overloaded' ? 529 : error.status),
  error: envelope,
  replaceError: (_json, error, requestId) => envelope(error, requestId),
  errorEvent: (error, requestId) => frame('error', JSON.stringify(envelope(error, requestId))),
  recognisable: recognisedByMessage,
  overflow: (tokens, most) =>
    tokens === undefined || most === undefined
      ? 'Input is too long.'
      : `prompt is too long: ${tokens} tokens > ${most} maximum`,
  codec: {
    translates: CARRIES,
    refuses: REFUSES,
    repeats: [],
    decodeRequest,
    encodeRequest,
    marksPrompt,
    decodeReply,
    encodeReply,
    decoder,
    encoder,
  },
  truncate(usage, { opened, closed }) {
    return [
      ...[...opened]
        .filter(index => !closed.has(index))
        .map(index => typedEvent({ type: 'content_block_stop', index })),
      typedEvent({
        type: 'message_delta',
        delta: { stop_reason: 'max_tokens', stop_sequence: null },
        usage: messages.encodeUsage(usage),
      }),
      typedEvent({ type: 'message_stop' }),
    ]
  },
}
