import { connect, type Socket } from 'node:net'
import { gzipSync, brotliCompressSync } from 'node:zlib'
import type { UpstreamAccount } from '../../core/config/config.ts'
import t from 'tap'
import { startGateway, until } from '../gateway.ts'
import { json, rawUpstream, sse } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { DONE, STOP, text } from '../stream-events.ts'
import { scene } from '../scene.ts'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }], input: 'hi' }
const MESSAGES = { model: 'acme/famA-medium-5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'
const JSON_REPLY = '{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
const head = (headers: string): string => `HTTP/1.1 200 OK\r\n${headers}\r\n\r\n`
const EVENT = text('partial')
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const encoded = (encoding: string) => (socket: Socket) =>
  void socket.end(`${head(`content-type: application/json\r\ncontent-encoding: ${encoding}\r\ncontent-length: 3`)}{"a`)
/** Short timeouts, so that the gateway gives up an upstream that hangs within the test. */
const impatient =
  (timeouts: object): Edit =>
  file =>
    file.everyUpstream({ timeouts })

t.test('every fault of an upstream before its reply begins is a clean error, and costs nothing', async t => {
  const cases: [string, (socket: Socket) => void, number][] = [
    ['closes at once', socket => void socket.end(), 502],
    ['resets', socket => void socket.resetAndDestroy(), 502],
    ['talks nonsense', socket => void socket.end('SSH-2.0-OpenSSH_9.6\r\n\r\n'), 502],
    ['sends a head that is no head', socket => void socket.end('HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n'), 502],
    [
      'switches protocols',
      socket =>
        void socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n'),
      502,
    ],
    ['says nothing', () => {}, 504],
    ['closes in the head', socket => void socket.end('HTTP/1.1 200 OK\r\ncontent-ty'), 502],
    [
      'closes behind the head of a stream',
      socket => void socket.end(head('content-type: text/event-stream\r\ntransfer-encoding: chunked')),
      502,
    ],
    [
      'lies about the length',
      socket => void socket.end(`${head('content-type: application/json\r\ncontent-length: 500')}${JSON_REPLY}`),
      502,
    ],
    [
      'stops in the middle of a JSON reply',
      socket => void socket.write(`${head('content-type: application/json\r\ncontent-length: 500')}${JSON_REPLY}`),
      504,
    ],
    [
      'redirects',
      socket => void socket.end('HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n'),
      502,
    ],
    ['answers in HTML', socket => void socket.end(head('content-type: text/html\r\ncontent-length: 0')), 502],
    [
      'answers with JSON that is none',
      socket => void socket.end(`${head('content-type: application/json\r\ncontent-length: 3')}{"a`),
      502,
    ],
    ['answers an encoding nobody knows', encoded('rot13'), 502],
    ['answers an encoding with the name of what every object has', encoded('constructor'), 502],
    ['answers broken gzip', encoded('gzip'), 502],
  ]
  let behave: (socket: Socket) => void = () => {}
  const upstream = await rawUpstream(t, socket => behave(socket))
  // Only a gateway that has to give up is impatient. Another one must not mistake a slow machine for silence.
  for (const timeouts of [{}, { firstByte: '400ms', idle: '300ms' }]) {
    const gaveUp = 'idle' in timeouts
    const edit: Edit = file => impatient(timeouts)(file).set('ledger.freeEntries', 100)
    const g = await startGateway(t, { upstream: upstream.url, edit })
    const key = await g.key('famC')
    const tried = cases.filter(([, , status]) => (status === 504) === gaveUp)
    for (const [name, misbehave, status] of tried) {
      behave = misbehave
      const answer = await g.call(CHAT, { key, body: BODY })
      t.match(answer, { status, json: { error: { type: 'server_error', message: /provider/ } } }, name)
    }
    const entries = await g.settled(key)
    t.equal(entries.length, tried.length, 'each settled exactly once')
    t.ok(entries.every(({ type, cost_nano }) => type === 'void' && cost_nano === '0'))
  }
  for (const socket of upstream.sockets) socket.destroy()
})

t.test('a refused connection is a clean error', async t => {
  const g = await startGateway(t, { upstream: 'http://127.0.0.1:1' })
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  matchAll(t, await g.settled(key), [{ type: 'void', error_code: 'upstream_failed' }])
})

t.test('a stream that breaks ends with an error in its format, never with an invented end', async t => {
  let end: (socket: Socket) => void = () => {}
  let first = EVENT
  const upstream = await rawUpstream(t, socket => {
    // The beginning of a second event is not sent, as only complete events are.
    socket.write(
      `${head('content-type: text/event-stream\r\ntransfer-encoding: chunked')}${chunk(`${first}event: half\ndata: {"never`)}`,
      () => end(socket),
    )
  })
  const g = await startGateway(t, { upstream: upstream.url, edit: impatient({ idle: '300ms' }) })
  const deaths: [string, (socket: Socket) => void][] = [
    ['cut', socket => void socket.end()],
    ['reset', socket => void socket.resetAndDestroy()],
    ['silence', () => {}],
    ['broken chunk', socket => void socket.end('zz\r\n')],
  ]
  for (const [name, die] of deaths) {
    end = die
    first = EVENT
    const famC = await g.key('famC')
    const chat = await g.call(CHAT, { key: famC, body: { ...BODY, stream: true } })
    t.ok(chat.text.startsWith(EVENT), `${name}: what came is delivered`)
    t.match(
      chat.text.slice(EVENT.length),
      /^data: \{"error":\{"message":"[^"]+","type":"server_error",/,
      `${name}: chat ends with its error event`,
    )
    t.notMatch(chat.text, /half|DONE/)
    t.match(
      await g.settled(famC),
      [{ type: 'settle', status: 'broken', usage_source: 'estimated' }],
      `${name}: charged what was delivered`,
    )
    first =
      'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}}\n\nevent: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":7,"delta":"x"}\n\n'
    const responses = await g.call('/v1/responses', { key: await g.key('famC'), body: { ...BODY, stream: true } })
    const tail = responses.text.slice(first.length)
    t.match(
      tail,
      /^event: error\ndata: \{"type":"error","code":"[^"]+","message":"[^"]+","param":null,"sequence_number":8\}\n\n/,
      `${name}: responses ends with error ...`,
    )
    t.match(
      tail,
      /event: response\.failed\ndata: \{"type":"response\.failed","sequence_number":9,"response":\{"id":"resp_1",.*"status":"failed"/,
      '... and response.failed',
    )
    first =
      'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"abc"}}\n\n'
    const famA = await g.key('famA')
    const messages = await g.call('/v1/messages', { key: famA, body: { ...MESSAGES, stream: true } })
    t.match(
      messages.text.slice(first.length),
      /^event: error\ndata: \{"type":"error","error":\{"type":"(?:api|timeout)_error","message":/,
      `${name}: messages ends with its error event`,
    )
    matchAll(t, await g.settled(famA), [{ status: 'broken', input_tokens: 9, output_tokens: 1 }])
  }
})

t.test("an upstream's words about the request pass; its words about the account do not", async t => {
  const { g, upstream } = await scene(t)
  const famC = await g.key('famC')
  const famA = await g.key('famA')
  const secret = 'upstream-secret-0123456789'
  const long = 'prompt is too long: 250000 tokens > 200000 maximum'
  const chat = async (status: number, error: unknown, headers: Record<string, string> = {}) => {
    upstream.script = (_received, res) => json(res, { error }, status, headers)
    return g.call(CHAT, { key: famC, body: BODY })
  }
  const overflow = await chat(400, {
    message: "This model's maximum context length is 10 tokens.",
    type: 'invalid_request_error',
    param: 'messages',
    code: 'context_length_exceeded',
    org: 'org-1',
  })
  t.equal(overflow.status, 400)
  t.same(overflow.json, {
    error: {
      message: "This model's maximum context length is 10 tokens.",
      type: 'invalid_request_error',
      param: 'messages',
      code: 'context_length_exceeded',
    },
  })
  t.notMatch(
    (await chat(400, { message: `bad key ${secret}`, type: 'invalid_request_error' })).text,
    secret,
    'an echo of our credential is scrubbed',
  )
  upstream.script = (_received, res) =>
    json(
      res,
      {
        type: 'error',
        error: { type: 'invalid_request_error', message: long, details: { error_code: 'prompt_too_long' } },
        request_id: 'req_theirs',
      },
      400,
    )
  const messages = await g.call('/v1/messages', { key: famA, body: MESSAGES })
  t.match(messages, {
    status: 400,
    json: {
      type: 'error',
      error: { type: 'invalid_request_error', message: long, details: { error_code: 'prompt_too_long' } },
    },
  })
  t.notMatch(messages.text, 'req_theirs')
  t.equal((await chat(413, { message: 'too big' })).status, 413)
  const [account] = g.gateway.config.upstreams.get('famC')?.accounts ?? []
  const health = g.gateway.pool.health(account as UpstreamAccount)
  for (const status of [401, 402, 403, 404, 500]) {
    const answer = await chat(status, {
      message: `organization org-1 with ${secret}`,
      type: 'authentication_error',
      code: 'invalid_api_key',
    })
    // An account that its provider refuses cannot serve the next request either.
    const isOut = status < 500
    t.match(
      answer,
      { status: isOut ? 503 : 502, json: { error: { code: isOut ? 'server_is_overloaded' : 'upstream_failed' } } },
      `${status} is the operator's trouble`,
    )
    t.equal(answer.headers.get('retry-after'), isOut ? '60' : null)
    t.notMatch(answer.text, 'org-1')
    health.reset(Date.now())
  }
  const limited = await chat(
    429,
    { message: 'org-1 is over its limit', code: 'insufficient_quota' },
    { 'retry-after': '37800' },
  )
  t.match(limited, { status: 503, json: { error: { code: 'server_is_overloaded' } } })
  t.equal(limited.headers.get('retry-after'), '37800')
  t.equal(limited.headers.get('x-should-retry'), 'false', 'a wait of hours is final')
  const refused = await g.call(CHAT, { key: famC, body: BODY })
  t.match(refused, { status: 503, json: { error: { code: 'server_is_overloaded' } } })
  t.ok(Number(refused.headers.get('retry-after')) > 37_700, 'the provider is not asked before that')
  upstream.script = (_received, res) =>
    json(res, { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }, 529)
  t.match(await g.call('/v1/messages', { key: famA, body: MESSAGES }), {
    status: 529,
    json: { error: { type: 'overloaded_error' } },
  })
})

t.test('an error inside a stream gets words for customers', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  upstream.script = (_received, res) =>
    sse(res, `${EVENT}data: {"error":{"message":"org-1 is out of credit","type":"insufficient_quota"}}\n\n`)
  const chat = await g.call(CHAT, { key, body: { ...BODY, stream: true } })
  t.match(chat.text, /"type":"server_error"/)
  t.notMatch(chat.text, 'org-1')
  g.gateway.pool.reset()
  const created =
    'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response"}}\n\n'
  upstream.script = (_received, res) =>
    sse(
      res,
      `${created}event: response.failed\ndata: {"type":"response.failed","sequence_number":1,"response":{"id":"resp_1","status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}\n\n`,
    )
  const responses = await g.call('/v1/responses', { key, body: { ...BODY, stream: true } })
  t.match(
    responses.text,
    /"code":"context_length_exceeded","message":"Your input exceeds the context window/,
    'what agents act on passes',
  )
  const entries = await g.settled(key)
  t.match(entries[0], { type: 'void', cost_nano: '0' }, 'a failure without output costs nothing')
  t.match(
    entries[1],
    { type: 'settle', status: 'failed', usage_source: 'estimated' },
    'output before a failure is charged',
  )
})

t.test('compressed replies are decompressed and passed on', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  const stream = `${EVENT}data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n`
  upstream.script = (_received, res) =>
    void res.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end(gzipSync(stream))
  const answer = await g.call(CHAT, { key, body: { ...BODY, stream: true, stream_options: { include_usage: true } } })
  t.equal(answer.text, stream)
  t.equal(answer.headers.get('content-encoding'), null)
  upstream.script = (_received, res) =>
    void res
      .writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'br' })
      .end(brotliCompressSync(JSON_REPLY))
  t.equal((await g.call(CHAT, { key, body: BODY })).text, JSON_REPLY)
  const repeated = ['content-type', 'application/json', 'content-encoding', 'br']
  upstream.script = (_received, res) =>
    void res.writeHead(200, [...repeated, ...repeated]).end(brotliCompressSync(JSON_REPLY))
  const twice = await g.call(CHAT, { key, body: BODY })
  t.equal(twice.text, JSON_REPLY, 'with headers that a proxy repeats')
  t.equal(twice.headers.get('content-type'), 'application/json')
  matchAll(t, await g.settled(key), [{ input_tokens: 1 }, { input_tokens: 1 }, { input_tokens: 3, output_tokens: 4 }])
})

t.test('a kept connection that the upstream closed is replaced without the client noticing', async t => {
  let replies = 0
  const upstream = await rawUpstream(t, socket => {
    replies++
    const reply = `${head(`content-type: application/json\r\ncontent-length: ${JSON_REPLY.length}`)}${JSON_REPLY}`
    if (replies === 2) socket.resetAndDestroy()
    else socket.write(reply)
  })
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(replies, 3)
  t.equal((await g.settled(key)).length, 2)
})

t.test('a silent stream gets comments', async t => {
  const { g, upstream } = await scene(t, file => file.set('limits.keepalive', '30ms'))
  let finish = (): void => {}
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(EVENT)
    finish = () => res.end(STOP + DONE)
  }
  const key = await g.key('famC')
  const response = await g.open(CHAT, { key, body: { ...BODY, stream: true } })
  let text = ''
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(part).toString()
    if (text.includes(': keepalive\n\n: keepalive\n\n')) finish()
  }
  t.ok(text.startsWith(`${EVENT}: keepalive\n\n`))
  t.ok(text.endsWith(DONE))
})

t.test('a client that does not read slows the upstream down, and is disconnected in the end', async t => {
  const { g, upstream } = await scene(t, file => file.set('limits.writeIdle', '1s'))
  let sent = 0
  let gone = false
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    const closed = new Promise(resolve => res.on('close', resolve)).then(() => (gone = true))
    const event = `data: {"choices":[{"delta":{"content":"${'x'.repeat(64 * 1024)}"}}]}\n\n`
    while (!gone && sent < 500) {
      sent++
      if (!res.write(event)) await Promise.race([new Promise(resolve => res.once('drain', resolve)), closed])
    }
  }
  const key = await g.key('famC')
  const body = JSON.stringify({ ...BODY, stream: true })
  const socket = connect(g.gateway.port, '127.0.0.1', () => {
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    socket.pause()
  })
  // No event shows that all buffers on the way are full: the provider's writes stand still.
  for (let before = -1; before !== sent || sent === 0;) {
    before = sent
    await new Promise(resolve => setTimeout(resolve, 200))
  }
  t.ok(sent < 500, 'the upstream was held back')
  await until(() => gone)
  socket.destroy()
  matchAll(t, await g.settled(key), [{ status: 'client_gone', usage_source: 'estimated' }])
})

t.test('a stream that ends in the middle of an event loses that event and reports the break', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => sse(res, `${EVENT}data: {"choices":[{"delta":{"content":"hel`)
  const answer = await g.call(CHAT, { key: await g.key('famC'), body: { ...BODY, stream: true } })
  t.ok(answer.text.startsWith(`${EVENT}data: {"error":`), answer.text)
})

t.test('a connection that breaks after the last event of a reply causes no error', async t => {
  let events = ''
  const upstream = await rawUpstream(
    t,
    socket =>
      void socket.end(`${head('content-type: text/event-stream\r\ntransfer-encoding: chunked')}${chunk(events)}`),
  )
  const g = await startGateway(t, { upstream: upstream.url })
  const chat = `${EVENT}data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n`
  const typed = (...all: object[]): string =>
    all.map(event => `event: ${(event as { type: string }).type}\ndata: ${JSON.stringify(event)}\n\n`).join('')
  const message = typed(
    {
      type: 'message_start',
      message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: { input_tokens: 1 } },
    },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'whole' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
    { type: 'message_stop' },
  )
  const response = typed(
    { type: 'response.created', response: { id: 'r', status: 'in_progress', output: [] } },
    { type: 'response.output_text.delta', delta: 'whole' },
    {
      type: 'response.completed',
      response: { id: 'r', status: 'completed', output: [], usage: { input_tokens: 1, output_tokens: 1 } },
    },
  )
  const cases: [string, string, string, object][] = [
    [chat, 'editor', CHAT, { ...BODY, model: 'acme/famB-4.5', stream_options: { include_usage: true } }],
    [message, 'famA', '/v1/messages', MESSAGES],
    [response, 'famC', '/v1/responses', { model: BODY.model, input: 'hi' }],
    [message, 'famA', CHAT, MESSAGES],
    [chat, 'editor', '/v1/messages', { ...MESSAGES, model: 'acme/famB-4.5' }],
    [chat, 'editor', '/v1/responses', { model: 'acme/famB-4.5', input: 'hi' }],
  ]
  for (const [said, type, path, body] of cases) {
    events = said
    const key = await g.key(type)
    const { text } = await g.call(path, { key, body: { ...body, stream: true } })
    t.notMatch(text, /"type":"error"|"error":\{|response.failed/, `${type} ${path}`)
    matchAll(t, await g.settled(key), [{ status: 'ok', usage_source: 'upstream' }])
  }
})

t.test('an error is separated from a last event that lacks its end', async t => {
  let events = ''
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => sse(res, events)
  const key = await g.key('editor')
  for (const end of ['', '\n', '\r', '\r\n']) {
    events = EVENT.trimEnd() + end
    const { text } = await g.call(CHAT, { key, body: { ...BODY, model: 'acme/famB-4.5', stream: true } })
    const data = text.split(/(?:\r\n|\r|\n){2,}/).map(event => event.replace('data: ', ''))
    t.match(
      data.slice(0, 2).map(event => JSON.parse(event)),
      [JSON.parse(EVENT.slice(6)), { error: { type: 'server_error' } }],
      JSON.stringify(end),
    )
  }
})

t.test('comments before a failure do not begin the reply', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(': PROCESSING\n\n')
    setImmediate(() => res.end('data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n'))
  }
  t.match(await g.call(CHAT, { key: await g.key('famC'), body: { ...BODY, stream: true } }), {
    status: 503,
    json: { error: { code: 'server_is_overloaded' } },
  })
})

t.test('no member of an upstream error shows its credential or its account to the customer', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  const secret = 'upstream-secret-0123456789'
  upstream.script = (_received, res) =>
    json(res, { error: { message: 'no', type: secret, code: secret, param: secret } }, 400)
  const refused = await g.call(CHAT, { key, body: BODY })
  t.equal(refused.status, 400)
  t.notMatch(refused.text, secret)
  upstream.script = (_received, res) =>
    sse(res, `${EVENT}data: {"error":{"message":"x"},"debug":"Bearer ${secret}","account":"org-77"}\n\n`)
  const broken = await g.call(CHAT, { key, body: { ...BODY, stream: true } })
  t.notMatch(broken.text, /org-77|upstream-secret/)
})

t.test('a client that takes nothing of a JSON reply is disconnected, and pays the reported usage', async t => {
  const { g, upstream } = await scene(t, file => file.set('limits.writeIdle', '100ms'))
  upstream.script = (_received, res) =>
    json(res, {
      choices: [{ message: { content: 'x'.repeat(30_000_000) }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 2, completion_tokens: 3 },
    })
  const key = await g.key('famC')
  const body = JSON.stringify(BODY)
  const socket = connect(g.gateway.port, '127.0.0.1', () => {
    socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    socket.pause()
  })
  await until(() => upstream.requests.length > 0)
  matchAll(t, await g.settled(key), [
    { status: 'client_gone', usage_source: 'upstream', input_tokens: 2, output_tokens: 3 },
  ])
  socket.destroy()
})
