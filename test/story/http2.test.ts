import dns from 'node:dns'
import {
  createSecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2'
import net, { type AddressInfo, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { BODY, CHAT, REPLY, USAGE } from '../pooled.ts'
import { RawClient } from '../raw.ts'
import { certificateFor, DAY_MS, trustRoot } from '../tls.ts'
import { json, listening, ScriptedUpstream } from '../upstream.ts'

/** Connections to providers: HTTP/2, dead connections, and changed addresses. */

trustRoot(t)
const now = Date.now()
const PEMS = await certificateFor('localhost', now - DAY_MS, now + DAY_MS)

const STREAM = { ...BODY, stream: true, stream_options: { include_usage: true } }
const TEXT = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"good"}}]}\n\n'
const END =
  `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n` +
  `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`

type Answer = (req: Http2ServerRequest, res: Http2ServerResponse) => void

interface Provider {
  readonly port: number
  readonly sessions: Set<ServerHttp2Session>
  /** The version of each request. */
  readonly versions: string[]
  answer: Answer
}

/** Sends a reply in one piece. */
function whole(res: Http2ServerResponse): void {
  res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(REPLY))
}

/** A provider that offers HTTP/2 and HTTP/1.1. */
async function provider(t: Test, settings: object = {}): Promise<Provider> {
  const made = { sessions: new Set<ServerHttp2Session>(), versions: [] as string[] }
  const server = createSecureServer({ key: PEMS.private, cert: PEMS.cert, allowHTTP1: true, settings })
  const given: Provider = { ...made, port: 0, answer: (_req, res) => whole(res) }
  server.on('session', session => {
    made.sessions.add(session)
    session.on('close', () => made.sessions.delete(session))
    session.on('error', () => {})
  })
  server.on('request', (req, res) => {
    made.versions.push(req.httpVersion)
    res.stream?.on('error', () => {})
    req.resume().on('end', () => given.answer(req, res))
  })
  await listening(server)
  t.teardown(() => {
    server.close()
    for (const session of made.sessions) session.destroy()
  })
  return Object.assign(given, { port: (server.address() as AddressInfo).port })
}

function gatewayFor(t: Test, port: number, upstream: object = {}, timeouts: object = {}): Promise<TestGateway> {
  return startGateway(t, {
    edit: file => {
      file.set('upstreams.famC.url', `https://localhost:${port}`)
      for (const [name, value] of Object.entries({ http2: 'auto', ...upstream }))
        file.set(`upstreams.famC.${name}`, value)
      return file
        .set('upstreams.famC.accounts', [{ key: 'upstream-secret-0123456789' }])
        .set('upstreams.famC.timeouts', { connect: '2s', ...timeouts })
        .set('keyTypes.famC.limits.concurrency', 1000)
    },
  })
}

t.test('with `http2: auto`, requests share the connections of a provider that offers HTTP/2', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port)
  const key = await g.key('famC')
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
  const held: Http2ServerResponse[] = []
  upstream.answer = (_req, res) => void held.push(res)
  const calls = Array.from({ length: 90 }, () => g.call(CHAT, { key, body: BODY }))
  await until(() => held.length === 90)
  t.equal(upstream.sessions.size, 1, 'all at the same time on one connection')
  for (const res of held.splice(0)) whole(res)
  for (const reply of await Promise.all(calls)) t.match(reply, { status: 200, json: REPLY })
  t.same(new Set(upstream.versions), new Set(['2.0']))

  t.comment('A server may allow fewer requests at a time. The others get connections of their own.')
  const narrow = await provider(t, { maxConcurrentStreams: 2 })
  const other = await gatewayFor(t, narrow.port)
  const second = await other.key('famC')
  t.equal((await other.call(CHAT, { key: second, body: BODY })).status, 200)
  narrow.answer = (_req, res) => void held.push(res)
  const more = Array.from({ length: 10 }, () => other.call(CHAT, { key: second, body: BODY }))
  await until(() => held.length === 10)
  t.ok(narrow.sessions.size >= 5, `${narrow.sessions.size} connections`)
  for (const res of held.splice(0)) whole(res)
  for (const { status } of await Promise.all(more)) t.equal(status, 200)
})

t.test('streams over one connection arrive as they are sent, and a slow client holds up no other', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port)
  const key = await g.key('famC')
  const large = `data: {"choices":[{"index":0,"delta":{"content":"${'x'.repeat(16_000)}"}}]}\n\n`
  upstream.answer = (_req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(TEXT)
    res.end(END)
  }
  t.match(await g.call(CHAT, { key, body: STREAM }), { status: 200, text: `${TEXT}${END}` })

  let paused = false
  const quick = upstream.answer
  upstream.answer = (_req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(TEXT)
    // As long as the client takes it.
    const send = (): void => {
      while (res.write(large));
      paused = true
    }
    res.on('drain', send)
    send()
  }
  const text = JSON.stringify(STREAM)
  const slow = new RawClient(
    g.gateway.port,
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  )
  slow.socket.pause()
  await until(() => paused)
  upstream.answer = quick
  for (let nth = 0; nth < 20; nth++)
    t.match(await g.call(CHAT, { key, body: STREAM }), { status: 200, text: `${TEXT}${END}` })
  t.equal(upstream.sessions.size, 1)
  slow.socket.destroy()
  await g.settled(key)
  t.match(await g.balance(key), { held: '0' })
})

t.test('large requests at the same time all get their replies', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port)
  const key = await g.key('famC', 1000n)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  const body = { ...BODY, messages: [{ role: 'user', content: 'word '.repeat(300_000) }] }
  const replies = await Promise.all(Array.from({ length: 12 }, () => g.call(CHAT, { key, body })))
  for (const reply of replies) t.match(reply, { status: 200, json: REPLY })
  t.equal(upstream.versions.length, 13)
})

t.test('a connection whose server has not answered is closed with its request', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port, { onDisconnect: 'cancel' }, { keepAlive: '60s' })
  const key = await g.key('famC')
  let asked = 0
  upstream.answer = () => void asked++
  const leaving = new AbortController()
  const calls = Array.from({ length: 5 }, () => g.call(CHAT, { key, body: STREAM, signal: leaving.signal }))
  await until(() => asked === 5)
  t.equal(upstream.sessions.size, 5)
  leaving.abort()
  await Promise.allSettled(calls)
  await until(() => upstream.sessions.size === 0)
  await g.settled(key)
})

t.test('a provider that offers no HTTP/2, and an upstream without `http2: auto`, use HTTP/1.1', async t => {
  const upstream = await provider(t)
  const off = await gatewayFor(t, upstream.port, { http2: 'off' })
  const key = await off.key('famC')
  t.match(await off.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
  t.same(upstream.versions, ['1.1'])
  const plain = await ScriptedUpstream.start(t)
  plain.script = (_received, res) => json(res, REPLY)
  const g = await startGateway(t, {
    upstream: plain.url,
    edit: file => file.set('upstreams.famC.http2', 'auto'),
  })
  t.match(await g.call(CHAT, { key: await g.key('famC'), body: BODY }), { status: 200, json: REPLY })
})

t.test('a provider that closes an HTTP/2 connection gets each request once', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.comment('It says that it will close while requests run: they end there, and new ones go elsewhere.')
  const held: Http2ServerResponse[] = []
  upstream.answer = (_req, res) => void held.push(res)
  const running = Array.from({ length: 5 }, () => g.call(CHAT, { key, body: BODY }))
  await until(() => held.length === 5)
  const [session] = upstream.sessions
  session?.close()
  upstream.answer = (_req, res) => whole(res)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  for (const res of held) whole(res)
  for (const { status } of await Promise.all(running)) t.equal(status, 200)
  t.equal(upstream.versions.length, 7)

  t.comment('It breaks off while requests run: they fail, and none is sent again.')
  held.length = 0
  upstream.answer = (_req, res) => void held.push(res)
  const broken = Array.from({ length: 5 }, () => g.call(CHAT, { key, body: BODY }))
  await until(() => held.length === 5)
  for (const each of upstream.sessions) each.destroy()
  for (const { status } of await Promise.all(broken)) t.equal(status, 502)
  t.equal(upstream.versions.length, 12)
  upstream.answer = (_req, res) => whole(res)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  const entries = await g.settled(key)
  t.equal(entries.filter(({ type }) => type === 'settle').length, 8)
  t.match(await g.balance(key), { held: '0' })
})

t.test('a cancelled stream ends at the provider, and the connection stays', async t => {
  const upstream = await provider(t)
  const g = await gatewayFor(t, upstream.port, { onDisconnect: 'cancel' })
  const key = await g.key('famC')
  let cancelled = false
  upstream.answer = (_req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write(TEXT)
    res.stream.on('close', () => (cancelled = true))
  }
  const text = JSON.stringify(STREAM)
  const client = new RawClient(
    g.gateway.port,
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  )
  await client.saw(/good/)
  client.socket.destroy()
  await until(() => cancelled)
  upstream.answer = (_req, res) => whole(res)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(upstream.sessions.size, 1)
  await g.settled(key)
})

/** Forwards bytes to a port. After `stop`, it keeps its connections and loses everything that comes. */
async function tunnel(t: Test, port: number): Promise<{ port: number; stop: () => void; connections: () => number }> {
  const pairs: (readonly [Socket, Socket])[] = []
  const server = net.createServer(socket => {
    const onward = net.connect(port, '127.0.0.1')
    pairs.push([socket, onward])
    for (const each of [socket, onward]) each.on('error', () => {})
    socket.pipe(onward).pipe(socket)
  })
  await listening(server)
  t.teardown(() => {
    server.close()
    for (const pair of pairs) for (const socket of pair) socket.destroy()
  })
  const stop = (): void => {
    for (const [socket, onward] of pairs) {
      socket.unpipe(onward)
      onward.unpipe(socket)
      socket.resume()
      onward.resume()
    }
  }
  return { port: (server.address() as AddressInfo).port, stop, connections: () => pairs.length }
}

t.test('a dead HTTP/2 connection is noticed, and the next request gets a new one', async t => {
  const upstream = await provider(t)
  const between = await tunnel(t, upstream.port)
  const g = await gatewayFor(t, between.port, {}, { ping: '1s' })
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  between.stop()
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, 'long before timeouts.firstByte')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(between.connections(), 2)
})

t.test('a request on a connection that its provider has just reset goes over a new one', async t => {
  const upstream = await provider(t)
  const open = new Set<Socket>()
  const between = net.createServer(socket => {
    const onward = net.connect(upstream.port, '127.0.0.1')
    open.add(socket)
    socket.on('close', () => onward.destroy())
    for (const each of [socket, onward]) each.on('error', () => {})
    socket.pipe(onward).pipe(socket)
  })
  await listening(between)
  t.teardown(() => {
    between.close()
    for (const socket of open) socket.destroy()
  })
  const g = await gatewayFor(t, (between.address() as AddressInfo).port, { http2: 'off' })
  const key = await g.key('famC')
  for (let nth = 0; nth < 3; nth++) {
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    // The gateway learns of it at about the time when it sends the next request.
    for (const socket of open) socket.resetAndDestroy()
    open.clear()
    await new Promise(resolve => setImmediate(resolve))
  }
})

t.test('when the address of a provider changes, requests follow within connectionAge', async t => {
  const before = await ScriptedUpstream.start(t)
  const { port } = new URL(before.url)
  before.script = (_received, res) => json(res, { ...REPLY, id: 'before' })
  const moved = net.createServer(socket => {
    socket.on('error', () => {})
    socket.on('data', () =>
      socket.end(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n${JSON.stringify({ ...REPLY, id: 'after' })}`,
      ),
    )
  })
  await new Promise<void>(resolve => moved.listen(Number(port), '127.0.0.2', resolve))
  t.teardown(() => void moved.close())

  const lookup = dns.lookup
  t.teardown(() => (dns.lookup = lookup))
  let address = '127.0.0.1'
  dns.lookup = ((host: string, options: dns.LookupOptions, callback: (...args: unknown[]) => void) => {
    if (host !== 'provider.test') return (lookup as (...args: unknown[]) => void)(host, options, callback)
    callback(null, options.all ? [{ address, family: 4 }] : address, 4)
  }) as unknown as typeof dns.lookup

  const g = await startGateway(t, {
    edit: file =>
      file
        .set('upstreams.famC.url', `http://provider.test:${port}`)
        .set('upstreams.famC.allowPrivate', true)
        .set('upstreams.famC.accounts', [{ key: 'upstream-secret-0123456789' }])
        .set('upstreams.famC.timeouts', { connectionAge: '300ms', keepAlive: '60s' }),
  })
  const key = await g.key('famC')
  const ask = async (): Promise<unknown> => (await g.call(CHAT, { key, body: BODY })).json.id
  t.equal(await ask(), 'before')
  address = '127.0.0.2'
  await until(async () => (await ask()) === 'after')
  t.equal(await ask(), 'after')
  await g.settled(key)
})
