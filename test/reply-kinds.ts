/**
 * Replies of scripted providers of each format, to clients of each format, as JSON and as a stream: what each kind of reply
 * is, and what the client must get.
 */
import type { ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { FORMATS } from '../core/formats/index.ts'
import { FORMAT_NAMES, type FormatName } from '../core/formats/terms.ts'
import type { Edit } from './gateway-file.ts'
import { startGateway } from './gateway.ts'
import { DONE } from './stream-events.ts'
import { ScriptedUpstream } from './upstream.ts'

export const KEY_TYPES: Readonly<Record<FormatName, readonly [type: string, model: string]>> = {
  'chat-completions': ['editor', 'acme/famB-4.6'],
  responses: ['famC', 'acme/famC-5.5'],
  messages: ['famA', 'acme/famA-medium-5'],
}
export const SAID = 'Hi there'

export const REQUESTS: Readonly<Record<FormatName, object>> = {
  'chat-completions': { max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
  responses: { max_output_tokens: 100, input: 'hello' },
  messages: { max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
}

export const response = {
  id: 'resp_1',
  object: 'response',
  created_at: 1,
  status: 'completed',
  model: 'm',
  output: [
    {
      id: 'msg_1',
      type: 'message',
      status: 'completed',
      role: 'assistant',
      content: [{ type: 'output_text', text: SAID, annotations: [] }],
    },
  ],
  usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
}
export const REPLIES: Readonly<Record<FormatName, object>> = {
  'chat-completions': {
    id: 'c1',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content: SAID }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 },
  },
  responses: response,
  messages: {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [{ type: 'text', text: SAID }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 10, output_tokens: 5 },
  },
}

export const chunk = (members: object): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', ...members })}\n\n`
export const event = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`
export const item = response.output[0] as object
export const STREAMS: Readonly<Record<FormatName, readonly string[]>> = {
  'chat-completions': [
    chunk({ choices: [{ index: 0, delta: { role: 'assistant', content: SAID }, finish_reason: null }] }),
    chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
    chunk({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } }),
    DONE,
  ],
  responses: [
    event('response.created', { sequence_number: 0, response: { ...response, status: 'in_progress', output: [] } }),
    event('response.output_item.added', { sequence_number: 1, output_index: 0, item: { ...item, content: [] } }),
    event('response.output_text.delta', { sequence_number: 2, output_index: 0, content_index: 0, delta: SAID }),
    event('response.output_item.done', { sequence_number: 3, output_index: 0, item }),
    event('response.completed', { sequence_number: 4, response }),
  ],
  messages: [
    event('message_start', { message: { ...REPLIES.messages, content: [], usage: { input_tokens: 10, output_tokens: 1 } } }), // prettier-ignore
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: SAID } }),
    event('content_block_stop', { index: 0 }),
    event('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 5 } }),
    event('message_stop', {}),
  ],
}

/** How a client of each format sees that a stream is whole. */
export const ENDS: Readonly<Record<FormatName, RegExp>> = {
  'chat-completions': /"finish_reason":"stop"/,
  responses: /event: response\.completed\n/,
  messages: /event: message_stop\n/,
}

export interface Cell {
  readonly upstream: FormatName
  readonly client: FormatName
  readonly stream: boolean
}

export interface Answer {
  readonly status: number
  readonly text: string
  readonly json: any
}

/** A kind: what the upstream answers, and what the client must get; or why there is no such cell. */
export interface Kind {
  readonly name: string
  readonly answer: (res: ServerResponse, cell: Cell) => void
  readonly check: (t: Test, answer: Answer, cell: Cell) => void
  readonly why?: (cell: Cell) => string | undefined
  /** What the history says of the charge: all input, input read from and written to a cache, output; and the marks. */
  readonly charged?: (cell: Cell) => object
}

export const isWhole = (t: Test, answer: Answer, { client, stream }: Cell): void => {
  t.equal(answer.status, 200)
  t.match(answer.text, SAID)
  t.notMatch(answer.text, /"error":\{/)
  if (stream) t.match(answer.text, ENDS[client])
}

const CELLS: readonly Cell[] = FORMAT_NAMES.flatMap(upstream =>
  FORMAT_NAMES.flatMap(client => [true, false].map(stream => ({ upstream, client, stream }))),
)

/** Tests that each kind of reply comes right in each cell, on one gateway. */
export async function testKinds(t: Test, kinds: readonly Kind[], edit: Edit = file => file): Promise<void> {
  const provider = await ScriptedUpstream.start(t)
  const g = await startGateway(t, {
    upstream: provider.url,
    edit: file => edit(file.set('upstreams.famC.speaks', ['responses'])),
  })
  const keys = new Map<FormatName, string>()
  for (const name of FORMAT_NAMES) keys.set(name, await g.key(KEY_TYPES[name][0]))
  for (const { name, answer, check, why, charged } of kinds)
    await t.test(name, async t => {
      for (const cell of CELLS) {
        const { upstream, client, stream } = cell
        const title = `${upstream} to ${client}, ${stream ? 'stream' : 'JSON'}`
        const reason = why?.(cell)
        if (reason !== undefined) {
          t.pass(`${title}: no test, because ${reason}`)
          continue
        }
        g.gateway.pool.reset()
        provider.script = (_received, res) => answer(res, cell)
        const [key, model] = [keys.get(upstream) as string, KEY_TYPES[upstream][1]]
        const body = { model, stream, ...REQUESTS[client] }
        const got = await g.call(FORMATS[client].path, { key, body })
        const entry = charged ? (await g.settled(key))[0] : undefined
        await t.test(title, async t => {
          check(t, got, cell)
          if (charged) t.match(entry, charged(cell))
        })
      }
      for (const key of keys.values()) await g.settled(key)
    })
}
