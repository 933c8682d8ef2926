import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { FORMATS } from '../../core/formats/index.ts'
import { FORMAT_NAMES, type FormatName } from '../../core/formats/terms.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { DONE } from '../stream-events.ts'

/**
 * What real upstreams send that no vendor documents: each kind from an upstream of each format, to a client of each
 * format, as JSON and as a stream. A cell without a test says why.
 */

const KEY_TYPES: Readonly<Record<FormatName, readonly [type: string, model: string]>> = {
  'chat-completions': ['editor', 'acme/famB-4.6'],
  responses: ['famC', 'acme/famC-5.5'],
  messages: ['famA', 'acme/famA-medium-5'],
}
const SAID = 'Hi there'

const REQUESTS: Readonly<Record<FormatName, object>> = {
  'chat-completions': { max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
  responses: { max_output_tokens: 100, input: 'hello' },
  messages: { max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
}

const response = {
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
const REPLIES: Readonly<Record<FormatName, object>> = {
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

const chunk = (members: object): string =>
  `data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm', ...members })}\n\n`
const event = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`
const item = response.output[0] as object
const STREAMS: Readonly<Record<FormatName, readonly string[]>> = {
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
const ENDS: Readonly<Record<FormatName, RegExp>> = {
  'chat-completions': /"finish_reason":"stop"/,
  responses: /event: response\.completed\n/,
  messages: /event: message_stop\n/,
}

interface Cell {
  readonly upstream: FormatName
  readonly client: FormatName
  readonly stream: boolean
}

interface Answer {
  readonly status: number
  readonly text: string
  readonly json: any
}

/** A kind: what the upstream answers, and what the client must get; or why there is no such cell. */
interface Kind {
  readonly name: string
  readonly answer: (res: ServerResponse, cell: Cell) => void
  readonly check: (t: Test, answer: Answer, cell: Cell) => void
  readonly why?: (cell: Cell) => string | undefined
  /** What the history says of the charge: all input, input read from and written to a cache, output; and the marks. */
  readonly charged?: (cell: Cell) => object
}

const isWhole = (t: Test, answer: Answer, { client, stream }: Cell): void => {
  t.equal(answer.status, 200)
  t.match(answer.text, SAID)
  t.notMatch(answer.text, /"error":\{/)
  if (stream) t.match(answer.text, ENDS[client])
}

const failedWith =
  (status: number, body: unknown) =>
  (res: ServerResponse): void =>
    void res.writeHead(status, { 'content-type': 'application/json' }).end(typeof body === 'string' ? body : JSON.stringify(body)) // prettier-ignore

const TOLD = 'The parameter frobnicate is not supported.'

const isRejected =
  (words: RegExp) =>
  (t: Test, answer: Answer, { client }: Cell): void => {
    t.equal(answer.status, 400)
    t.match(answer.json, client === 'messages' ? { type: 'error', error: { message: words } } : { error: { message: words } }) // prettier-ignore
  }

/** What each format's agents recognise. */
const isOverflow = (t: Test, answer: Answer, { client }: Cell): void => {
  t.equal(answer.status, 400)
  if (client === 'messages') t.match(answer.json.error.message, /prompt is too long|input is too long/i)
  else t.equal(answer.json.error.code, 'context_length_exceeded')
}

const isHidden = (t: Test, answer: Answer): void => {
  t.ok(answer.status >= 500, String(answer.status))
  t.notMatch(answer.text, /balance|org-1/i)
}

const envelope = (name: string, body: unknown): Kind => ({
  name: `an error ${name}`,
  answer: failedWith(400, body),
  check: isRejected(/frobnicate/),
})
const overflow = (message: string): Kind => ({
  name: `a prompt that is too long: ${message}`,
  answer: failedWith(400, { error: { message, type: 'invalid_request_error', code: null } }),
  check: isOverflow,
})
const empty = (name: string, body: object): Kind => ({
  name: `a reply without content: ${name}`,
  answer: res => json(res, body),
  check: isHidden,
})

const KINDS: readonly Kind[] = [
  {
    name: 'a reply without Content-Type',
    answer(res, { upstream, stream }) {
      res.writeHead(200).end(stream ? STREAMS[upstream].join('') : JSON.stringify(REPLIES[upstream]))
    },
    check: isWhole,
  },
  {
    name: 'a stream without its last event',
    answer: (res, { upstream }) =>
      void res.writeHead(200, { 'content-type': 'text/event-stream' }).end(STREAMS[upstream].slice(0, -1).join('')),
    check: isWhole,
    why({ upstream, stream }) {
      if (!stream) return 'a JSON reply is one event'
      return upstream === 'responses'
        ? 'the last event alone says whether the reply is whole, and what it used'
        : undefined
    },
  },
  empty('an empty object', {}),
  empty('a code of its own', { code: 500, msg: 'org-1', success: false }),
  empty('empty choices', { choices: [], data: null }),
  envelope('at the top level', { object: 'error', message: TOLD, type: 'BadRequestError', param: null, code: 400 }),
  envelope('in `detail`', { detail: TOLD }),
  envelope('in a list of `detail`', { detail: [{ loc: ['body', 'x'], msg: TOLD, type: 'missing' }] }),
  envelope('of the OpenAI shape', { error: { message: TOLD, type: 'invalid_request_error', param: null, code: null } }),
  envelope('of the Anthropic shape', { type: 'error', error: { type: 'invalid_request_error', message: TOLD } }),
  envelope('inside a list', [{ error: { code: 400, message: TOLD, status: 'INVALID_ARGUMENT' } }]),
  envelope('of another provider inside', { error: { message: 'Provider returned error', metadata: { raw: JSON.stringify({ error: { message: TOLD } }) } } }), // prettier-ignore
  envelope('as plain text', TOLD),
  overflow("You passed 8193 input tokens. However, the model's context length is only 8192 tokens."),
  overflow('The request exceeds the token limit'),
  overflow('Trying to keep the first 6000 tokens when context the overflows.'),
  {
    name: 'a bad request about the account',
    answer: failedWith(400, {
      error: { type: 'invalid_request_error', message: 'org-1: your credit balance is too low' },
    }),
    check: isHidden,
  },
  {
    name: 'a quota that is used up',
    answer: failedWith(429, { error: { type: 'insufficient_quota', code: 'insufficient_quota', message: 'org-1' } }),
    check: isHidden,
  },
]

/** How a usage of each format is spelled. */
interface Spelled {
  readonly input: number
  readonly read?: number
  readonly written?: number
  readonly output: number
}
const SPELLINGS: Readonly<Record<FormatName, (usage: Spelled) => Record<string, unknown>>> = {
  'chat-completions': ({ input, read, output }) => ({
    prompt_tokens: input,
    completion_tokens: output,
    ...(read !== undefined && { prompt_tokens_details: { cached_tokens: read } }),
  }),
  responses: ({ input, read, output }) => ({
    input_tokens: input,
    output_tokens: output,
    ...(read !== undefined && { input_tokens_details: { cached_tokens: read } }),
  }),
  messages: ({ input, read = 0, output }) => ({
    input_tokens: input - read,
    cache_read_input_tokens: read,
    output_tokens: output,
  }),
}

/** A reply that reports usages, in one piece or as a stream. */
function reporting(res: ServerResponse, { upstream, stream }: Cell, reports: readonly Record<string, unknown>[]): void {
  const last = reports.at(-1)
  if (!stream) return json(res, { ...REPLIES[upstream], usage: last })
  const ways: Readonly<Record<FormatName, () => string>> = {
    'chat-completions': () =>
      [...STREAMS['chat-completions'].slice(0, 2), ...reports.map(usage => chunk({ choices: [], usage })), DONE].join(''), // prettier-ignore
    responses: () =>
      STREAMS.responses.slice(0, -1).join('') +
      event('response.completed', { sequence_number: 4, response: { ...response, usage: last } }),
    messages: () =>
      event('message_start', { message: { ...REPLIES.messages, content: [], usage: reports[0] } }) +
      STREAMS.messages.slice(1, 4).join('') +
      event('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: last }) +
      STREAMS.messages[5],
  }
  res.writeHead(200, { 'content-type': 'text/event-stream' }).end(ways[upstream]())
}

const usageKind = (
  name: string,
  reports: (upstream: FormatName) => readonly Record<string, unknown>[],
  charged: object,
  why?: Kind['why'],
): Kind => ({
  name: `usage: ${name}`,
  answer: (res, cell) => reporting(res, cell, reports(cell.upstream)),
  check: isWhole,
  charged: () => charged,
  ...(why && { why }),
})

const PLAIN = { input: 1000, read: 400, output: 300 }
const READ = { input_tokens: 1000, cache_read_tokens: 400, output_tokens: 300, status: 'ok' }
const texts = (value: unknown): unknown =>
  typeof value === 'number'
    ? String(value)
    : Object.fromEntries(Object.entries(value as object).map(([name, inner]) => [name, texts(inner)]))

/** An event that reports a failure in no format's own shape. */
const strange = (name: string, data: object, type?: string): Kind => ({
  name: `a failure in a stream: ${name}`,
  answer(res, { upstream }) {
    const said = `${type === undefined ? '' : `event: ${type}\n`}data: ${JSON.stringify(data)}\n\n`
    const [first = '', ...others] = STREAMS[upstream]
    const begun = upstream === 'chat-completions' ? first : [first, ...others.slice(0, 2)].join('')
    res.writeHead(200, { 'content-type': 'text/event-stream' }).end(begun + said)
  },
  check(t, answer, { client }) {
    t.notMatch(answer.text, /org-1/)
    const ends: Readonly<Record<FormatName, RegExp>> = {
      'chat-completions': /data: \{"error":\{/,
      responses: /event: (?:error|response\.failed)\n/,
      messages: /event: error\n/,
    }
    t.match(answer.text, ends[client])
    t.notMatch(answer.text, /message_stop|"finish_reason":"stop"|response\.completed/)
  },
  why: ({ stream }) => (stream ? undefined : 'a JSON reply has its own kinds'),
})
const STRANGE_KINDS: readonly Kind[] = [
  strange('of vLLM', { object: 'error', message: 'org-1', type: 'BadRequestError', code: 400 }),
  strange('with a code', { code: 'Arrearage', message: 'org-1' }),
  strange('in `detail`', { detail: 'org-1' }),
  strange('in `errors`', { errors: [{ message: 'org-1' }] }),
  strange('in `error`', { error: { message: 'org-1', type: 'server_error' } }),
  strange('of an event `error`', { error: { message: 'org-1' } }, 'error'),
]

const USAGE_KINDS: readonly Kind[] = [
  usageKind('as documented', upstream => [SPELLINGS[upstream](PLAIN)], READ),
  usageKind(
    'a last report of zeros',
    upstream => [SPELLINGS[upstream](PLAIN), { ...SPELLINGS[upstream]({ input: 0, read: 0, output: 0 }), ...(upstream === 'messages' && { output_tokens: 300 }) }], // prettier-ignore
    READ,
    ({ upstream, stream }) => {
      if (!stream) return 'a JSON reply has one report'
      return upstream === 'responses' ? 'only the last event reports' : undefined
    },
  ),
  usageKind('counters as texts', upstream => [texts(SPELLINGS[upstream](PLAIN)) as Record<string, unknown>], READ),
  usageKind(
    'cached tokens beside the counters',
    upstream => [{ ...SPELLINGS[upstream]({ input: 1000, output: 300 }), cached_tokens: 400 }],
    READ,
    ({ upstream }) => (upstream === 'messages' ? 'its counters exclude cached input, so the name would be ambiguous' : undefined), // prettier-ignore
  ),
  usageKind(
    'a total above the sum',
    upstream => [{ ...SPELLINGS[upstream]({ input: 1000, output: 20 }), total_tokens: 1060 }],
    { input_tokens: 1040, output_tokens: 20 },
  ),
  usageKind(
    'a negative counter among good ones',
    upstream => [{ ...SPELLINGS[upstream](PLAIN), reasoning_tokens: -1 }],
    READ,
  ),
]

const CELLS: readonly Cell[] = FORMAT_NAMES.flatMap(upstream =>
  FORMAT_NAMES.flatMap(client => [true, false].map(stream => ({ upstream, client, stream }))),
)

let g: TestGateway
let provider: ScriptedUpstream
const keys = new Map<FormatName, string>()
t.before(async () => {
  provider = await ScriptedUpstream.start(t)
  g = await startGateway(t, {
    upstream: provider.url,
    edit: file => file.set('upstreams.famC.speaks', ['responses']),
  })
  for (const name of FORMAT_NAMES) keys.set(name, await g.key(KEY_TYPES[name][0]))
})

for (const { name, answer, check, why, charged } of [...KINDS, ...STRANGE_KINDS, ...USAGE_KINDS])
  t.test(name, async t => {
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
