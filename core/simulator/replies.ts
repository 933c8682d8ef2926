/** Replies of the simulated provider in each format, complete and with correct usage. */
import type { FormatName, Json } from '../formats/terms.ts'
import { typedEvent, type OutgoingEvent } from '../formats/events.ts'
import { NO_USAGE, type Usage } from '../money/usage.ts'
import { chatCompletions } from '../formats/chat-completions/index.ts'
import { messages as messagesFormat } from '../formats/messages/index.ts'
import { object } from '../formats/json.ts'
import { responses as responsesFormat } from '../formats/responses/index.ts'

/** The content of a reply, independent of formats. */
export interface Said {
  readonly id: string
  readonly model: string
  /** The parts in which the text is streamed. */
  readonly pieces: readonly string[]
  readonly inputTokens: number
  readonly outputTokens: number
  /** Whether the output limit truncated the reply. */
  readonly cut: boolean
  /** Seconds since the epoch. */
  readonly createdAt: number
  readonly request: Json
}

/** One reply, as JSON and as the events of a stream. */
export interface Spelling {
  json(said: Said): unknown
  events(said: Said): readonly OutgoingEvent[]
}

const used = (said: Said): Usage => ({ ...NO_USAGE, input: said.inputTokens, output: said.outputTokens })
const anonymous = (json: unknown): OutgoingEvent => ({ type: '', data: JSON.stringify(json) })

const chat: Spelling = {
  json(said) {
    return {
      id: `chatcmpl-${said.id}`,
      object: 'chat.completion',
      created: said.createdAt,
      model: said.model,
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: said.pieces.join(''), refusal: null, annotations: [] },
          logprobs: null,
          finish_reason: said.cut ? 'length' : 'stop',
        },
      ],
      usage: chatCompletions.encodeUsage(used(said)),
    }
  },
  events(said) {
    const wantsUsage = object(said.request['stream_options'])?.['include_usage'] === true
    const chunk = (choices: unknown[], usage: unknown): OutgoingEvent =>
      anonymous({
        id: `chatcmpl-${said.id}`,
        object: 'chat.completion.chunk',
        created: said.createdAt,
        model: said.model,
        choices,
        ...(wantsUsage && { usage }),
      })
    const delta = (content: object, finish: string | null = null): OutgoingEvent =>
      chunk([{ index: 0, delta: content, logprobs: null, finish_reason: finish }], null)
    return [
      delta({ role: 'assistant', content: '' }),
      ...said.pieces.map(content => delta({ content })),
      delta({}, said.cut ? 'length' : 'stop'),
      ...(wantsUsage ? [chunk([], chatCompletions.encodeUsage(used(said)))] : []),
      { type: '', data: '[DONE]' },
    ]
  },
}

const responses: Spelling = {
  json(said) {
    return response(said, said.cut ? 'incomplete' : 'completed', [message(said, 'completed', said.pieces.join(''))])
  },
  events(said) {
    const text = said.pieces.join('')
    const place = { item_id: `msg_${said.id}`, output_index: 0, content_index: 0 }
    const sequence: { type: string; [member: string]: unknown }[] = [
      { type: 'response.created', response: response(said, 'in_progress', []) },
      { type: 'response.in_progress', response: response(said, 'in_progress', []) },
      { type: 'response.output_item.added', output_index: 0, item: message(said, 'in_progress') },
      { type: 'response.content_part.added', ...place, part: part('') },
      ...said.pieces.map(delta => ({ type: 'response.output_text.delta', ...place, delta, logprobs: [] })),
      { type: 'response.output_text.done', ...place, text, logprobs: [] },
      { type: 'response.content_part.done', ...place, part: part(text) },
      { type: 'response.output_item.done', output_index: 0, item: message(said, 'completed', text) },
      { type: said.cut ? 'response.incomplete' : 'response.completed', response: responses.json(said) },
    ]
    return sequence.map((json, number) => typedEvent({ ...json, sequence_number: number }))
  },
}

const part = (text: string): object => ({ type: 'output_text', annotations: [], text })

function message(said: Said, status: string, text?: string): object {
  const content = text === undefined ? [] : [part(text)]
  return { id: `msg_${said.id}`, type: 'message', status, role: 'assistant', content }
}

function response(said: Said, status: string, output: object[]): object {
  const over = status !== 'in_progress'
  return {
    id: `resp_${said.id}`,
    object: 'response',
    created_at: said.createdAt,
    status,
    error: null,
    incomplete_details: said.cut && over ? { reason: 'max_output_tokens' } : null,
    model: said.model,
    output,
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools: [],
    usage: over ? responsesFormat.encodeUsage(used(said)) : null,
  }
}

const messages: Spelling = {
  json(said) {
    return {
      ...started(said),
      content: [{ type: 'text', text: said.pieces.join('') }],
      stop_reason: said.cut ? 'max_tokens' : 'end_turn',
      usage: messagesUsage(said),
    }
  },
  events(said) {
    const stop = said.cut ? 'max_tokens' : 'end_turn'
    return [
      typedEvent({
        type: 'message_start',
        message: { ...started(said), usage: messagesUsage({ ...said, outputTokens: 1 }) },
      }),
      typedEvent({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
      typedEvent({ type: 'ping' }),
      ...said.pieces.map(text =>
        typedEvent({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
      ),
      typedEvent({ type: 'content_block_stop', index: 0 }),
      typedEvent({
        type: 'message_delta',
        delta: { stop_reason: stop, stop_sequence: null },
        usage: { output_tokens: said.outputTokens },
      }),
      typedEvent({ type: 'message_stop' }),
    ]
  },
}

function started(said: Said): object {
  return {
    id: `msg_${said.id}`,
    type: 'message',
    role: 'assistant',
    model: said.model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
  }
}

function messagesUsage(said: Said): object {
  return { ...messagesFormat.encodeUsage(used(said)), service_tier: 'standard' }
}

/** The reply of each format. */
export const SPELLINGS: Readonly<Record<FormatName, Spelling>> = { 'chat-completions': chat, responses, messages }
