import net from 'node:net'
import Anthropic from '@anthropic-ai/sdk'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/** Requests that clients send beside the inference endpoints: each gets an answer with which the client continues. */

let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url })
})

const COUNT = '/v1/messages/count_tokens'
const MESSAGES = [{ role: 'user' as const, content: 'Guten Tag, 世界! '.repeat(100) }]

t.test('an upstream that can count tokens counts them, and nothing is charged', async t => {
  upstream.script = (_received, res) => json(res, { input_tokens: 1234 })
  const key = await g.key('famA', 0n)
  const client = new Anthropic({ apiKey: key, baseURL: g.url })
  t.same(await client.messages.countTokens({ model: 'acme/famA-medium-5[1m]', messages: MESSAGES }), {
    input_tokens: 1234,
  })
  t.match(upstream.last, {
    path: COUNT,
    json: { model: 'acme/famA-medium-5' },
    headers: { 'anthropic-beta': /context-1m/ },
  })
  t.notMatch(upstream.last.headers, { 'x-api-key': key })
  t.same(await g.settled(key), [], 'no entry: it is free')
})

t.test('an upstream that cannot count is replaced by an estimate; the error of a failing one passes', async t => {
  const key = await g.key('famA')
  for (const status of [404, 405, 501]) {
    upstream.script = (_received, res) =>
      json(res, { type: 'error', error: { type: 'not_found_error', message: 'no' } }, status)
    const { json: counted } = await g.call(`${COUNT}?beta=true`, {
      key,
      body: { model: 'acme/famA-medium-5', messages: MESSAGES },
    })
    t.ok(counted.input_tokens > 400 && counted.input_tokens < 1000, `${status}: ${counted.input_tokens}`)
  }
  upstream.script = (_received, res) =>
    json(res, { type: 'error', error: { type: 'invalid_request_error', message: 'messages: odd' } }, 400)
  const answer = await g.call(COUNT, { key, body: { model: 'acme/famA-medium-5', messages: MESSAGES } })
  t.match(answer, {
    status: 400,
    json: { type: 'error', error: { type: 'invalid_request_error', message: 'messages: odd' } },
  })
})

t.test('tokens for an upstream of another format are estimated, media by their number', async t => {
  const key = await g.key('famC')
  const before = upstream.requests.length
  const ask = async (content: unknown): Promise<number> =>
    (await g.call(COUNT, { key, body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content }] } })).json
      .input_tokens
  const small = await ask('Hello')
  const large = await ask('a b '.repeat(1_000_000))
  const image = await ask([
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'QUJD'.repeat(100_000) } },
  ])
  t.ok(small > 0 && small < 20, String(small))
  t.equal(Math.round(large / 100_000), 10)
  t.ok(image > 3000 && image < 3100, String(image))
  const document = await ask([
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'words and '.repeat(10_000) } },
  ])
  t.ok(document > 20_000, 'text is counted as text, whatever it is called')
  const many = await g.call(COUNT, {
    key,
    body: { model: 'acme/famC-5.5', messages: Array.from({ length: 80_000 }, () => ({ role: 'user', content: 'a' })) },
  })
  t.ok(many.json.input_tokens > 80_000, 'a long conversation')
  t.equal(upstream.requests.length, before)
  const none = await g.call(COUNT, { key: await g.key('famB'), body: { model: 'acme/famB-4.5', messages: MESSAGES } })
  t.match(
    none,
    { status: 404, json: { type: 'error', error: { type: 'not_found_error' } } },
    'a famB key does not serve this format',
  )
  t.match(await g.call(COUNT, { body: {} }), { status: 401, json: { error: { type: 'authentication_error' } } })
  t.match(await g.call(COUNT, { key, body: { model: 'acme/famC-5.5' } }), {
    status: 400,
    json: { error: { message: /messages/ } },
  })
})

t.test('endpoints with state at a provider give a 404 in the format that they belong to', async t => {
  const key = await g.key('famC')
  for (const [method, path] of [
    ['GET', '/v1/responses/resp_1'],
    ['DELETE', '/v1/responses/resp_1'],
    ['POST', '/v1/responses/resp_1/cancel'],
    ['GET', '/v1/responses/resp_1/input_items'],
    ['GET', '/v1/chat/completions/1'],
    ['POST', '/v1/metrics'],
    ['GET', '/managed/settings'],
    ['GET', '/.well-known/oauth-authorization-server'],
  ] as const) {
    const answer = await g.call(path, { key, method })
    t.match(
      answer,
      { status: 404, json: { error: { type: 'invalid_request_error', code: 'not_found' } } },
      `${method} ${path}`,
    )
    t.equal(answer.headers.get('x-should-retry'), 'false')
  }
  t.match(await g.call('/v1/messages/batches', { key }), {
    status: 404,
    json: { type: 'error', error: { type: 'not_found_error' } },
  })
})

t.test('probes are answered at once', async t => {
  for (const method of ['HEAD', 'GET']) t.equal((await g.call('/', { method })).status, 200)
  t.match((await g.call('/')).json, { status: 'ok' })
})

t.test('a WebSocket is refused, not left hanging', async t => {
  const { port } = new URL(g.url)
  const socket = net.connect(Number(port), '127.0.0.1')
  socket.write(
    'GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n',
  )
  const [answer] = (await new Promise<Buffer[]>(resolve => socket.once('data', data => resolve([data])))) as [Buffer]
  socket.destroy()
  t.match(answer.toString(), /^HTTP\/1\.1 (?:405|426|404) /)
})
