import { connect } from 'node:net'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { RawClient } from '../raw.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/** Raw requests: malformed ones never hang, never crash the gateway and never reach the upstream. */

let g: TestGateway
let upstream: ScriptedUpstream
let key: string
const BODY = '{"model":"acme/famC-5.5","messages":[]}'

t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    json(res, { choices: [{ finish_reason: 'stop' }], usage: { prompt_tokens: 1, completion_tokens: 1 } })
  g = await startGateway(t, {
    upstream: upstream.url,
    edit: file =>
      file
        .set('limits.headersTime', '1s')
        .set('limits.bodyIdle', '300ms')
        .set('limits.bodyTime', '2s')
        .set('limits.body', '4KiB')
        .set('limits.idleConnection', '1s')
        .set('limits.unreadTime', '300ms'),
  })
  key = await g.key('famC')
})

/** Sends bytes, piece by piece. Returns everything until the gateway closed the connection. */
async function raw(...pieces: string[]): Promise<string> {
  const client = new RawClient(g.gateway.port, ...pieces)
  await client.closed
  return client.answer
}

const post = (headers: string, body = BODY): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n${headers}\r\n\r\n${body}`
const status = (answer: string): number => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0)
const answers = (answer: string): number => answer.match(/HTTP\/1\.1 [2-5]\d\d/g)?.length ?? 0

t.test('malformed requests are refused and the connection closes', async t => {
  const cases: [string, string, number][] = [
    ['content-length and transfer-encoding', post(`content-length: ${BODY.length}\r\ntransfer-encoding: chunked`), 400],
    ['two content-lengths', post(`content-length: ${BODY.length}\r\ncontent-length: 5`), 400],
    ['transfer-encoding of another kind', post('transfer-encoding: xchunked'), 400],
    ['a folded header', post('x-a: 1\r\n b: 2'), 400],
    ['a NUL in a header', post('x-a: \0'), 400],
    ['a bad chunk size', post('transfer-encoding: chunked', 'zz\r\n'), 400],
    ['two hosts', post(`host: y\r\ncontent-length: ${BODY.length}\r\nconnection: close`), 400],
    [
      'two credentials',
      post(`authorization: Bearer sk-other\r\ncontent-length: ${BODY.length}\r\nconnection: close`),
      400,
    ],
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 400],
    ['headers without end', `GET /health HTTP/1.1\r\nhost: x\r\n${'x-a: 1\r\n'.repeat(10_000)}\r\n`, 431],
    ['a long URL', `GET /${'a'.repeat(9000)} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`, 414],
    ['HTTP/0.9', 'GET /health\r\n\r\n', 400],
    ['HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
    ['CONNECT', 'CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n', 405],
    ['OPTIONS *', 'OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n', 404],
    ['a whole URL', 'GET http://other.example/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n', 200],
    ['a URL without a path', 'GET HTTP://other.example?x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n', 200],
    ['TRACE', 'TRACE /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n', 405],
    ['an upgrade', 'GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n', 426],
  ]
  const before = upstream.requests.length
  for (const [name, bytes, expected] of cases) t.equal(status(await raw(bytes)), expected, name)
  t.equal(upstream.requests.length, before, 'nothing reached the upstream')
  t.equal((await g.call('/health')).status, 200)
})

t.test('a request hidden in an unread body is never answered', async t => {
  const hidden = 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'
  const refused = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-wrong\r\ncontent-length: 5000\r\n\r\n${hidden}`
  const answer = await raw(refused)
  t.equal(status(answer), 401)
  t.match(answer.toLowerCase(), /connection: close/)
  t.equal(answers(answer), 1)
})

t.test('bodies over the limit are refused by their length or by their bytes', async t => {
  t.equal(status(await raw(post('content-length: 5000\r\nconnection: close', 'x'))), 413)
  const chunk = `400\r\n${' '.repeat(1024)}\r\n`
  t.equal(
    status(await raw(post('transfer-encoding: chunked\r\nconnection: close', ''), chunk, chunk, chunk, chunk, chunk)),
    413,
  )
  t.equal(
    status(
      await raw(
        post('transfer-encoding: chunked\r\nconnection: close', `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`),
      ),
    ),
    200,
  )
})

t.test('a client that sends Expect gets 100 Continue only if its body is wanted', async t => {
  const ask = 'expect: 100-continue\r\nconnection: close\r\ncontent-length'
  const wrong = await raw(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-wrong\r\n${ask}: 10\r\n\r\n`,
  )
  t.equal(status(wrong), 401)
  t.notMatch(wrong, '100 Continue')
  const large = await raw(post(`${ask}: 5000`, ''))
  t.equal(status(large), 413)
  const wanted = await raw(post(`${ask}: ${BODY.length}`))
  t.match(wanted, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/)
  const other = await raw(post(`expect: miracles\r\nconnection: close\r\ncontent-length: ${BODY.length}`))
  t.match(other, /HTTP\/1\.1 200 OK/, 'what else it expects is nothing to refuse it for')
})

t.test('slow headers, slow bodies and idle connections are disconnected', async t => {
  t.equal(status(await raw('GET /health HT')), 408)
  t.equal(status(await raw(post('content-length: 100', '{'))), 408)
  t.equal(
    status(await raw('GET /health HTTP/1.1\r\nhost: x\r\n\r\n')),
    200,
    'an idle connection is closed after its answer',
  )
  t.equal(status(await raw('')), 408, 'so is one that never says anything')
})

t.test('pipelined requests are answered in order', async t => {
  const one = post(`content-length: ${BODY.length}`)
  const answer = await raw(one, 'GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
  t.match(answer, /^HTTP\/1\.1 200[^]*finish_reason[^]*HTTP\/1\.1 200[^]*"status":"ok"/)
  t.same((await g.settled(key)).filter(({ type }) => type === 'settle').length > 0, true)
})

t.test('HTTP/1.0 gets a reply and a closed connection', async t => {
  const answer = await raw('GET /health HTTP/1.0\r\n\r\n')
  t.match(answer, /^HTTP\/1\.1 200[^]*"status":"ok"/)
})

t.test('a client that resets its connection at any moment does not stop the gateway', async t => {
  for (const bytes of [
    'CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n',
    'GET /health HTTP/1.1\r\nhost: x\r\n\r\n',
    post('content-length: 100', '{'),
    'GET /',
  ]) {
    for (let times = 0; times < 20; times++) {
      await new Promise<void>(resolve => {
        const socket = connect(g.gateway.port, '127.0.0.1', () => {
          socket.write(bytes)
          if (times % 2 === 0) setImmediate(() => socket.resetAndDestroy())
        })
        socket.once('data', () => socket.resetAndDestroy())
        socket.on('error', () => {})
        socket.once('close', () => resolve())
      })
    }
  }
  t.equal((await g.call('/health')).status, 200)
})

t.test('a client that only connects does not delay the end', async t => {
  const gateway = await startGateway(t)
  const socket = connect(gateway.gateway.port, '127.0.0.1')
  const closed = new Promise(resolve => socket.on('error', resolve).on('close', resolve))
  await gateway.call('/health')
  await gateway.gateway.stop()
  await closed
})
