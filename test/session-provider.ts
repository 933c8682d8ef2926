/**
 * Providers of all formats for sessions: their whole replies, and providers that sign their reasoning, refuse what they
 * have not made, and note what they bill.
 */
import { charge, type Price } from '../core/money/price.ts'
import { NO_USAGE } from '../core/money/usage.ts'
import type { Edit } from './gateway-file.ts'
import { json, type Received, type ScriptedUpstream, sse } from './upstream.ts'
import { DONE } from './stream-events.ts'

/** A call that a reply makes. */
export interface Call {
  readonly name: string
  readonly input: object
}

/** What a whole reply says. */
interface Said {
  readonly id: string
  /** Empty: the reply has no text. */
  readonly text: string
  readonly thought?: string
  readonly call?: Call | undefined
  /** Tokens; 100 and 10 by default. */
  readonly usage?: { readonly input: number; readonly output: number }
  /** Called with each value that only this provider can have made. */
  readonly mine?: (value: string) => string
}

/** A picture of one pixel, in base64. */
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/**
 * Gives the key type famC a model of each of three formats: `a` speaks messages, `b` chat completions, `c` responses.
 * @param more further models of the key type
 */
export const families =
  (price = 'medium', more: readonly object[] = []): Edit =>
  file =>
    file
      .set('upstreams.famC.speaks', ['responses'])
      .change('keyTypes.famC.models', (models: object[]) => [
        ...models,
        { id: 'a', upstream: 'famA', price, reasoning: 'shown', maxOutput: 64_000 },
        { id: 'b', upstream: 'editor', price, reasoning: 'hidden', maxOutput: 64_000 },
        { id: 'c', upstream: 'famC', price, reasoning: 'hidden', maxOutput: 64_000 },
        ...more,
      ])

/** Returns the reply, in the format of the endpoint that a request came to. */
export function replyTo({ path }: Received, said: Said): Record<string, any> {
  return WHOLE[endpointOf(path)]?.({ usage: { input: 100, output: 10 }, mine: value => value, ...said }) ?? {}
}

/** What the providers have made, and what they have billed in nano-credits. */
export interface Providers {
  readonly issued: ReadonlySet<string>
  readonly billed: bigint
  /** How many requests they have refused because they contain what is not theirs. */
  readonly refused: number
}

/**
 * Lets an upstream answer each request in its format: with reasoning, a text, and the call that `callOf` gives.
 * @param inputOf the input tokens that a request is billed
 */
export function providers(
  upstream: ScriptedUpstream,
  price: Price,
  callOf: (received: Received) => Call | undefined,
  inputOf: (received: Received, count: number) => number = (_received, count) => 1000 + count,
): Providers {
  const issued = new Set<string>()
  const state = { issued, billed: 0n, refused: 0 }
  let count = 0
  upstream.script = (received, res) => {
    const streamOf = STREAMS[endpointOf(received.path)]
    if (!streamOf) return void res.writeHead(404).end()
    const foreign = strangers(received.json, issued)
    if (foreign !== undefined) {
      state.refused++
      const error = { type: 'invalid_request_error', message: `not mine: ${foreign}` }
      return json(res, { type: 'error', error }, 400)
    }
    count++
    const usage = { input: inputOf(received, count), output: 100 + count }
    state.billed += charge({ ...NO_USAGE, ...usage }, price)
    const mine = (value: string): string => (issued.add(value), value)
    const id = `n${count}`
    const reply = replyTo(received, { id, text: `said ${id}`, thought: `thought ${id}`, call: callOf(received), usage, mine }) // prettier-ignore
    if (received.json['stream'] !== true) return json(res, reply)
    return sse(res, streamOf(reply))
  }
  return state
}

const endpointOf = (path: string): string => path.split('?')[0] as string

/** Ids of reasoning, and ids that end in the index of an item, which no provider and no client makes. */
const MADE = /^(?:rs_.+|(?:msg|fc|cmp)_.+_\d+)$/

/** A signature, an encrypted reasoning or an id that no provider here has made. */
function strangers(body: unknown, issued: ReadonlySet<string>): string | undefined {
  let found: string | undefined
  JSON.stringify(body, (name, value: unknown) => {
    if (typeof value !== 'string' || issued.has(value)) return value
    if (name === 'signature' || name === 'encrypted_content' || (name === 'id' && MADE.test(value)))
      found = `${name} ${value.slice(0, 60)}`
    return value
  })
  return found
}

const WHOLE: Readonly<Record<string, (said: Required<Omit<Said, 'call' | 'thought'>> & Said) => Record<string, any>>> =
  {
    '/v1/messages': ({ id, text, thought, call, usage: { input, output }, mine }) => ({
      id: `msg_${id}`,
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [
        ...(thought === undefined ? [] : [{ type: 'thinking', thinking: thought, signature: mine(`sig${id}`) }]),
        ...(text === '' ? [] : [{ type: 'text', text }]),
        ...(call ? [{ type: 'tool_use', id: `toolu_${id}`, ...call }] : []),
      ],
      stop_reason: call ? 'tool_use' : 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: input, output_tokens: output },
    }),
    '/v1/responses': ({ id, text, thought, call, usage: { input, output }, mine }) => ({
      id: `resp_${id}`,
      object: 'response',
      created_at: 1,
      status: 'completed',
      error: null,
      incomplete_details: null,
      model: 'm',
      output: [
        ...(thought === undefined
          ? []
          : [
              {
                id: mine(`rs_${id}`),
                type: 'reasoning',
                summary: [{ type: 'summary_text', text: thought }],
                encrypted_content: mine(`enc${id}`),
              },
            ]),
        {
          id: mine(`msg_${id}`),
          type: 'message',
          status: 'completed',
          role: 'assistant',
          content: text === '' ? [] : [{ type: 'output_text', text, annotations: [] }],
        },
        ...(call
          ? [
              {
                id: mine(`fc_${id}`),
                type: 'function_call',
                status: 'completed',
                call_id: `call_${id}`,
                name: call.name,
                arguments: JSON.stringify(call.input),
              },
            ]
          : []),
      ],
      usage: { input_tokens: input, output_tokens: output, total_tokens: input + output },
    }),
    '/v1/chat/completions': ({ id, text, thought, call, usage: { input, output } }) => ({
      id: `chatcmpl-${id}`,
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [
        {
          index: 0,
          finish_reason: call ? 'tool_calls' : 'stop',
          logprobs: null,
          message: {
            role: 'assistant',
            content: text,
            refusal: null,
            ...(thought !== undefined && { reasoning_content: thought }),
            // Other formats do not allow such an id.
            ...(call && {
              tool_calls: [
                {
                  id: `w:${id}`,
                  type: 'function',
                  function: { name: call.name, arguments: JSON.stringify(call.input) },
                },
              ],
            }),
          },
        },
      ],
      usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
    }),
  }

const named = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

/** The replies as streams of whole parts. */
const STREAMS: Readonly<Record<string, (reply: Record<string, any>) => string>> = {
  '/v1/messages': ({ content, stop_reason, usage, ...message }) =>
    named('message_start', {
      message: { ...message, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
    }) +
    content
      .map((block: Record<string, any>, index: number) => {
        const [start, deltas] =
          block['type'] === 'thinking'
            ? [{ type: 'thinking', thinking: '', signature: '' }, [{ type: 'thinking_delta', thinking: block['thinking'] }, { type: 'signature_delta', signature: block['signature'] }]] // prettier-ignore
            : block['type'] === 'text'
              ? [{ type: 'text', text: '' }, [{ type: 'text_delta', text: block['text'] }]]
              : [{ ...block, input: {} }, [{ type: 'input_json_delta', partial_json: JSON.stringify(block['input']) }]]
        return (
          named('content_block_start', { index, content_block: start }) +
          deltas.map(delta => named('content_block_delta', { index, delta })).join('') +
          named('content_block_stop', { index })
        )
      })
      .join('') +
    named('message_delta', { delta: { stop_reason, stop_sequence: null }, usage }) +
    named('message_stop', {}),
  '/v1/responses': response => {
    let number = 0
    const event = (type: string, members: object): string => named(type, { sequence_number: number++, ...members })
    return (
      event('response.created', { response: { ...response, status: 'in_progress', output: [], usage: null } }) +
      response['output']
        .map((item: Record<string, any>, output_index: number) => {
          const at = { output_index, item_id: item['id'] }
          const text = item['content']?.[0]?.text
          const part = { content_index: 0, ...at }
          const said =
            text === undefined
              ? ''
              : event('response.content_part.added', {
                  ...part,
                  part: { type: 'output_text', text: '', annotations: [] },
                }) +
                event('response.output_text.delta', { ...part, delta: text, logprobs: [] }) +
                event('response.output_text.done', { ...part, text, logprobs: [] }) +
                event('response.content_part.done', { ...part, part: item['content'][0] })
          const called =
            item['type'] === 'function_call'
              ? event('response.function_call_arguments.delta', { ...at, delta: item['arguments'] }) +
                event('response.function_call_arguments.done', { ...at, arguments: item['arguments'] })
              : ''
          const blank = item['type'] === 'function_call' ? { ...item, arguments: '' } : { ...item, ...(text !== undefined && { content: [] }) } // prettier-ignore
          return (
            event('response.output_item.added', { output_index, item: blank }) +
            said +
            called +
            event('response.output_item.done', { output_index, item })
          )
        })
        .join('') +
      event('response.completed', { response })
    )
  },
  '/v1/chat/completions': ({ id, choices, usage }) => {
    const chunk = (members: object): string =>
      `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', created: 1, model: 'm', ...members })}\n\n`
    const { message, finish_reason } = choices[0]
    const delta = (members: object, finish: string | null = null): string =>
      chunk({ choices: [{ index: 0, delta: members, finish_reason: finish }] })
    return (
      delta({ role: 'assistant', content: '' }) +
      delta({ reasoning_content: message.reasoning_content }) +
      delta({ content: message.content }) +
      (message.tool_calls ?? [])
        .map((call: object, index: number) => delta({ tool_calls: [{ index, ...call }] }))
        .join('') +
      delta({}, finish_reason) +
      chunk({ choices: [], usage }) +
      DONE
    )
  },
}
