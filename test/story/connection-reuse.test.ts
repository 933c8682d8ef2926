import net, { type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { Sender, type Client } from '../../core/upstream/connection/send.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { listening, rawUpstream } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [] }

t.test('a request that broke a new connection is not sent again, since the provider may have received it', async t => {
  const upstream = await rawUpstream(t, socket => socket.end())
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC')
  for (let asked = 1; asked <= 5; asked++) {
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
    t.equal(upstream.requests.length, asked)
  }
})

const REPLY =
  '{"choices":[{"finish_reason":"stop","message":{"content":"hello"}}],"usage":{"prompt_tokens":10,"completion_tokens":5}}'
const WHOLE = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${REPLY.length}\r\n\r\n${REPLY}`

/**
 * A provider whose first reply is complete and keeps its connection. At the next request on it, it misbehaves once as
 * given.
 */
async function kept(
  t: Test,
  next: (socket: Socket) => void,
): Promise<{ g: TestGateway; key: string; asked: () => number }> {
  let count = 0
  const upstream = await rawUpstream(t, socket => {
    if (++count === 2) next(socket)
    else socket.write(WHOLE)
  })
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  return { g, key, asked: () => count }
}

t.test('a kept connection that closes as it is taken is replaced once, and the replacement is counted', async t => {
  for (const close of [(socket: Socket) => void socket.end(), (socket: Socket) => void socket.resetAndDestroy()]) {
    const { g, key, asked } = await kept(t, close)
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    t.equal(asked(), 3)
    t.match(
      (await g.settled(key)).map(({ status }) => status),
      ['ok', 'ok'],
    )
  }
})

t.test('a request that an upstream may have processed is not sent again', async t => {
  const cases: [string, (socket: Socket) => void][] = [
    ['closed after some work', socket => void setTimeout(() => socket.end(), 500)],
    ['reset after some work', socket => void setTimeout(() => socket.resetAndDestroy(), 500)],
    ['closed after half a head', socket => void socket.end('HTTP/1.1 200 OK\r\ncontent-')],
    ['closed after the first byte', socket => void socket.end('H')],
    ['closed after a 102', socket => void socket.end('HTTP/1.1 102 Processing\r\n\r\n')],
    ['closed after a 103', socket => void socket.end('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n')],
    ['closed after a 100', socket => void socket.end('HTTP/1.1 100 Continue\r\n\r\n')],
  ]
  for (const [name, close] of cases) {
    const { g, key, asked } = await kept(t, close)
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, name)
    t.equal(asked(), 2, name)
    await g.settled(key)
  }
})

t.test(
  'a request that broke a new connection is not sent again, even if a kept connection had closed before it',
  async t => {
    let ids = 0
    const seen: string[] = []
    const answered = new Set<Socket>()
    const upstream = await rawUpstream(t, (socket, request) => {
      seen.push(`${++ids}: ${request.split('\r\n\r\n')[1]}`)
      if (ids > 1) return void socket.end()
      answered.add(socket)
      socket.write(WHOLE)
    })
    const sender = new Sender()
    t.teardown(() => sender.close())
    const to = {
      proxy: undefined,
      url: new URL(upstream.url),
      http2: false,
      timeouts: { connectMs: 1000, keepAliveMs: 4000, firstByteMs: 10_000, connectionAgeMs: 60_000, pingMs: 10_000 },
    }
    const client: Client = { over: false, whenOver: () => () => {}, sent: () => {} }
    const send = (body: string): ReturnType<Sender['send']> =>
      sender.send(to, { path: '/', headers: {}, body: [Buffer.from(body)] }, client, () => t.fail('it was sent again'))
    const first = await send('a')
    if (typeof first === 'string') throw new Error(first)
    await new Promise(resolve => first.body.on('data', () => {}).on('end', () => resolve(undefined)))
    await new Promise(resolve => setTimeout(resolve, 10))
    // The connection is idle. The provider has closed it, and the sender has not noticed yet.
    for (const socket of answered) socket.end()
    await t.rejects(send('b'), { code: 'upstream_failed' })
    t.strictSame(seen, ['1: a', '2: b'])
  },
)

t.test('a connection whose request was answered before it was sent completely is not reused', async t => {
  const connections: Socket[] = []
  const upstream = net.createServer(socket => {
    connections.push(socket)
    socket.on('error', () => {})
    if (connections.length > 1) return void socket.once('data', () => socket.write(WHOLE))
    socket.once('data', () => {
      socket.pause()
      socket.write('HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}')
    })
  })
  const url = await listening(upstream)
  t.teardown(() => {
    upstream.close()
    for (const socket of connections) socket.destroy()
  })
  const g = await startGateway(t, { upstream: url })
  const key = await g.key('famC', 1000n)
  const long = { ...BODY, max_tokens: 10, messages: [{ role: 'user', content: 'x'.repeat(12_000_000) }] }
  t.equal((await g.call(CHAT, { key, body: long })).status, 400)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(connections.length, 2)
  await g.settled(key)
})

t.test('a kept connection closes after keepAlive, even if its upstream names a longer time', async t => {
  const upstream = await rawUpstream(t, socket =>
    socket.write(WHOLE.replace('\r\n', '\r\nkeep-alive: timeout=600\r\n')),
  )
  const g = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('upstreams.famC.timeouts', { keepAlive: '100ms' }),
  })
  t.equal((await g.call(CHAT, { key: await g.key('famC'), body: BODY })).status, 200)
  await until(() => upstream.sockets.size === 0)
  t.equal(upstream.requests.length, 1)
})

t.test('informational responses are skipped, wherever their bytes are cut', async t => {
  const informational =
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\nx: y\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n'
  const bytes = informational + WHOLE
  let cut = 0
  const upstream = await rawUpstream(t, socket => {
    socket.write(bytes.slice(0, cut), () => setImmediate(() => socket.write(bytes.slice(cut))))
  })
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC', 1000n)
  for (cut = 1; cut < informational.length + 20; cut++) {
    const { status, json } = await g.call(CHAT, { key, body: BODY })
    if (status !== 200 || json.choices[0].message.content !== 'hello') t.fail(`cut at ${cut}: ${status}`)
  }
  t.equal(upstream.requests.length, informational.length + 19, 'each request was sent once')
  await g.settled(key)
})

t.test('the size of everything that an upstream sends beside its reply is limited', async t => {
  const endless = (first: string, more: string) => (socket: Socket) => {
    socket.write(first)
    const go = (): void => {
      if (socket.destroyed) return
      if (socket.write(more.repeat(100))) setImmediate(go)
      else socket.once('drain', go)
    }
    go()
  }
  const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n'
  const cases: [string, (socket: Socket) => void][] = [
    ['informational responses', endless('', 'HTTP/1.1 102 Processing\r\n\r\n')],
    ['one informational response', endless('HTTP/1.1 103 Early Hints\r\n', 'link: </a>\r\n')],
    ['headers', endless(head, 'x-more: 1\r\n')],
    ['one header', endless(`${head}x-more: `, '1')],
    ['a chunk extension', endless(`${head}\r\n5;`, 'extended')],
    ['chunk extensions', endless(`${head}\r\n`, `1;${'x'.repeat(100)}\r\n \r\n`)],
    ['trailers', endless(`${head}\r\n1\r\n{\r\n0\r\n`, 'x-more: 1\r\n')],
  ]
  for (const [name, answer] of cases) {
    const upstream = await rawUpstream(t, answer)
    const g = await startGateway(t, { upstream: upstream.url })
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, name)
    t.equal(upstream.requests.length, 1, name)
    await g.settled(key)
  }
})
