import net from 'node:net'
import t, { type Test } from 'tap'
import { type Answer, type TestGateway, until } from '../gateway.ts'
import { RawClient } from '../raw.ts'
import { begun, json, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { DONE, text, usage } from '../stream-events.ts'
import { scene } from '../scene.ts'

/** Behaviour of one client's connections, and its effect on others. */

const BODY = '{"model":"acme/famC-5.5","messages":[{"role":"user","content":"hi"}]}'
const USAGE = { prompt_tokens: 10, completion_tokens: 5 }
const REPLY = { choices: [{ finish_reason: 'stop', message: { content: 'hello' } }], usage: USAGE }

const post = (key: string, body = BODY, headers = ''): string =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`
const get = (path: string, headers = ''): string => `GET ${path} HTTP/1.1\r\nhost: x\r\n${headers}\r\n`

async function start(
  t: Test,
  edit: Edit = file => file,
): Promise<{ g: TestGateway; upstream: ScriptedUpstream; key: string }> {
  const { g, upstream } = await scene(t, edit)
  upstream.script = (_received, res) => json(res, REPLY)
  return { g, upstream, key: await g.key('famC') }
}

t.test('pipelined requests are served one at a time, in order, and each is charged once', async t => {
  const { g, upstream, key } = await start(t)
  let running = 0
  let most = 0
  upstream.script = async (_received, res) => {
    most = Math.max(most, ++running)
    await new Promise(resolve => setImmediate(resolve))
    running--
    json(res, REPLY)
  }
  const client = new RawClient(g.gateway.port, post(key).repeat(9) + get('/health', 'connection: close\r\n'))
  await client.closed
  t.equal(client.replies, 10)
  t.match(client.answer, /"status":"ok"[^]*$/, 'the last reply is the last request’s')
  t.equal(most, 1)
  t.equal((await g.settled(key)).filter(({ type }) => type === 'settle').length, 9)
})

t.test(
  'a client that pipelines thousands of requests is cut behind the remembered ones, and others are served meanwhile',
  async t => {
    const { g, upstream, key } = await start(t)
    const replies = begun(upstream, text('a'))
    const attacker = new RawClient(g.gateway.port, post(key, BODY.replace('{', '{"stream":true,')))
    await attacker.saw(/"a"/)
    for (let times = 0; times < 10; times++) attacker.send(get('/').repeat(2000))
    const other = await g.key('famC')
    upstream.script = (_received, res) => json(res, REPLY)
    t.equal((await g.call('/v1/chat/completions', { key: other, body: BODY })).status, 200)
    t.ok(g.gateway.running <= 1, 'nothing that was sent ahead runs')
    replies[0]?.end(usage(10, 5) + DONE)
    await attacker.closed
    t.match(attacker.answer, /\[DONE\]/, 'the running reply was brought to its end')
    t.ok(attacker.replies <= 12, `${attacker.replies} replies`)
    await g.settled(key)
    await g.settled(other)
  },
)

t.test(
  'malformed bytes behind a running request are answered after its reply, which is complete and charged',
  async t => {
    const { g, upstream, key } = await start(t)
    const replies = begun(upstream, text('a'))
    for (const broken of [
      '\0\0\0 nonsense\r\n\r\n',
      'GET / HTTP/9.9\r\n\r\n',
      'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n',
    ]) {
      const client = new RawClient(g.gateway.port, post(key, BODY.replace('{', '{"stream":true,')))
      await client.saw(/"a"/)
      client.send(broken)
      // Another request shows that the gateway has read the bytes.
      t.equal((await g.call('/health')).status, 200)
      replies.pop()?.end(usage(10, 5) + DONE)
      await client.closed
      t.match(client.answer, /^HTTP\/1\.1 200[^]*\[DONE\][^]*HTTP\/1\.1 400/, JSON.stringify(broken))
    }
    const waiting = new RawClient(g.gateway.port)
    upstream.script = async (_received, res) => {
      waiting.send('nonsense\r\n\r\n')
      await g.call('/health')
      json(res, REPLY)
    }
    waiting.send(post(key))
    await waiting.closed
    t.match(waiting.answer, /^HTTP\/1\.1 200[^]*"hello"[^]*HTTP\/1\.1 400/, 'so is a JSON reply that has not begun')
    const entries = await g.settled(key)
    t.strictSame(
      entries.map(({ status, output_tokens }) => [status, output_tokens]),
      Array.from({ length: 4 }, () => ['ok', 5]),
    )
  },
)

t.test('above idlePerAddress the connection that is idle longest closes, never one that is being served', async t => {
  const { g, upstream, key } = await start(t, file => file.set('limits.idlePerAddress', 3))
  const replies = begun(upstream, text('a'))
  const served = new RawClient(g.gateway.port, post(key, BODY.replace('{', '{"stream":true,')))
  await served.saw(/"a"/)
  const idle = []
  for (let count = 0; count < 5; count++) {
    const client = new RawClient(g.gateway.port, get('/health'))
    await client.saw(/"ok"/)
    idle.push(client)
  }
  await Promise.all([idle[0]?.closed, idle[1]?.closed])
  t.strictSame(
    idle.map(({ socket }) => socket.closed),
    [true, true, false, false, false],
  )
  t.notOk(served.socket.closed)
  replies[0]?.end(DONE)
  for (const client of [...idle, served]) client.socket.destroy()
  const [entry] = await g.settled(key)
  t.notMatch(JSON.stringify(entry), '203.0.113.77', 'a customer sees no address')
})

t.test('idlePerAddress also holds after many connections were served at the same time', async t => {
  const { g, upstream, key } = await start(t, file => file.set('limits.idlePerAddress', 3))
  const replies = begun(upstream, text('a'))
  const clients: RawClient[] = []
  while (clients.length < 6) {
    // Until its request has arrived, a connection is idle.
    const client = new RawClient(g.gateway.port, post(key, BODY.replace('{', '{"stream":true,')))
    await client.saw(/"a"/)
    clients.push(client)
  }
  t.notOk(clients.some(({ socket }) => socket.closed))
  for (const reply of replies) reply.end(DONE)
  await Promise.all(clients.map(client => client.saw(/\r\n0\r\n\r\n/)))
  await until(() => clients.filter(({ socket }) => socket.closed).length >= 3)
  t.equal(clients.filter(({ socket }) => socket.closed).length, 3)
  for (const { socket } of clients) socket.destroy()
  const [entry] = await g.settled(key)
  t.notMatch(JSON.stringify(entry), '203.0.113.77', 'a customer sees no address')
})

t.test('above limits.connections the connection that is idle longest makes room for a new client', async t => {
  const { g } = await start(t, file => file.set('limits.connections', 3))
  const idle = []
  for (let count = 0; count < 3; count++) {
    const client = new RawClient(g.gateway.port, get('/health'))
    await client.saw(/"ok"/)
    idle.push(client)
  }
  const customer = new RawClient(g.gateway.port, get('/health', 'connection: close\r\n'))
  await customer.closed
  t.equal(customer.status, 200)
  await idle[0]?.closed
  t.notOk(idle[2]?.socket.closed)
  for (const client of idle) client.socket.destroy()
})

t.test('if all connections are being served, a new one is refused', async t => {
  const { g, upstream, key } = await start(t, file => file.set('limits.connections', 1))
  const replies = begun(upstream, text('a'))
  const served = new RawClient(g.gateway.port, post(key, BODY.replace('{', '{"stream":true,'), 'connection: close\r\n'))
  await served.saw(/"a"/)
  const refused = new RawClient(g.gateway.port, get('/health'))
  await refused.closed
  t.equal(refused.replies, 0)
  replies[0]?.end(DONE)
  await served.closed
  t.match(served.answer, /\[DONE\]/)
})

t.test('one key can run only as many requests as it leaves slots free, however slowly it sends them', async t => {
  const { g, key } = await start(t, file => file.set('limits.connections', 6))
  const head = (secret: string): string => post(secret, 'x'.repeat(100)).replace(/x+$/, '{"model"')
  const slow = Array.from({ length: 4 }, () => new RawClient(g.gateway.port, head(key)))
  await until(() => slow.filter(({ status }) => status === 429).length > 0)
  t.match(slow.find(({ status }) => status === 429)?.answer ?? '', /This key has too many running requests/)
  t.equal(slow.filter(({ status }) => status === 0).length, 3)
  t.equal(
    (await g.call('/v1/chat/completions', { key: await g.key('famC'), body: BODY })).status,
    200,
    'another key is served',
  )
  for (const { socket } of slow) socket.destroy()
  await until(() => g.gateway.running === 0)
  t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
})

t.test('a request has at most 128 headers, and a malformed one keeps no connection open', async t => {
  const { g } = await start(t, file => file.set('limits.unreadTime', '50ms'))
  const headers = (count: number): string => Array.from({ length: count }, (_, index) => `h${index}: 1\r\n`).join('')
  for (const [count, status] of [
    [126, 200],
    [128, 431],
    [1000, 431],
  ] as const) {
    const client = new RawClient(g.gateway.port, get('/health', `${headers(count)}connection: close\r\n`))
    await client.closed
    t.equal(client.status, status, `${count} headers`)
  }
  // The client never closes its own end.
  const socket = net.connect({ port: g.gateway.port, host: '127.0.0.1', allowHalfOpen: true })
  t.teardown(() => socket.destroy())
  socket.resume().write('\0 malformed\r\n\r\n')
  await new Promise(resolve => socket.once('end', resolve))
  await until(() => g.gateway.connections === 0)
  t.equal(g.gateway.connections, 0)
})

t.test(
  'an address with too many requests without a valid key gets a 429 at every endpoint but health; a customer there does not',
  async t => {
    const { g, key } = await start(t, file => file.set('limits.anonymous', 4))
    t.equal((await g.call('/v1/models', { key })).status, 200)
    t.equal((await g.call('/')).status, 200)
    t.equal((await g.call('/nowhere')).status, 404)
    t.equal((await g.call('/v1/models', { key: 'sk-wrong' })).status, 200, 'a wrong key at the list of models counts')
    t.equal((await g.call('/v1/chat/completions', { key: 'sk-wrong', body: BODY })).status, 401)
    for (const path of ['/v1/models', '/nowhere', '/']) {
      const refused = await g.call(path)
      t.equal(refused.status, 429, path)
      t.ok(Number(refused.headers.get('retry-after')) > 0)
      t.equal(refused.headers.get('connection'), 'close')
    }
    for (const path of ['/health', '/health/ready']) t.equal((await g.call(path)).status, 200, path)
    t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await g.settled(key)
  },
)

t.test('behind a trusted proxy each client counts as an address, and the proxy does not count', async t => {
  const edit: Edit = file => file.set('limits.anonymous', 1).set('limits.trustedProxies', ['127.0.0.0/8', '::1'])
  const { g } = await start(t, edit)
  const from = async (forwarded: string): Promise<number> =>
    (await g.call('/v1/models', { headers: { 'x-forwarded-for': forwarded } })).status
  t.equal(await from('203.0.113.1'), 200)
  t.equal(await from('203.0.113.1'), 429)
  t.equal(await from('198.51.100.7, 203.0.113.1'), 429, 'what a client says of itself does not count')
  t.equal(await from('203.0.113.1, 127.0.0.2'), 429, 'a trusted proxy before it is passed over')
  t.equal(await from('203.0.113.2'), 200)
  t.equal(await from('2001:db8::1'), 200)
  t.equal(await from('2001:db8::ffff:2'), 429, 'a network of IPv6 is one address')
  for (let times = 0; times < 3; times++) t.equal((await g.call('/')).status, 200)
})

t.test('without trusted proxies, x-forwarded-for is ignored', async t => {
  const { g } = await start(t, file => file.set('limits.anonymous', 1))
  t.equal((await g.call('/', { headers: { 'x-forwarded-for': '203.0.113.1' } })).status, 200)
  t.equal((await g.call('/', { headers: { 'x-forwarded-for': '203.0.113.2' } })).status, 429)
})

t.test('a wrong key is looked up once in a while, and not at all from a blocked address', async t => {
  const { g } = await start(t, file => file.set('limits.anonymous', 5))
  const { scripts } = g.gateway.ledger
  const look = scripts.find.bind(scripts)
  let looks = 0
  scripts.find = (...args) => {
    looks++
    return look(...args)
  }
  for (let times = 0; times < 3; times++) t.equal((await g.call('/api/v1/key-info', { key: 'sk-guess' })).status, 401)
  t.equal(looks, 1, 'the same secret is remembered')
  for (let times = 0; times < 10; times++)
    await g.call(times % 2 === 0 ? '/api/v1/key-info' : '/v1/models', { key: `sk-guess-${times}` })
  t.equal(looks, 3, 'others are looked up until the address is blocked')
})

t.test('a key that cannot pay is refused before its body is read', async t => {
  const { g, upstream, key } = await start(t, file => file.set('limits.unreadTime', '50ms'))
  const { keys } = g.gateway
  const made = async (credits: bigint, expiresAt?: number) =>
    keys.changes.create({ type: 'famC', name: '', credits, expiresAt })
  const [poor, expired, disabled] = await Promise.all([made(1n), made(10n ** 10n, Date.now() - 1000), made(10n ** 10n)])
  await keys.changes.disable(disabled.key.id)
  const head = (secret: string, more = '', path = '/v1/chat/completions'): string =>
    `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${secret}\r\n${more}content-length: 30000000\r\n\r\n`
  for (const [name, secret, status] of [
    ['poor', poor.secret, 429],
    ['expired', expired.secret, 401],
    ['disabled', disabled.secret, 401],
    ['unknown', 'sk-nobody', 401],
  ] as const) {
    for (const expect of ['', 'expect: 100-continue\r\n']) {
      const client = new RawClient(g.gateway.port, head(secret, expect))
      await client.closed
      t.equal(client.status, status, name)
      t.match(client.answer.toLowerCase(), /connection: close/)
      t.notMatch(client.answer, '100 Continue')
    }
  }
  const counting = new RawClient(g.gateway.port, head(expired.secret, '', '/v1/messages/count_tokens'))
  await counting.closed
  t.equal(counting.status, 401, 'nor does an expired one count tokens')
  t.equal(upstream.requests.length, 0)
  const refused = await g.call('/v1/chat/completions', { key: poor.secret, body: BODY })
  t.match(refused.json.error, {
    code: 'insufficient_quota',
    message: /has 0.000000001 credits left, but the smallest request needs/,
  })
  await g.gateway.ledger.accounts.grant(poor.key.id, { id: 'topup', amount: 10n ** 10n, notes: { reason: 'topup' } })
  await keys.changes.enable(disabled.key.id)
  for (const secret of [poor.secret, disabled.secret, key])
    t.equal((await g.call('/v1/chat/completions', { key: secret, body: BODY })).status, 200, 'at once')
  await g.settled(poor.secret)
})

t.test('the rest of a body after an early answer is discarded within limits', async t => {
  const edit: Edit = file =>
    file.set('limits.unreadBody', '64KiB').set('limits.unreadBodies', 1).set('limits.unreadTime', '24h')
  const { g } = await start(t, edit)
  const head =
    'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-wrong\r\ncontent-length: 30000000\r\n\r\n'
  const slow = new RawClient(g.gateway.port, head)
  await slow.saw(/"error"[^]*\}\}/)
  t.notOk(slow.socket.closed, 'a client that may be sending still sees its answer')
  const second = new RawClient(g.gateway.port, head)
  await second.closed
  t.equal(second.status, 401, 'beyond so many at a time the connection is closed at once')
  slow.send('x'.repeat(200_000))
  await slow.closed
  t.equal(slow.replies, 1, 'so it is beyond so many bytes')
})

t.test('behind a load balancer with the PROXY protocol each client counts as an address', async t => {
  const edit: Edit = file =>
    file
      .set('limits.anonymous', 1)
      .set('limits.trustedProxies', ['127.0.0.0/8', '10.0.0.9'])
      .set('limits.proxyProtocol', true)
  const { g, key } = await start(t, edit)
  const from = async (header: Buffer | string, request: string): Promise<string> => {
    const client = new RawClient(g.gateway.port)
    // The header may arrive in pieces, and the request with it or later.
    const bytes = Buffer.concat([Buffer.from(header), Buffer.from(request)])
    client.send(bytes.toString('latin1', 0, 5))
    await new Promise(resolve => setImmediate(resolve))
    client.send(bytes.toString('latin1', 5))
    await client.closed
    return client.answer.slice(9, 12)
  }
  const line = (address: string): string => `PROXY TCP4 ${address} 10.0.0.1 50000 443\r\n`
  const close = 'connection: close\r\n'
  t.equal(await from(line('203.0.113.1'), get('/v1/models', close)), '200')
  t.equal(await from(line('203.0.113.1'), get('/v1/models', close)), '429')
  t.equal(await from(line('203.0.113.2'), get('/v1/models', close)), '200')
  const binary = Buffer.from('0d0a0d0a000d0a515549540a2111000ccb0071020a000001c35001bb', 'hex')
  t.equal(await from(binary, get('/v1/models', close)), '429', 'version 2 names the same address')
  const forwarded = `x-forwarded-for: 203.0.113.1\r\n${close}`
  t.equal(await from(line('203.0.113.3'), get('/v1/models', forwarded)), '200', 'a client’s own words do not count')
  t.equal(await from(line('10.0.0.9'), get('/v1/models', forwarded)), '429', 'those of a second trusted proxy do')
  t.equal(await from(line('203.0.113.4'), post(key, BODY, close)), '200')
  // The gateway under test takes no look-ups without a header.
  const id = await g.id(key)
  const entries = (): ReturnType<typeof g.gateway.ledger.reads.history> =>
    g.gateway.ledger.reads.history({ account: id }, { count: 2 })
  await until(async () => (await entries()).length === 1)
  t.match(await entries(), [{ kind: 'settle', notes: { address: '203.0.113.4' } }])
  for (const header of ['', 'PROXY TCP4 nonsense\r\n', 'PROXY UNKNOWN'.repeat(20)])
    t.equal(await from(header, get('/health', close)), '', 'a connection without a valid header is closed')
  t.equal(await from('PROXY UNKNOWN\r\n', get('/health', close)), '200')
  const own = 'x-forwarded-for: 203.0.113.1\r\n'
  t.equal(await from('PROXY UNKNOWN\r\n', get('/v1/models', own + close)), '200', 'nobody’s address counts for it')
  const silent = new RawClient(g.gateway.port, 'PROXY TC')
  await until(() => g.gateway.connections === 1)
  await g.gateway.stop()
  await silent.closed
})

t.test('a connection from elsewhere speaks HTTP, and cannot name another address', async t => {
  const edit: Edit = file => file.set('limits.trustedProxies', ['192.0.2.1']).set('limits.proxyProtocol', true)
  const { g } = await start(t, edit)
  t.equal((await g.call('/health')).status, 200)
  const client = new RawClient(g.gateway.port, `PROXY TCP4 203.0.113.1 10.0.0.1 1 2\r\n${get('/health')}`)
  await client.closed
  t.match(client.answer, /^HTTP\/1\.1 400 /)
})

t.test('a key type with addresses sells to these only', async t => {
  const edit: Edit = file =>
    file.set('keyTypes.famC.limits.addresses', ['203.0.113.0/24']).set('limits.trustedProxies', ['127.0.0.1'])
  const { g, key } = await start(t, edit)
  const from = (address: string, path: string, body?: string): Promise<Answer> =>
    g.call(path, { key, headers: { 'x-forwarded-for': address }, ...(body !== undefined && { body }) })
  const refused = await from('198.51.100.1', '/v1/chat/completions', BODY)
  t.equal(refused.status, 403)
  t.match(refused.json, { error: { code: 'address_refused' } })
  t.equal((await from('198.51.100.1', '/api/v1/key-info')).status, 200)
  t.equal((await from('203.0.113.77', '/v1/chat/completions', BODY)).status, 200)
  const [entry] = await g.settled(key)
  t.notMatch(JSON.stringify(entry), '203.0.113.77', 'a customer sees no address')
})
