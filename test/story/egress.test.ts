import { createServer, type Server as HttpServer } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import net, { type AddressInfo, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { BODY, CHAT, REPLY } from '../pooled.ts'
import { certificateFor, DAY_MS, type Pems, trustRoot } from '../tls.ts'
import { ScriptedUpstream, json, listening } from '../upstream.ts'
import { matchAll } from '../matching.ts'

/** The connections to providers: TLS as in production, and the egress proxies of accounts. */

trustRoot(t)

/** A provider that speaks TLS. Returns its port, and the names that clients asked for. */
async function secure(t: Test, pems: Pems): Promise<{ port: number; names: unknown[]; requests: number[] }> {
  const names: unknown[] = []
  const requests: number[] = []
  const server = createSecureServer({ key: pems.private, cert: pems.cert }, (req, res) => {
    requests.push(req.socket.remotePort ?? 0)
    req.resume().on('end', () => json(res, REPLY))
  })
  server.on('secureConnection', (socket: TLSSocket) => names.push(socket.servername))
  server.on('tlsClientError', () => {})
  await listening(server)
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return { port: (server.address() as AddressInfo).port, names, requests }
}

function gatewayFor(t: Test, url: string, proxy?: string): Promise<TestGateway> {
  const accounts = [{ key: 'upstream-secret-0123456789', ...(proxy !== undefined && { proxy }) }]
  return startGateway(t, {
    edit: file =>
      file
        .set('upstreams.famC.url', url)
        .set('upstreams.famC.allowPrivate', true)
        .set('upstreams.famC.accounts', accounts)
        .set('upstreams.famC.timeouts', { connect: '2s' }),
  })
}

t.test('a provider is asked by TLS, and each connection names it and is used again', async t => {
  const now = Date.now()
  const { port, names, requests } = await secure(t, await certificateFor('localhost', now - DAY_MS, now + DAY_MS))
  const g = await gatewayFor(t, `https://localhost:${port}`)
  const key = await g.key('famC')
  for (let nth = 0; nth < 3; nth++) {
    t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
    await g.settled(key)
  }
  t.same(names, ['localhost'])
  t.equal(new Set(requests).size, 1)
})

t.test('a provider whose certificate is not valid gets nothing, and nothing is charged', async t => {
  const now = Date.now()
  const cases = [
    ['expired', await certificateFor('localhost', now - 2 * DAY_MS, now - DAY_MS)],
    ['for another name', await certificateFor('other.test', now - DAY_MS, now + DAY_MS)],
    ['of an unknown root', await certificateFor('localhost', now - DAY_MS, now + DAY_MS, false)],
  ] as const
  for (const [name, pems] of cases) {
    const { port, requests } = await secure(t, pems)
    const g = await gatewayFor(t, `https://localhost:${port}`)
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, name)
    t.equal(requests.length, 0, name)
    matchAll(t, await g.settled(key), [{ type: 'void' }], name)
  }
})

interface Proxy {
  readonly port: number
  /** What connections were asked for, with the login. */
  readonly asked: string[]
}

/** Passes everything between two sockets. */
function join(client: Socket, port: number, begin: () => void): void {
  const upstream = net.connect(port, '127.0.0.1', begin)
  client.pipe(upstream).pipe(client)
  for (const socket of [client, upstream]) socket.on('error', () => [client, upstream].forEach(each => each.destroy()))
}

function stopped(t: Test, server: HttpServer | net.Server): void {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => sockets.add(socket))
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
}

/** A proxy that takes CONNECT, resolves every name to this machine, and wants a login. */
async function httpProxy(t: Test): Promise<Proxy> {
  const asked: string[] = []
  const server = createServer()
  stopped(t, server)
  server.on('connect', (req, socket: Socket) => {
    asked.push(`${req.url} ${req.headers['proxy-authorization']}`)
    if (req.headers['proxy-authorization'] === undefined)
      return void socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
    const port = Number(req.url?.split(':').at(-1))
    join(socket, port, () => socket.write('HTTP/1.1 200 Connected\r\n\r\n'))
  })
  await listening(server)
  return { port: (server.address() as AddressInfo).port, asked }
}

/** A SOCKS5 proxy that wants a login (RFC 1928 and 1929) and resolves every name to this machine. */
async function socksProxy(t: Test): Promise<Proxy> {
  const asked: string[] = []
  const server = net.createServer(socket => {
    let step = 0
    socket.on('error', () => {})
    socket.on('data', function take(bytes) {
      step++
      if (step === 1) return void socket.write(Buffer.from([5, bytes.includes(2, 2) ? 2 : 255]))
      if (step === 2) {
        asked.push(bytes.toString('latin1'))
        return void socket.write(Buffer.from([1, 0]))
      }
      socket.off('data', take)
      const length = bytes[4] ?? 0
      asked.push(bytes.toString('latin1', 5, 5 + length))
      join(socket, bytes.readUInt16BE(5 + length), () => socket.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0])))
    })
  })
  stopped(t, server)
  await listening(server)
  return { port: (server.address() as AddressInfo).port, asked }
}

t.test('an account connects by its HTTP proxy, which sees the provider’s name and no request', async t => {
  const now = Date.now()
  const { port, names } = await secure(t, await certificateFor('provider.test', now - DAY_MS, now + DAY_MS))
  const proxy = await httpProxy(t)
  const g = await gatewayFor(t, `https://provider.test:${port}`, `http://me:p%40ss@127.0.0.1:${proxy.port}`)
  const key = await g.key('famC')
  for (let nth = 0; nth < 2; nth++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  const login = Buffer.from('me:p@ss').toString('base64')
  t.same(proxy.asked, [`provider.test:${port} Basic ${login}`], 'one tunnel serves both requests')
  t.same(names, ['provider.test'])
  await g.settled(key)
})

t.test('an account connects by its SOCKS5 proxy, which resolves the name', async t => {
  const now = Date.now()
  const { port, names } = await secure(t, await certificateFor('provider.test', now - DAY_MS, now + DAY_MS))
  const proxy = await socksProxy(t)
  const g = await gatewayFor(t, `https://provider.test:${port}`, `socks5://me:word@127.0.0.1:${proxy.port}`)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.same(proxy.asked, ['\u0001\u0002me\u0004word', 'provider.test'])
  t.same(names, ['provider.test'])
  await g.settled(key)
})

t.test('a provider without TLS is reached by a proxy as well', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, REPLY)
  const proxy = await httpProxy(t)
  const { port } = new URL(upstream.url)
  const g = await gatewayFor(t, upstream.url, `http://me:word@127.0.0.1:${proxy.port}`)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.match(proxy.asked, [`127.0.0.1:${port} Basic `])
  t.equal(upstream.last.headers['proxy-authorization'], undefined)
  await g.settled(key)
})

t.test('a proxy that refuses, or is not there, fails the attempt and is not passed by', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) => json(res, REPLY)
  const proxy = await httpProxy(t)
  for (const address of [`http://127.0.0.1:${proxy.port}`, 'http://127.0.0.1:1', 'socks5://127.0.0.1:1']) {
    const g = await gatewayFor(t, upstream.url, address)
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, address)
    matchAll(t, await g.settled(key), [{ type: 'void' }], address)
  }
  t.equal(upstream.requests.length, 0)
})

t.test('a provider is reached by IPv6', async t => {
  const server = createServer((req, res) => void req.resume().on('end', () => json(res, REPLY)))
  stopped(t, server)
  const hasIPv6 = await new Promise<boolean>(resolve => {
    server.once('error', () => resolve(false))
    server.listen(0, '::1', () => resolve(true))
  })
  if (!hasIPv6) return t.comment('this machine has no IPv6')
  const { port } = server.address() as AddressInfo
  const g = await gatewayFor(t, `http://[::1]:${port}`)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  await g.settled(key)
})
