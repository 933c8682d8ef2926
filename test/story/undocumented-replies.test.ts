import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { FormatName } from '../../core/formats/terms.ts'
import {
  type Answer,
  type Cell,
  chunk,
  event,
  isWhole,
  type Kind,
  REPLIES,
  response,
  STREAMS,
  testKinds,
} from '../reply-kinds.ts'
import { DONE } from '../stream-events.ts'
import { json } from '../upstream.ts'

/** What real upstreams send that no vendor documents. A cell without a test says why. */

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
  ...['text/plain; charset=utf-8', 'application/json', 'application/octet-stream'].map((type): Kind => ({
    name: `a stream that is called ${type}`,
    answer: (res, { upstream }) => void res.writeHead(200, { 'content-type': type }).end(STREAMS[upstream].join('')),
    check: isWhole,
    why: ({ stream }) => (stream ? undefined : 'a JSON reply is no stream'),
  })),
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

t.test('undocumented replies', t => testKinds(t, [...KINDS, ...STRANGE_KINDS, ...USAGE_KINDS]))
