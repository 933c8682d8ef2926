/** The chat-completions format: anonymous SSE events, `[DONE]` at the end, usage only for those who ask. */
import type { Body } from '../body.ts'
import { frame, type OutgoingEvent, type ReplyEvent, type Rewriter } from './events.ts'
import type { Format, Reading } from './format.ts'
import { openaiError } from './openai-errors.ts'
import { countInclusive, failureOf, forwarding, object, positive, text } from './reading.ts'

/** Takes the usage out of a stream whose client did not ask for it: such clients index `choices[0]` of every chunk. */
const hideUsage: Rewriter = {
  needles: ['"usage"'],
  event(event: ReplyEvent): OutgoingEvent[] | undefined {
    const chunk = object(event.json)
    if (!chunk || !('usage' in chunk)) return undefined
    if (chunk['usage'] === null) {
      const { usage: _usage, ...rest } = chunk
      // Quotes inside JSON strings are escaped, so what stands once can only be the member itself.
      const once = event.data.indexOf('"usage"') === event.data.lastIndexOf('"usage"')
      const data = once ? event.data.replace(/,\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,\s*/, '') : JSON.stringify(rest)
      return [{ type: event.type, data }]
    }
    return Array.isArray(chunk['choices']) && chunk['choices'].length === 0 ? [] : undefined
  },
}

function read(json: unknown): Reading {
  const chunk = object(json)
  if (!chunk) return {}
  if (chunk['error'] !== undefined && chunk['error'] !== null) return { failure: failureOf(chunk['error']), last: true }
  const usage = object(chunk['usage'])
  const choices = Array.isArray(chunk['choices']) ? chunk['choices'] : []
  const last = choices.some(choice => text(object(choice)?.['finish_reason']) !== undefined)
  return { ...(usage && { usage }), ...(last && { last }) }
}

export const chatCompletions: Format = {
  name: 'chat-completions',
  path: '/v1/chat/completions',
  required: { messages: 'array' },
  typed: { stream: 'boolean', max_tokens: 'count', max_completion_tokens: 'count', n: 'count' },
  forwards: forwarding([], []),
  outputLimit(json) {
    const limit = positive(json['max_completion_tokens']) ?? positive(json['max_tokens'])
    return limit === undefined ? undefined : limit * (positive(json['n']) ?? 1)
  },
  defaultHeaders: {},
  prepare(body: Body): Rewriter | undefined {
    if (body.get('stream') !== true) return undefined
    const options = object(body.get('stream_options'))
    if (options?.['include_usage'] === true) return undefined
    body.set('stream_options', { ...options, include_usage: true })
    return hideUsage
  },
  telling: ['_tokens"', '"error"', 'data: [DONE]', '"finish_reason":"', '"finish_reason": "'],
  text: {
    stream: ['content', 'reasoning_content', 'arguments', 'refusal'],
    reply: ['content', 'reasoning_content', 'arguments', 'refusal'],
  },
  read,
  count: raw =>
    countInclusive(raw, {
      input: 'prompt_tokens',
      output: 'completion_tokens',
      inputDetails: 'prompt_tokens_details',
      outputDetails: 'completion_tokens_details',
    }),
  status: error => error.status,
  error: error => ({ error: openaiError(error) }),
  disguise: (_json, error) => ({ error: openaiError(error) }),
  tail: error => frame('', JSON.stringify({ error: openaiError(error) })),
}
