import { setImmediate as turn } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { ByteBuffer } from '../../core/lib/byte-buffer.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { ScriptedUpstream, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'
import { ended, text } from '../stream-events.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }] }
const STREAM = { ...BODY, stream: true, stream_options: { include_usage: true } }
const KEEPALIVE = ': keepalive\n\n'
const EVENT = text('partial')
const END = ended(3, 4)
const SMALL = 64 * 1024
const TOO_MUCH = 2 * SMALL

let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url, edit: file => file.set('limits.reply', '64KiB') })
})

t.test('a reply over limits.reply is an error, and costs nothing', async t => {
  const key = await g.key('famC')
  const reply = JSON.stringify({ choices: [{ message: { content: 'x'.repeat(TOO_MUCH) } }] })
  upstream.script = (_received, res) => void res.writeHead(200, { 'content-type': 'application/json' }).end(reply)
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 502 }, 'a JSON reply')
  upstream.script = (_received, res) =>
    void res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(gzipSync(reply))
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 502 }, 'one that is small while it is compressed')
  const streams: [string, string][] = [
    ['an event', `data: ${'x'.repeat(TOO_MUCH)}`],
    ['an event of many lines', 'data: x\n'.repeat(TOO_MUCH / 8)],
    ['comments and never an event', KEEPALIVE.repeat(TOO_MUCH / KEEPALIVE.length)],
  ]
  for (const [name, text] of streams) {
    // It never ends, so only the limit stops it.
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(text)
    }
    t.match(await g.call(CHAT, { key, body: STREAM }), { status: 502 }, name)
  }
  const entries = await g.settled(key)
  t.equal(entries.length, 5)
  for (const entry of entries) t.match(entry, { type: 'void', status: 'failed', cost_nano: '0' })
})

t.test('a stream longer than limits.reply passes if none of its events is', async t => {
  const text = EVENT.repeat(TOO_MUCH / EVENT.length) + KEEPALIVE.repeat(TOO_MUCH / KEEPALIVE.length) + END
  upstream.script = (_received, res) => sse(res, text)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: STREAM })).text, text)
  matchAll(t, await g.settled(key), [{ status: 'ok', input_tokens: 3, output_tokens: 4 }])
})

t.test(
  'an event over limits.reply in the middle of a stream ends the stream in its format, and what was delivered is charged',
  async t => {
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(`${EVENT}data: ${'x\ndata: '.repeat(TOO_MUCH / 8)}`)
    }
    const key = await g.key('famC')
    const { status, text } = await g.call(CHAT, { key, body: STREAM })
    t.equal(status, 200)
    t.ok(text.startsWith(`${EVENT}data: {"error":`), text.slice(0, 200))
    matchAll(t, await g.settled(key), [{ status: 'broken', usage_source: 'estimated' }])
  },
)

t.test('comments that arrive before the first event reach the client with it', async t => {
  const text = KEEPALIVE.repeat(50) + EVENT + END
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    for (let at = 0; at < text.length; at += 5) {
      res.write(text.slice(at, at + 5))
      await turn()
    }
    res.end()
  }
  t.equal((await g.call(CHAT, { key: await g.key('famC'), body: STREAM })).text, text)
})

t.test('a byte order mark before a JSON reply does not hide the reply', async t => {
  const key = await g.key('famC')
  const reply = '\ufeff{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":6}}'
  upstream.script = (_received, res) => void res.writeHead(200, { 'content-type': 'application/json' }).end(reply)
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, text: reply.slice(1) })
  matchAll(t, await g.settled(key), [{ status: 'ok', input_tokens: 5, output_tokens: 6 }])
  upstream.script = (_received, res) =>
    void res
      .writeHead(400, { 'content-type': 'application/json' })
      .end('\ufeff{"error":{"message":"too long","type":"invalid_request_error"}}')
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 400, json: { error: { message: 'too long' } } })
})

t.test('a buffer joins its pieces without changes, and does not copy a single piece', async t => {
  const pieces = new ByteBuffer()
  t.equal(pieces.take().length, 0)
  const alone = Buffer.from('alone')
  t.equal(pieces.push(alone), 5)
  t.equal(pieces.take().buffer, alone.buffer)
  const text = Array.from({ length: 10_000 }, (_, n) => String(n))
  const given = text.map(each => Buffer.from(each))
  for (const piece of given) pieces.push(piece)
  t.equal(pieces.length, text.join('').length)
  t.equal(pieces.take().toString(), text.join(''))
  t.equal(pieces.length, 0)
  t.same(given.map(String), text, 'what was given stays as it was')
})
