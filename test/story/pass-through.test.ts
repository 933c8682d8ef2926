import t from 'tap'
import { json, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'
import { DONE, STOP, text } from '../stream-events.ts'
import { scene } from '../scene.ts'

const CHAT = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }] }
const CHAT_REPLY = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'acme/famC-5.5',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120, prompt_tokens_details: { cached_tokens: 40 } },
}

t.test('the bytes of a request pass unchanged, except the model', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, CHAT_REPLY)
  const key = await g.key('famB')
  const body =
    '{ "n" : 1,\n "seed":9007199254740993, "top_k":1.0e2,"model" : "acme/famB-4.5-latest", "messages":[{"role":"user","content":"\\u00e9\\ud83d ü"}] , "metadata":{"__proto__":{"a":1}}}'
  const answer = await g.call('/v1/chat/completions', { key, body })
  t.equal(answer.status, 200)
  t.equal(
    upstream.last.body,
    body.replace('acme/famB-4.5-latest', 'acme/famB-4.5'),
    'spelling, spaces, big numbers and escapes survive',
  )
  t.equal(upstream.last.headers['content-length'], String(Buffer.byteLength(upstream.last.body)))
  t.equal(
    answer.text,
    JSON.stringify(CHAT_REPLY).replace('acme/famC-5.5', 'acme/famB-4.5-latest'),
    'and so do the bytes of the reply',
  )
})

t.test('an output limit is sent in the member that the request has, and in no other', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = ({ path }, res) =>
    json(
      res,
      path === '/v1/responses'
        ? { id: 'r', object: 'response', status: 'completed', output: [], usage: {} }
        : CHAT_REPLY,
    )
  const key = await g.key('famC', 1000n)
  for (const [path, body] of [
    ['/v1/responses', '{"model":"acme/famC-5.5","input":"hi","max_output_tokens":64}'],
    ['/v1/chat/completions', '{"model":"acme/famC-5.5","messages":[],"max_completion_tokens":64}'],
    ['/v1/chat/completions', '{"model":"acme/famC-5.5","messages":[],"max_tokens":64}'],
  ] as const) {
    t.equal((await g.call(path, { key, body })).status, 200)
    t.equal(upstream.last.body, body)
  }
})

t.test('headers pass by allow-list in both directions', async t => {
  const { g, upstream } = await scene(t)
  const secret = 'org-4711'
  upstream.script = (_received, res) =>
    json(res, { type: 'message', content: [], usage: { input_tokens: 1, output_tokens: 1 } }, 200, {
      'set-cookie': secret,
      'anthropic-organization-id': secret,
      'anthropic-ratelimit-requests-limit': secret,
      'x-ratelimit-limit-requests': secret,
      'request-id': secret,
      server: secret,
      via: secret,
      'strict-transport-security': secret,
    })
  const key = await g.key('famA')
  const answer = await g.call('/v1/messages?beta=true', {
    body: { model: 'acme/famA-medium-5', max_tokens: 5, messages: [] },
    headers: {
      'x-api-key': key,
      'anthropic-version': '2026-10-21',
      'anthropic-beta': 'unknown-2030-01-01,other',
      'x-stainless-lang': 'js',
      'user-agent': 'claude-cli/2.1.329',
      cookie: 'session=1',
      origin: 'https://example.com',
      'x-forwarded-for': '1.2.3.4',
      'openai-organization': 'org',
      'anthropic-workspace-id': 'w',
      'x-anything': 'else',
    },
  })
  t.equal(answer.status, 200)
  const sent = upstream.last.headers
  t.equal(sent['anthropic-version'], '2026-10-21')
  t.equal(sent['anthropic-beta'], 'unknown-2030-01-01,other')
  t.equal(sent['x-stainless-lang'], 'js')
  t.equal(sent['user-agent'], 'claude-cli/2.1.329')
  t.equal(sent['x-api-key'], 'upstream-secret-0123456789')
  t.equal(sent['accept-encoding'], 'identity')
  for (const name of [
    'authorization',
    'cookie',
    'origin',
    'x-forwarded-for',
    'openai-organization',
    'anthropic-workspace-id',
    'x-anything',
    'transfer-encoding',
  ]) {
    t.notOk(name in sent, `${name} does not go up`)
  }
  t.notOk(JSON.stringify(sent).includes(key), "the customer's key goes nowhere")
  t.notOk(JSON.stringify([...answer.headers]).includes(secret), 'nothing of the provider account comes down')
  t.equal(answer.headers.get('x-request-id'), answer.headers.get('request-id'), 'both request ids are ours')
})

t.test('a request without a version header gets the version that every client supports', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, { type: 'message', usage: { input_tokens: 1, output_tokens: 1 } })
  await g.call('/v1/messages', { key: await g.key('famA'), body: { model: 'acme/famA-medium-5', messages: [] } })
  t.equal(upstream.last.headers['anthropic-version'], '2023-06-01')
  t.equal(
    upstream.last.json['max_tokens'],
    32_000,
    'and max_tokens, which the upstream requires and the interface does not',
  )
})

t.test('usage is metered exactly, and balance, key info and history show it', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, CHAT_REPLY)
  const key = await g.key('famC')
  await g.call('/v1/chat/completions', { key, body: CHAT })
  const [entry] = await g.settled(key)
  // 60 uncached at 3, 40 cached at 0.3 and 20 output tokens at 15 credits a million.
  const cost = 60 * 3000 + 40 * 300 + 20 * 15000
  t.match(entry, {
    type: 'settle',
    status: 'ok',
    cost_nano: String(cost),
    input_tokens: 100,
    cache_read_tokens: 40,
    output_tokens: 20,
    usage_source: 'upstream',
    model: 'acme/famC-5.5',
  })
  const balance = await g.balance(key)
  t.match(balance, {
    isValid: true,
    status: 'active',
    exact: { balance: String(10_000_000_000 - cost), used: String(cost), held: '0' },
  })
  const info = (await g.call('/api/v1/key-info', { key })).json
  t.match(info, {
    key_type: 'famC',
    default_model: 'acme/famC-5.5',
    usage: { today: { requests: 1, input_tokens: 100, output_tokens: 20 } },
    model_stats: [{ model: 'acme/famC-5.5', requests: 1 }],
  })
  t.equal(info.models.length, 4)
})

t.test('a stream flows event by event and is metered by its last events', async t => {
  const { g, upstream } = await scene(t)
  let go = (): void => {}
  const gate = new Promise<void>(resolve => (go = resolve))
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}],"usage":null}\n\n')
    await gate
    res.write('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n')
    res.end(
      'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\ndata: [DONE]\n\n',
    )
  }
  const key = await g.key('famC')
  const response = await g.open('/v1/chat/completions', { key, body: { ...CHAT, stream: true } })
  t.equal(response.headers.get('content-length'), null, 'nobody knows how long it will be')
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  const first = Buffer.from((await reader.read()).value ?? []).toString()
  t.equal(first, text('one'), 'the first event is here while the upstream waits')
  t.same(upstream.last.json['stream_options'], { include_usage: true }, 'usage was asked for')
  go()
  let rest = ''
  for (let part = await reader.read(); !part.done; part = await reader.read())
    rest += Buffer.from(part.value).toString()
  t.equal(rest, STOP + DONE, 'and hidden from the client that did not ask')
  matchAll(t, await g.settled(key), [{ input_tokens: 7, output_tokens: 3, stream: true }])
})

t.test('a client that asks for usage in the stream gets every byte unchanged', async t => {
  const { g, upstream } = await scene(t)
  const text =
    'data: {"choices":[],"usage":null}\n\ndata: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":null}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
  upstream.script = (_received, res) => sse(res, text)
  const key = await g.key('famC')
  const body = { ...CHAT, stream: true, stream_options: { include_usage: true, include_obfuscation: false } }
  const answer = await g.call('/v1/chat/completions', { key, body })
  t.equal(answer.text, text)
  t.equal(answer.headers.get('content-length'), String(text.length), 'one that came whole goes out whole')
  t.equal(upstream.last.body, JSON.stringify(body), 'its own stream options go up as they are')
})

t.test('the suffix [1m] is removed and becomes the beta header', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) =>
    json(res, { type: 'message', content: [], usage: { input_tokens: 1, output_tokens: 1 } })
  const key = await g.key('famA')
  const answer = await g.call('/v1/messages', {
    key,
    body: { model: 'acme/famA-large-5[1M]', max_tokens: 1, messages: [] },
    headers: { 'anthropic-beta': 'other' },
  })
  t.equal(answer.status, 200)
  t.equal(upstream.last.json['model'], 'acme/famA-large-5')
  t.equal(upstream.last.headers['anthropic-beta'], 'other,context-1m-2025-08-07')
})
