import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import Anthropic, {
  APIError as AnthropicError,
  BadRequestError as AnthropicBadRequest,
  OverloadedError,
} from '@anthropic-ai/sdk'
import OpenAI, { APIError, BadRequestError, InternalServerError } from 'openai'
import t from 'tap'
import { startGateway, until, type TestGateway } from '../gateway.ts'
import { rejects } from '../rejects.ts'
import { begun, json, ScriptedUpstream, sse } from '../upstream.ts'

/** Errors, money, limits, headers and leaving are the same for a translated exchange as for any other. */

let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url })
})

const CHAT = '/v1/chat/completions'
const MESSAGES = [{ role: 'user' as const, content: 'Hello' }]
const famA = { model: 'acme/famA-medium-5', messages: MESSAGES }
const famC = { model: 'acme/famC-5.5', max_tokens: 100, messages: MESSAGES }
const openai = (key: string): OpenAI => new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
const anthropic = (key: string): Anthropic => new Anthropic({ apiKey: key, baseURL: g.url, maxRetries: 0 })

const event = (type: string, members: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`
const START = event('message_start', {
  message: {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    content: [],
    usage: { input_tokens: 1000, output_tokens: 1 },
  },
})
const OPEN = event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } })
const text = (said: string): string =>
  event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: said } })
const end = (output: number): string =>
  event('content_block_stop', { index: 0 }) +
  event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: output } }) +
  event('message_stop')

t.test('a prompt that is too long gets the words that make the client shorten it', async t => {
  const [a, c] = [await g.key('famA'), await g.key('famC')]
  upstream.script = (_received, res) =>
    json(
      res,
      {
        type: 'error',
        error: { type: 'invalid_request_error', message: 'prompt is too long: 210000 tokens > 200000 maximum' },
      },
      400,
    )
  const chatWords =
    /maximum context length is 200000 tokens\. However, your messages resulted in 210000 tokens\. Please reduce the length of the messages/
  await rejects(t, openai(a).chat.completions.create(famA), BadRequestError, {
    code: 'context_length_exceeded',
    type: 'invalid_request_error',
    message: chatWords,
  })
  await rejects(t, openai(a).responses.create({ model: famA.model, input: 'x' }), BadRequestError, {
    code: 'context_length_exceeded',
    message: /exceeds the context window/,
  })
  const words =
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the messages."
  upstream.script = (_received, res) =>
    json(res, { error: { message: words, type: 'invalid_request_error', code: 'context_length_exceeded' } }, 400)
  const answer = await g.call('/v1/messages', { key: c, body: famC })
  t.match(answer, {
    status: 400,
    json: {
      type: 'error',
      error: { type: 'invalid_request_error', message: /^prompt is too long: 130000 tokens > 128000 maximum$/ },
    },
  })
  upstream.script = (_received, res) =>
    json(
      res,
      { error: { message: 'Your input exceeds the context window of this model.', code: 'context_length_exceeded' } },
      400,
    )
  t.equal((await g.call('/v1/messages', { key: c, body: famC })).json.error.message, 'Input is too long.')
  upstream.script = (_received, res) =>
    sse(
      res,
      event('response.failed', {
        sequence_number: 0,
        response: { status: 'failed', error: { code: 'context_length_exceeded', message: 'Too much.' } },
      }),
    )
  t.match(await g.call('/v1/messages', { key: c, body: { ...famC, stream: true } }), {
    status: 400,
    json: { error: { message: 'Input is too long.' } },
  })
})

t.test('the upstream’s other rejections keep their words and lose what only its own clients understand', async t => {
  const key = await g.key('famC')
  upstream.script = (_received, res) =>
    json(
      res,
      {
        error: {
          message: 'Invalid schema for function f',
          type: 'invalid_request_error',
          param: 'tools[0].parameters',
          code: 'invalid_function_parameters',
        },
      },
      400,
    )
  await rejects(t, anthropic(key).messages.create(famC), AnthropicBadRequest, {
    type: 'invalid_request_error',
    message: /Invalid schema for function f/,
  })
  upstream.script = (_received, res) =>
    json(res, { error: { message: 'org-1 is out', type: 'insufficient_quota' } }, 429)
  await rejects(t, anthropic(key).messages.create(famC), OverloadedError, { status: 529, message: /overloaded/ })
  upstream.script = (_received, res) => json(res, { error: { message: 'bad key', code: 'invalid_api_key' } }, 401)
  await rejects(t, anthropic(key).messages.create(famC), OverloadedError, { status: 529 })
  g.gateway.pool.reset()
})

t.test('an editor-only model answers another client with the upstream’s words', async t => {
  upstream.script = (_received, res) => json(res, { error: 'This model is only available inside the editor.' }, 400)
  const key = await g.key('editor')
  for (const path of [CHAT, '/v1/responses', '/v1/messages']) {
    const { status, json } = await g.call(path, {
      key,
      body: { model: 'acme/famD-2.5', messages: MESSAGES, input: 'x', max_tokens: 5 },
    })
    t.match(
      { status, message: json.error.message },
      { status: 400, message: 'This model is only available inside the editor.' },
      path,
    )
  }
})

t.test('a stream that breaks or fails throws in the client’s SDK, whatever format the upstream speaks', async t => {
  const [a, c] = [await g.key('famA'), await g.key('famC')]
  for (const [what, tail] of [
    ['broken off', ''],
    ['failed', event('error', { error: { type: 'overloaded_error', message: 'org-123 is overloaded' } })],
  ] as const) {
    upstream.script = (_received, res) => sse(res, START + OPEN + text('Half') + tail)
    const drain = async (stream: AsyncIterable<unknown>): Promise<void> => {
      for await (const each of stream) t.notMatch(JSON.stringify(each), 'org-123', what)
    }
    await rejects(
      t,
      openai(a)
        .chat.completions.create({ ...famA, stream: true })
        .then(drain),
      APIError,
      { message: /provider/i },
    )
    await rejects(
      t,
      openai(a).responses.create({ model: famA.model, input: 'x', stream: true }).then(drain),
      APIError,
      { message: /provider/i },
    )
  }
  upstream.script = (_received, res) =>
    sse(res, event('response.created', { sequence_number: 0, response: { id: 'resp_1' } }))
  const drained = anthropic(c).messages.stream(famC).finalMessage()
  await rejects(t, drained, AnthropicError, { message: /closed the connection/ })
})

t.test('what cannot be translated is refused by name and costs nothing; what is dropped is named', async t => {
  const key = await g.key('famA')
  const before = upstream.requests.length
  await rejects(t, openai(key).chat.completions.create({ ...famA, n: 2 }), BadRequestError, {
    param: 'n',
    code: 'invalid_request_body',
  })
  await rejects(
    t,
    openai(key).responses.create({ model: famA.model, input: 'x', previous_response_id: 'resp_1' }),
    BadRequestError,
    {
      param: 'previous_response_id',
    },
  )
  t.equal(upstream.requests.length, before)
  upstream.script = (_received, res) => sse(res, START + OPEN + text('x') + end(1))
  const stream = await g.call(CHAT, { key, body: { ...famA, seed: 7, 'x\r\ny': 1, stream: true } })
  t.match(stream.headers.get('x-tollgate-dropped'), /^x__y, seed$/)
  t.equal((await g.settled(key)).length, 1, 'only what reached the upstream is in the history')
  const native = await g.call('/v1/messages', { key, body: { ...famA, max_tokens: 5, top_k: 7, stream: true } })
  t.equal(native.headers.get('x-tollgate-dropped'), null, 'native requests lose nothing')
})

t.test('the upstream’s usage is charged, and the client sees the same in its own counters', async t => {
  const key = await g.key('famA')
  const usage = {
    input_tokens: 100,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 300,
    cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
    output_tokens: 50,
  }
  upstream.script = (_received, res) =>
    json(res, {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      content: [{ type: 'text', text: 'Hi' }],
      stop_reason: 'end_turn',
      usage,
    })
  const reply = await openai(key).chat.completions.create(famA)
  t.match(reply.usage, {
    prompt_tokens: 1400,
    completion_tokens: 50,
    total_tokens: 1450,
    prompt_tokens_details: { cached_tokens: 1000, cache_write_tokens: 300 },
  })
  const [entry] = await g.settled(key)
  t.match(entry, {
    input_tokens: 1400,
    cache_read_tokens: 1000,
    output_tokens: 50,
    usage_source: 'upstream',
    status: 'ok',
    endpoint: CHAT,
  })
  // 100 at 3, 1000 at 0.3, 100 at 3.75, 200 at 6 and 50 at 15 credits a million.
  t.equal(entry?.['cost_nano'], '2925000')
})

t.test('a stream whose balance runs out ends by its length after translation, with the usage so far', async t => {
  const thin = (
    await g.gateway.keys.changes.create({ type: 'famA', name: 'thin', credits: 20_000_000n, expiresAt: undefined })
  ).secret
  let cancelled = false
  upstream.script = async (received, res) => {
    void received.closed.then(() => (cancelled = true))
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(START + OPEN)
    while (!cancelled) {
      res.write(text('words and more words '.repeat(50)))
      await sleep(5)
    }
  }
  const final = openai(thin)
    .chat.completions.stream({ ...famA, stream_options: { include_usage: true } })
    .on('error', () => {})
  let finish = ''
  let tokens = 0
  for await (const chunk of final) {
    finish = chunk.choices[0]?.finish_reason ?? finish
    tokens = chunk.usage?.completion_tokens ?? tokens
  }
  t.equal(finish, 'length')
  t.ok(tokens > 100, String(tokens))
  t.match((await g.settled(thin))[0], { status: 'budget' })
})

t.test('a client that leaves cancels the upstream', async t => {
  const key = await g.key('famA')
  const replies = begun(upstream, START + OPEN + text('Half'))
  const controller = new AbortController()
  const response = await g.open(CHAT, { key, body: { ...famA, stream: true }, signal: controller.signal })
  await response.body?.getReader().read()
  controller.abort()
  await until(() => replies[0]?.destroyed === true)
  t.match((await g.settled(key))[0], { status: 'client_gone' })
})

t.test('headers of another provider’s client do not pass; its session becomes the cache key', async t => {
  const key = await g.key('famC')
  upstream.script = (_received, res) =>
    json(res, {
      id: 'resp_1',
      object: 'response',
      status: 'completed',
      output: [],
      usage: { input_tokens: 1, output_tokens: 1 },
    })
  const headers = {
    'anthropic-beta': 'x-1',
    'anthropic-version': '2026-10-21',
    'x-stainless-lang': 'js',
    'x-app': 'cli',
    'x-claude-code-session-id': 'session-9',
    'user-agent': 'claude-cli/2',
  }
  await g.call('/v1/messages', { key, headers, body: { ...famC, metadata: { user_id: 'someone' } } })
  t.same(
    Object.keys(upstream.last.headers).filter(name => /anthropic|stainless|x-app|claude/.test(name)),
    [],
  )
  t.match(upstream.last, {
    path: '/v1/responses',
    headers: { 'user-agent': 'claude-cli/2' },
    json: { prompt_cache_key: 'session-9', safety_identifier: 'someone', store: false },
  })
  const a = await g.key('famA')
  upstream.script = (_received, res) => json(res, { id: 'm', type: 'message', content: [], usage: {} })
  await g.call('/v1/responses', {
    key: a,
    body: { model: 'acme/famA-medium-5[1m]', input: 'x', prompt_cache_key: 'thread-1' },
  })
  t.match(upstream.last, {
    path: '/v1/messages',
    headers: { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'context-1m-2025-08-07' },
    json: { model: 'acme/famA-medium-5', metadata: { user_id: 'thread-1' } },
  })
})

t.test(
  'a JSON reply to a request for a stream becomes a stream, and an error under status 200 gets its own status',
  async t => {
    const key = await g.key('famA')
    upstream.script = (_received, res) =>
      json(res, {
        id: 'msg_1',
        type: 'message',
        content: [{ type: 'text', text: 'Hi' }],
        stop_reason: 'end_turn',
        usage: { input_tokens: 1, output_tokens: 2 },
      })
    const answer = await g.call(CHAT, { key, body: { ...famA, stream: true } })
    t.equal(answer.headers.get('content-type'), 'text/event-stream')
    t.match(answer.text, /"content":"Hi"[^]*"finish_reason":"stop"[^]*data: \[DONE\]\n\n$/)
    upstream.script = (_received, res) => json(res, { type: 'error', error: { type: 'api_error', message: 'x' } })
    t.equal((await g.call(CHAT, { key, body: { ...famA, stream: true } })).status, 502)
    upstream.script = (_received, res) => json(res, { hello: 1 })
    await rejects(t, openai(key).chat.completions.create(famA), InternalServerError, { status: 502 })
  },
)

t.test('a stream without its last word ends when its upstream falls silent', async t => {
  const own = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('limits.keepalive', '300ms'),
  })
  const key = await own.key('editor')
  const chunk = (delta: object, finish: string | null = null): string =>
    `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
  begun(upstream, chunk({ content: 'Hi' }) + chunk({}, 'stop'))
  const { text: told } = await own.call('/v1/messages', {
    key,
    body: { model: 'acme/famB-4.6', max_tokens: 5, messages: MESSAGES, stream: true },
  })
  t.match(told, /"stop_reason":"end_turn"[^]*event: message_stop\ndata: \{"type":"message_stop"\}\n\n$/)
  t.match((await own.settled(key))[0], { status: 'ok' })
})

t.test('a client gets the start of a reply at once, and comments while the upstream only pings', async t => {
  const own = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('limits.keepalive', '200ms'),
  })
  const key = await own.key('famA')
  let heard = false
  let spoken = false
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(START)
    for (let pings = 0; !heard && pings < 200; pings++) {
      res.write(event('ping'))
      await sleep(20)
    }
    spoken = true
    res.end(OPEN + text('Hi') + end(1))
  }
  const response = await own.open(CHAT, { key, body: { ...famA, stream: true } })
  t.equal(spoken, false, 'the head is there before the first word')
  let said = ''
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    said += Buffer.from(chunk).toString()
    heard = true
  }
  t.match(said, /^: keepalive\n\n[^]*"content":"Hi"[^]*data: \[DONE\]/)
})

t.test('a stream in answer to a request for JSON becomes one reply, and fails without its end', async t => {
  const key = await g.key('famA')
  upstream.script = (_received, res) => sse(res, START + OPEN + text('Hi') + end(7))
  const answer = await g.call(CHAT, { key, body: famA })
  t.match(answer.headers.get('content-type'), /^application\/json/)
  t.match(answer.json, {
    choices: [{ message: { content: 'Hi' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 1000, completion_tokens: 7 },
  })
  t.match((await g.settled(key))[0], { status: 'ok', input_tokens: 1000, output_tokens: 7 })
  upstream.script = (_received, res) =>
    sse(res, START + OPEN + text('Hi') + end(7).replace(/event: message_delta[^]*/, ''))
  t.equal((await g.call(CHAT, { key, body: famA })).status, 502)
})

t.test('a stage that throws at the end of a stream does not keep the end from the client', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugins-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(
    join(folder, 'broken.ts'),
    `import { definePlugin } from 'tollgate/plugin'
     export default definePlugin({ name: 'broken', summary: 'Tests.', on: 'inference', setup: () => ({ rewrite: () => ({ event() { throw new Error('no') } }) }) })`,
  )
  const own = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.insertBefore('router', 'broken').set('plugins', [folder]),
  })
  upstream.script = (_received, res) => sse(res, START + OPEN + text('Hi') + end(1))
  const answer = await own.call(CHAT, { key: await own.key('famA'), body: { ...famA, stream: true } })
  t.match(answer, { status: 200, text: /"error":\{/ })
})

t.test('the gateway waits for usage that follows the finish, whatever the client has received by then', async t => {
  const own = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('limits.keepalive', '1s'),
  })
  const key = await own.key('editor')
  const chunk = (members: object): string => `data: ${JSON.stringify({ id: 'c', ...members })}\n\n`
  const choice = (delta: object, finish_reason: string | null): object => ({
    choices: [{ index: 0, delta, finish_reason }],
  })
  let told = ''
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(chunk(choice({ role: 'assistant', content: '' }, '')))
    // The finish arrives between two comments, and the usage after the second one.
    await sleep(500)
    res.write(chunk(choice({}, 'length')))
    await until(() => told.includes(': keepalive'))
    res.end(
      `${chunk({ choices: [], usage: { prompt_tokens: 100, completion_tokens: 77, total_tokens: 177 } })}data: [DONE]\n\n`,
    )
  }
  const response = await own.open('/v1/messages', {
    key,
    body: { model: 'acme/famB-4.6', max_tokens: 77, messages: MESSAGES, stream: true },
  })
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) told += Buffer.from(part).toString()
  t.match(told, /"stop_reason":"max_tokens"[^]*"output_tokens":77/)
  t.match((await own.settled(key))[0], { type: 'settle', status: 'ok', input_tokens: 100, output_tokens: 77 })
})

t.test('a reply without a reason for its end counts as broken', async t => {
  const key = await g.key('editor')
  upstream.script = (_received, res) =>
    sse(
      res,
      `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content: 'Half' }, finish_reason: null }] })}\n\ndata: [DONE]\n\n`,
    )
  const { text: told } = await g.call('/v1/messages', {
    key,
    body: { model: 'acme/famB-4.6', max_tokens: 7, messages: MESSAGES, stream: true },
  })
  t.match(told, /event: error\ndata: [^]*without a reason/)
  t.match((await g.settled(key))[0], { status: 'broken', usage_source: 'estimated' })
})
