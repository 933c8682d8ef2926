/** Streams in the exact shapes that providers send, oddities included, each with its reported usage. */
import { ReplyEvent } from '../formats/events.ts'
import { formatOf, PLAIN } from '../formats/index.ts'

/** A stream that a provider has sent. */
export interface RecordedStream {
  readonly name: string
  readonly type: 'famA' | 'famC'
  /** The endpoint of its format. */
  readonly path: string
  /** Its events, as text. */
  readonly events: readonly string[]
  /** The history entry's counters. */
  readonly usage: { readonly input: number; readonly output: number; readonly cacheRead?: number }
}

const chat = (...chunks: unknown[]): string[] => [
  ...chunks.map(chunk => `data: ${JSON.stringify(chunk)}`),
  'data: [DONE]',
]
const delta = (content: object, finish: string | null = null): object => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'acme/famC-5.5',
  choices: [{ index: 0, delta: content, finish_reason: finish }],
})
const typed = (...events: { type: string; [member: string]: unknown }[]): string[] =>
  events.map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}`)
const numbered = (...events: { type: string; [member: string]: unknown }[]): string[] =>
  typed(...events.map((event, sequence_number) => ({ ...event, sequence_number })))

const CHAT = '/v1/chat/completions'
const RESPONSES = '/v1/responses'
const MESSAGES = '/v1/messages'
const response = (status: string, rest: object = {}): object => ({
  id: 'resp_1',
  object: 'response',
  status,
  output: [],
  ...rest,
})

/** The recorded streams. */
export const STREAMS: readonly RecordedStream[] = [
  {
    name: 'chat: the usual, with obfuscation and a null usage on every chunk',
    type: 'famC',
    path: CHAT,
    events: chat(
      { ...delta({ role: 'assistant', content: '' }), usage: null, obfuscation: 'aB3' },
      { ...delta({ content: 'Grüße, 世界 🌍' }), usage: null, obfuscation: 'x' },
      { ...delta({}, 'stop'), usage: null },
      {
        ...delta({}),
        choices: [],
        usage: {
          prompt_tokens: 11,
          completion_tokens: 7,
          total_tokens: 18,
          prompt_tokens_details: { cached_tokens: 4 },
        },
      },
    ),
    usage: { input: 11, output: 7, cacheRead: 4 },
  },
  {
    name: 'chat: tool calls in fragments',
    type: 'famC',
    path: CHAT,
    events: chat(
      delta({
        role: 'assistant',
        content: null,
        tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'f', arguments: '' } }],
      }),
      delta({ tool_calls: [{ index: 0, function: { arguments: '{"usage":' } }] }),
      delta({ tool_calls: [{ index: 0, function: { arguments: '"total_tokens"}' } }] }),
      delta({}, 'tool_calls'),
      { ...delta({}), choices: [], usage: { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29 } },
    ),
    usage: { input: 20, output: 9 },
  },
  {
    name: 'chat: cumulative usage in every chunk',
    type: 'famC',
    path: CHAT,
    events: chat(
      { ...delta({ content: 'a' }), usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 } },
      { ...delta({ content: 'b' }), usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 } },
      { ...delta({}, 'stop'), usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } },
    ),
    usage: { input: 5, output: 3 },
  },
  {
    name: 'chat: choices empty first, reasoning left out of the completion count',
    type: 'famC',
    path: CHAT,
    events: chat(
      { ...delta({}), choices: [], prompt_filter_results: [] },
      delta({ reasoning_content: 'hm' }),
      delta({ content: 'ok' }, 'stop'),
      {
        ...delta({}),
        choices: [],
        usage: {
          prompt_tokens: 12,
          completion_tokens: 2,
          total_tokens: 354,
          completion_tokens_details: { reasoning_tokens: 340 },
        },
      },
    ),
    usage: { input: 12, output: 342 },
  },
  {
    name: 'responses: text and reasoning',
    type: 'famC',
    path: RESPONSES,
    events: numbered(
      { type: 'response.created', response: response('in_progress', { error: null, usage: null }) },
      { type: 'response.in_progress', response: response('in_progress', { error: null, usage: null }) },
      { type: 'response.output_item.added', output_index: 0, item: { id: 'rs_1', type: 'reasoning', summary: [] } },
      {
        type: 'response.reasoning_summary_text.delta',
        item_id: 'rs_1',
        output_index: 0,
        summary_index: 0,
        delta: 'thinking',
      },
      { type: 'response.output_text.delta', item_id: 'msg_1', output_index: 1, content_index: 0, delta: 'Grüße\n"x"' },
      {
        type: 'response.completed',
        response: response('completed', {
          usage: {
            input_tokens: 30,
            input_tokens_details: { cached_tokens: 10 },
            output_tokens: 12,
            output_tokens_details: { reasoning_tokens: 5 },
            total_tokens: 42,
          },
        }),
      },
    ),
    usage: { input: 30, output: 12, cacheRead: 10 },
  },
  {
    name: 'responses: incomplete at the output limit',
    type: 'famC',
    path: RESPONSES,
    events: numbered(
      { type: 'response.created', response: response('in_progress') },
      { type: 'response.output_text.delta', item_id: 'm', output_index: 0, content_index: 0, delta: 'cut' },
      {
        type: 'response.incomplete',
        response: response('incomplete', {
          incomplete_details: { reason: 'max_output_tokens' },
          usage: { input_tokens: 3, output_tokens: 1, total_tokens: 4 },
        }),
      },
    ),
    usage: { input: 3, output: 1 },
  },
  {
    name: 'messages: thinking, text, a tool and a ping; usage in two events, corrected by the second',
    type: 'famA',
    path: MESSAGES,
    events: typed(
      {
        type: 'message_start',
        message: {
          id: 'msg_1',
          type: 'message',
          role: 'assistant',
          content: [],
          usage: { input_tokens: 2037, cache_creation_input_tokens: 0, cache_read_input_tokens: 50, output_tokens: 1 },
        },
      },
      { type: 'content_block_start', index: 0, content_block: { type: 'thinking', thinking: '' } },
      { type: 'ping' },
      { type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 'abc' } },
      { type: 'content_block_stop', index: 0 },
      { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: '“Grüße” 🌍' } },
      { type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: '{"a":' } },
      { type: 'event_nobody_knows', x: 1 },
      {
        type: 'message_delta',
        delta: { stop_reason: 'tool_use', stop_sequence: null },
        usage: { input_tokens: 15_665, cache_read_input_tokens: null, output_tokens: 88 },
      },
      { type: 'message_stop' },
    ),
    usage: { input: 15_715, output: 88, cacheRead: 50 },
  },
  {
    name: 'messages: several cumulative deltas',
    type: 'famA',
    path: MESSAGES,
    events: typed(
      {
        type: 'message_start',
        message: { type: 'message', content: [], usage: { input_tokens: 7, output_tokens: 1 } },
      },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hi' } },
      { type: 'message_delta', delta: {}, usage: { output_tokens: 10 } },
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 20 } },
      { type: 'message_stop' },
    ),
    usage: { input: 7, output: 20 },
  },
  {
    name: 'chat: the last chunk with its usage comes twice',
    type: 'famC',
    path: CHAT,
    events: chat(
      delta({ content: 'a' }, 'stop'),
      { ...delta({}), choices: [], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } },
      { ...delta({}), choices: [], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } },
    ),
    usage: { input: 5, output: 3 },
  },
  {
    name: 'messages: output that shrinks from one report to the next stays what it was',
    type: 'famA',
    path: MESSAGES,
    events: typed(
      {
        type: 'message_start',
        message: { type: 'message', content: [], usage: { input_tokens: 7, output_tokens: 1 } },
      },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hi' } },
      { type: 'message_delta', delta: {}, usage: { output_tokens: 20 } },
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 10 } },
      { type: 'message_stop' },
    ),
    usage: { input: 7, output: 20 },
  },
  {
    name: 'messages: a compaction, whose passes are told in iterations',
    type: 'famA',
    path: MESSAGES,
    events: typed(
      {
        type: 'message_start',
        message: { type: 'message', content: [], usage: { input_tokens: 60_385, output_tokens: 1 } },
      },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'hi' } },
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: {
          input_tokens: 612,
          output_tokens: 2819,
          iterations: [
            { input_tokens: 60_385, output_tokens: 522 },
            { input_tokens: 612, output_tokens: 2819 },
          ],
        },
      },
      { type: 'message_stop' },
    ),
    usage: { input: 60_997, output: 3341 },
  },
]

/**
 * Returns the events of a stream as the hooks of a stage see them.
 * @param path the endpoint of its format
 * @param texts its events: lines of `event:` and `data:`
 */
export function replyEvents(path: string, texts: readonly string[]): ReplyEvent[] {
  const format = formatOf(path) ?? PLAIN
  return texts.map(text => {
    const field = (name: string): string => new RegExp(`^${name}: ?(.*)$`, 'm').exec(text)?.[1] ?? ''
    return new ReplyEvent(format, field('event'), field('data'))
  })
}
