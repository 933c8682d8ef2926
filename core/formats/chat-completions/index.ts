/** The chat-completions format: events without names, `[DONE]` at the end, usage only for clients that ask for it. */
import type { Body } from '../body.ts'
import { DONE, frame, type OutgoingEvent, type ReplyEvent, type Rewriter } from '../events.ts'
import { openaiRateHeaders } from '../rate-headers.ts'
import type { Reading, Json } from '../terms.ts'
import type { Format } from '../format.ts'
import { openaiError } from '../openai-errors.ts'
import { indexOf, list, object, positive, text } from '../json.ts'
import { FOREIGN_FAILURES, failureFrom, foreignFailure } from '../failures.ts'
import { conditionNamed, countInclusive, encodeInclusive, type InclusiveNames } from '../usage.ts'
import { recognisedByCode } from '../overflow.ts'
import { largestLimit, levelLimits, setLimits } from '../output-limits.ts'
import { forwarding } from '../forwarded-headers.ts'
import { decoder, decodeReply } from './decode-reply.ts'
import { CARRIES, decodeRequest, REFUSES } from './decode-request.ts'
import { encoder, encodeReply } from './encode-reply.ts'
import { encodeRequest } from './encode-request.ts'

/**
 * The member as most vendors write it: at the end of an event of one line. Other spellings are parsed. The lookahead comes
 * first, so that the lookbehind runs once for each line.
 */
const NULL_USAGE = /,"usage":null(?=(?:,"obfuscation":"[^"\\]*")?\}\n\n)(?<=(?:^|\n\n)data: \{[^\n]*\],"usage":null)/g

/** Removes the usage from a stream whose client did not ask for it. Such clients read `choices[0]` of every chunk. */
const hideUsage: Rewriter = {
  matches: ['"usage"'],
  edit: text => text.replace(NULL_USAGE, ''),
  event(event: ReplyEvent): OutgoingEvent[] | undefined {
    const chunk = object(event.json)
    if (!chunk || !('usage' in chunk)) return undefined
    if (chunk['usage'] === null) {
      const { usage: _usage, ...rest } = chunk
      // Quotes in JSON strings are escaped, so a single occurrence can only be the member itself.
      const once = event.data.indexOf('"usage"') === event.data.lastIndexOf('"usage"')
      const data = once
        ? event.data.replace(/,\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,\s*/, '')
        : JSON.stringify(rest)
      return [{ type: event.type, data }]
    }
    return Array.isArray(chunk['choices']) && chunk['choices'].length === 0 ? [] : undefined
  },
}

/**
 * The usage of a chunk, or of a JSON reply. Some vendors put it into a choice, or into a member of their own, or its cached part
 * beside it.
 */
function usageOf(chunk: Json): Json | undefined {
  const usage =
    object(chunk['usage']) ??
    object(object(chunk['x_groq'])?.['usage']) ??
    list(chunk['choices'])
      .map(choice => object(object(choice)?.['usage']))
      .find(each => each !== undefined)
  const cache_n = object(chunk['timings'])?.['cache_n']
  return usage && cache_n !== undefined ? { ...usage, timings: { cache_n } } : usage
}

function read(json: unknown): Reading {
  const chunk = object(json)
  if (!chunk) return {}
  const usage = usageOf(chunk)
  const serviceTier = conditionNamed(chunk['service_tier'])
  if (chunk['error'] !== undefined && chunk['error'] !== null) {
    return { failure: failureFrom(chunk['error']), completes: true, ...(usage && { usage, usageIsFinal: true }) }
  }
  if (list(chunk['choices']).length === 0 && !usage) {
    const failure = foreignFailure(chunk)
    if (failure) return { failure, completes: true }
  }
  const choices = Array.isArray(chunk['choices']) ? chunk['choices'] : []
  const closed = choices.map(object).filter(choice => text(choice?.['finish_reason']))
  const usageIsFinal = usage !== undefined && Array.isArray(chunk['choices']) && choices.length === 0
  return {
    ...(usage && { usage }),
    ...(serviceTier !== undefined && { serviceTier }),
    ...(usageIsFinal && { usageIsFinal }),
    ...(closed.length > 0 && {
      closes: closed.map(choice => indexOf(choice?.['index'])),
      ends: closed.map(choice => String(choice?.['finish_reason'])),
    }),
  }
}

const USAGE: InclusiveNames = {
  input: 'prompt_tokens',
  output: 'completion_tokens',
  inputDetails: 'prompt_tokens_details',
  outputDetails: 'completion_tokens_details',
}

/** A first chunk names the speaker, or says something about the prompt. */
function isOpening(json: unknown): boolean {
  const chunk = object(json)
  return (
    Array.isArray(chunk?.['choices']) &&
    chunk['choices'].map(object).every(choice => {
      const delta = Object.entries(object(choice?.['delta']) ?? {})
      return !choice?.['finish_reason'] && delta.every(([name, value]) => name === 'role' || value === '' || !value)
    })
  )
}

/** The chat-completions format. */
export const chatCompletions: Format = {
  name: 'chat-completions',
  path: '/v1/chat/completions',
  required: { messages: 'array' },
  conversationMember: 'messages',
  typed: { stream: 'boolean', max_tokens: 'count', max_completion_tokens: 'count', n: 'choices' },
  forwards: forwarding([], []),
  query: [],
  choices: body => positive(body.get('n')) ?? 1,
  isComplete: (closed, choices) => closed >= choices,
  outputLimit: largestLimit('max_completion_tokens', 'max_tokens'),
  limitOutput: (body, tokens) => setLimits(body, tokens, 'max_completion_tokens'),
  leastOutput: 1,
  storesReply: body => body.get('audio') !== undefined,
  standardTier: 'default',
  reportsInputFirst: false,
  summaries: [],
  namesEvents: false,
  ending: '',
  isReply: json => list(object(json)?.['choices']).length > 0,
  marksFinalUsage: false,
  reportsCalls: false,
  callLimit: 'none',
  storesByDefault: false,
  limitCalls: () => {},
  probe: model => ({ model, max_tokens: 16, messages: [{ role: 'user', content: 'Reply with OK.' }] }),
  isOpening,
  mayBeComplete: () => false,
  defaultHeaders: {},
  prepare(body: Body): Rewriter | undefined {
    levelLimits(body, chatCompletions.outputLimit(body))
    if (body.get('stream') !== true) return undefined
    const options = object(body.get('stream_options'))
    if (options?.['include_usage'] === true) return undefined
    body.set('stream_options', { ...options, include_usage: true })
    return hideUsage
  },
  signals: [
    '_tokens"',
    '"error"',
    'data: [DONE]',
    ...FOREIGN_FAILURES,
    '"finish_reason":"',
    '"finish_reason": "',
    // Many providers repeat the standard tier in each chunk.
    /"service_tier": ?"(?!default"|auto"|standard")/,
  ],
  text: {
    // `text` stands in a list of content, and `name` in a call.
    stream: [
      'content',
      'text',
      'reasoning_content',
      'reasoning_text',
      'thinking',
      'summary',
      'tool_plan',
      'reasoning',
      'name',
      'arguments',
      'refusal',
      'input',
      'transcript',
    ],
    repeats: '"type":"reasoning.text","text":"',
    reply: ['content', 'text', 'reasoning_content', 'reasoning', 'name', 'arguments', 'refusal'],
  },
  read,
  modelOf: json => text(object(json)?.['model']),
  decodeUsage: countInclusive,
  encodeUsage: usage => encodeInclusive(usage, USAGE),
  rateHeaders: openaiRateHeaders,
  status: error => error.status,
  error: error => ({ error: openaiError(error) }),
  replaceError: (_json, error) => ({ error: openaiError(error) }),
  errorEvent: error => frame('', JSON.stringify({ error: openaiError(error) })),
  recognisable: recognisedByCode,
  overflow: (tokens, most) =>
    tokens === undefined || most === undefined
      ? "The input exceeds the model's maximum context length. Please reduce the length of the messages."
      : `This model's maximum context length is ${most} tokens. However, your messages resulted in ${tokens} tokens. Please reduce the length of the messages.`,
  codec: {
    translates: CARRIES,
    refuses: REFUSES,
    repeats: [],
    decodeRequest: (body, _headers, dropped) => decodeRequest(body, dropped),
    encodeRequest,
    decodeReply,
    encodeReply,
    decoder,
    encoder,
  },
  truncate(usage, { opening, choices, closed }) {
    const { id, object: kind, created, model } = object(opening?.json) ?? {}
    const chunk = (members: Json): OutgoingEvent => ({
      type: '',
      data: JSON.stringify({ id, object: kind, created, model, ...members }),
    })
    const open = Array.from({ length: choices }, (_, index) => index).filter(index => !closed.has(index))
    return [
      ...open.map(index => chunk({ choices: [{ index, delta: {}, finish_reason: 'length' }] })),
      chunk({ choices: [], usage: chatCompletions.encodeUsage(usage) }),
      { type: '', data: DONE },
    ]
  },
}
