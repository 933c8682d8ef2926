import Anthropic, {
  AuthenticationError as AnthropicAuth,
  NotFoundError as AnthropicNotFound,
  RateLimitError as AnthropicRateLimit,
} from '@anthropic-ai/sdk'
import OpenAI, {
  APIError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { rejects } from '../rejects.ts'
import { json, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'
import { text } from '../stream-events.ts'
import { scene } from '../scene.ts'

/** The official SDKs against the simulated provider, for each key type: results, errors and aborted calls. */

let g: TestGateway
t.before(async () => {
  g = await startGateway(t)
})

const openai = (key: string, base = g.url): OpenAI => new OpenAI({ apiKey: key, baseURL: `${base}/v1` })
const anthropic = (key: string, base = g.url): Anthropic => new Anthropic({ apiKey: key, baseURL: base })
const messages = [{ role: 'user' as const, content: 'Hello' }]
const HELLO = 'Hello from the simulated provider. You said: Hello'

t.test('chat completions, for the key types that serve them', async t => {
  const models = { famB: 'acme/famB-4.5', famC: 'acme/famC-5.5', editor: 'acme/famB-4.6' }
  for (const [type, model] of Object.entries(models)) {
    const client = openai(await g.key(type))
    const reply = await client.chat.completions.create({ model, messages })
    t.equal(reply.choices[0]?.message.content, HELLO, `${type}: JSON`)
    t.ok((reply.usage?.total_tokens ?? 0) > 0)
    let text = ''
    for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
      text += chunk.choices[0]?.delta.content ?? ''
    t.equal(text, HELLO, `${type}: stream`)
    const final = await client.chat.completions
      .stream({ model, messages, stream_options: { include_usage: true } })
      .finalChatCompletion()
    t.equal(final.choices[0]?.message.content, HELLO)
    t.ok(final.usage)
    const cut = await client.chat.completions.create({ model, messages, max_tokens: 2 })
    t.equal(cut.choices[0]?.finish_reason, 'length')
  }
})

t.test('responses, for the key types that serve them', async t => {
  for (const [type, model] of Object.entries({ famB: 'acme/famB-4.5', famC: 'acme/famC-5.5' })) {
    const client = openai(await g.key(type))
    t.equal((await client.responses.create({ model, input: 'Hello' })).output_text, HELLO, `${type}: JSON`)
    const final = await client.responses.stream({ model, input: 'Hello' }).finalResponse()
    t.equal(final.output_text, HELLO, `${type}: stream`)
    t.equal(final.status, 'completed')
  }
})

t.test('messages, for famA keys, with the key as bearer and as x-api-key', async t => {
  const key = await g.key('famA')
  for (const client of [
    anthropic(key),
    new Anthropic({ apiKey: null, authToken: key, baseURL: g.url }),
    new Anthropic({ apiKey: null, authToken: null, defaultHeaders: { 'x-api-key': key }, baseURL: g.url }),
  ]) {
    const reply = await client.messages.create({ model: 'acme/famA-medium-5', max_tokens: 64, messages })
    t.match(reply.content[0], { type: 'text', text: HELLO })
    const final = await client.messages
      .stream({ model: 'acme/famA-medium-5[1m]', max_tokens: 64, messages })
      .finalMessage()
    t.match(final, {
      content: [{ type: 'text', text: HELLO }],
      stop_reason: 'end_turn',
      usage: { input_tokens: Number, output_tokens: 8 },
    })
  }
})

t.test('both SDKs list and retrieve models', async t => {
  const ids: string[] = []
  for await (const model of openai(await g.key('famC')).models.list()) ids.push(model.id)
  t.equal(ids.length, 4)
  t.equal((await openai('sk-none').models.retrieve('acme/famC-5.5')).id, 'acme/famC-5.5')
  const listed: string[] = []
  for await (const model of anthropic(await g.key('famA')).models.list({ limit: 2 })) listed.push(model.id)
  t.equal(listed.length, 6)
})

t.test('errors arrive as the right exception class, once', async t => {
  const { g, upstream } = await scene(t)
  const famC = await g.key('famC')
  const model = 'acme/famC-5.5'
  const client = openai(famC, g.url)
  await rejects(t, openai('sk-wrong', g.url).chat.completions.create({ model, messages }), AuthenticationError, {
    code: 'invalid_api_key',
  })
  await rejects(t, client.chat.completions.create({ model: 'acme/famB-4.5', messages }), NotFoundError, {
    code: 'model_not_found',
    param: 'model',
  })
  await rejects(t, client.chat.completions.create({ model, messages: 'x' as never }), BadRequestError, {
    param: 'messages',
  })
  await rejects(
    t,
    openai(await g.key('famC', 0n), g.url).chat.completions.create({ model, messages }),
    RateLimitError,
    { code: 'insufficient_quota' },
  )
  const famA = { model: 'acme/famA-medium-5', max_tokens: 10, messages }
  await rejects(t, anthropic('sk-wrong', g.url).messages.create(famA), AnthropicAuth)
  await rejects(t, anthropic(await g.key('famA'), g.url).messages.create({ ...famA, model: 'nope' }), AnthropicNotFound)
  await rejects(t, anthropic(await g.key('famA', 0n), g.url).messages.create(famA), AnthropicRateLimit)
  t.equal(upstream.requests.length, 0, 'none of them reached the upstream, none was repeated in vain')
  upstream.script = (_received, res) => json(res, { error: { message: 'boom' } }, 500)
  await rejects(t, client.chat.completions.create({ model, messages }, { maxRetries: 1 }), InternalServerError, {
    status: 502,
  })
  t.equal(upstream.requests.length, 2, 'a passing failure is tried again')
})

t.test('a stream that breaks throws in every SDK', async t => {
  const { g, upstream } = await scene(t)
  const broken = (text: string): void => {
    upstream.script = (_received, res) => sse(res, text)
  }
  const drain = async (stream: AsyncIterable<unknown>): Promise<void> => {
    for await (const _event of stream) void _event
  }
  const client = openai(await g.key('famC'), g.url)
  broken(text('x'))
  await rejects(
    t,
    client.chat.completions.create({ model: 'acme/famC-5.5', messages, stream: true }).then(drain),
    APIError,
  )
  broken(
    'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"r","object":"response","output":[]}}\n\n',
  )
  await rejects(t, client.responses.create({ model: 'acme/famC-5.5', input: 'x', stream: true }).then(drain), APIError)
  broken(
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
  )
  await rejects(
    t,
    anthropic(await g.key('famA'), g.url)
      .messages.create({ model: 'acme/famA-medium-5', max_tokens: 9, messages, stream: true })
      .then(drain),
    Anthropic.APIError,
  )
})

t.test('tools pass unchanged in both directions', async t => {
  const { g, upstream } = await scene(t)
  const call = { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Köln"}' } }
  upstream.script = (_received, res) =>
    json(res, {
      id: 'c',
      object: 'chat.completion',
      choices: [
        { index: 0, message: { role: 'assistant', content: null, tool_calls: [call] }, finish_reason: 'tool_calls' },
      ],
      usage: { prompt_tokens: 9, completion_tokens: 9 },
    })
  const tools = [
    {
      type: 'function' as const,
      function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
    },
  ]
  const reply = await openai(await g.key('famC'), g.url).chat.completions.create({
    model: 'acme/famC-5.5',
    messages,
    tools,
  })
  t.same(reply.choices[0]?.message.tool_calls, [call])
  t.same(upstream.last.json['tools'], tools)
  const block = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Köln' } }
  upstream.script = (_received, res) =>
    json(res, {
      id: 'm',
      type: 'message',
      role: 'assistant',
      content: [block],
      stop_reason: 'tool_use',
      usage: { input_tokens: 9, output_tokens: 9 },
    })
  const message = await anthropic(await g.key('famA'), g.url).messages.create({
    model: 'acme/famA-medium-5',
    max_tokens: 99,
    messages,
    tools: [{ name: 'weather', input_schema: { type: 'object' } }],
  })
  t.same(message.content, [block])
})

t.test('aborting a call cancels the upstream unless onDisconnect is finish, and is settled', async t => {
  const { g, upstream } = await scene(t, file => file.set('upstreams.famC.onDisconnect', 'cancel'))
  const key = await g.key('famC')
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(text('x'))
  }
  const stream = await openai(key, g.url).chat.completions.create({ model: 'acme/famC-5.5', messages, stream: true })
  for await (const _chunk of stream) {
    void _chunk
    stream.controller.abort()
  }
  await upstream.last.closed
  matchAll(t, await g.settled(key), [{ status: 'client_gone', usage_source: 'estimated' }])
})
