import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import t from 'tap'
import type { UpstreamAccount, Upstream } from '../../core/config/config.ts'
import { type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { RawClient } from '../raw.ts'
import { BODY, CHAT, REPLY, USAGE, pooledScene } from '../pooled.ts'
import { json, rawUpstream, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'

/** What one failing account, or one hostile request, does to everybody else. */

const RESPONSES = '/v1/responses'

/** The account of the first upstream. */
function mainOf(g: TestGateway): UpstreamAccount {
  return (g.gateway.config.upstreams.get('famC') as Upstream).accounts[0] as UpstreamAccount
}

/** The name that is sent for the model of BODY. */
function sentFor(g: TestGateway): string {
  return g.gateway.config.keyTypes.get('famC')?.models.get(BODY.model)?.sends ?? ''
}

t.test('while one request tries the only account, the others are sent to it as well', async t => {
  const edit: Edit = file =>
    file.set('keyTypes.famC.upstream', 'famC').set('upstreams.famC.health', { failures: 1, cooldown: '20ms' })
  const { g, first, key } = await pooledScene(t, edit)
  first.script = (_received, res) => json(res, {}, 500)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  const health = g.gateway.pool.health(mainOf(g))
  await until(() => health.ready(Date.now()))
  const waiting: (() => void)[] = []
  first.script = (_received, res) => void waiting.push(() => json(res, REPLY))
  const calls = Array.from({ length: 20 }, () => g.call(CHAT, { key, body: BODY }))
  await until(() => waiting.length === 20)
  for (const answer of waiting) answer()
  for (const { status } of await Promise.all(calls)) t.equal(status, 200)
  await g.settled(key)
})

t.test('a client that leaves between two accounts pays nothing', async t => {
  const edit: Edit = file =>
    file.set('upstreams.spare.accounts', [
      { name: 'one', key: 'spare-secret-0123456789', quota: { credits: 5, per: 'day' } },
    ])
  const { g, first, spare, key } = await pooledScene(t, edit)
  first.script = (_received, res) => json(res, {}, 500)
  const text = JSON.stringify(BODY)
  const { ledger } = g.gateway
  const hold = ledger.hold.bind(ledger)
  let left = false
  ledger.hold = async request => {
    if (request.quota && !left) {
      left = true
      const open = g.gateway.connections
      client.socket.destroy()
      await until(() => g.gateway.connections < open)
    }
    return hold(request)
  }
  const client = new RawClient(
    g.gateway.port,
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
  )
  await client.closed
  matchAll(t, await g.settled(key), [{ type: 'void' }])
  t.equal(spare.requests.length, 0)
  t.match(await g.balance(key), { held: '0' })
})

t.test('an account that an operator has disabled stays out, whatever requests tell about it', async t => {
  const { g, first, key } = await pooledScene(t)
  const main = mainOf(g)
  const health = g.gateway.pool.health(main)
  health.disabled = true
  health.failed((g.gateway.config.upstreams.get('famC') as Upstream).health, {
    now: Date.now(),
    request: {},
    reason: 'late',
    waitMs: 5000,
  })
  g.gateway.pool.reset(main.name)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(first.requests.length, 0)
  await g.settled(key)
})

t.test('a prompt that a provider forbids takes no account out', async t => {
  const { g, first, spare, key } = await pooledScene(t)
  const forbid = { error: { message: 'flagged', type: 'forbidden', code: 'content_filter' } }
  for (const each of [first, spare]) each.script = (_received, res) => json(res, forbid, 403)
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 400, json: { error: { message: 'flagged' } } })
  for (const each of [first, spare]) each.script = (_received, res) => json(res, { error: { message: 'x' } }, 403)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  for (const each of [first, spare]) each.script = (_received, res) => json(res, REPLY)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200, 'the next customer is served')
  t.equal(first.requests.length, 3)
  first.script = (_received, res) => json(res, { error: { message: 'x', code: 'account_deactivated' } }, 403)
  for (let nth = 0; nth < 2; nth++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(first.requests.length, 4, 'an account that is blocked is not asked again')
  await g.settled(key)
})

t.test('refused accounts are no tries', async t => {
  const { g, first, spare, key } = await pooledScene(t, file => file.set('keyTypes.famC.retry', { attempts: 1 }))
  first.script = (_received, res) => json(res, {}, 402)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal(spare.requests.length, 1)
  await g.settled(key)
})

t.test('an account that cannot get the request is passed over, and does not hide why the first one failed', async t => {
  const { g, first, spare, key } = await pooledScene(t)
  first.script = (_received, res) => json(res, {}, 500)
  const image = { type: 'input_file', file_url: 'https://files.example/a.pdf' }
  const body = { model: BODY.model, max_output_tokens: 100, input: [{ role: 'user', content: [image] }] }
  t.match(await g.call(RESPONSES, { key, body }), { status: 502 })
  t.equal(spare.requests.length, 0)
  const swapped = await pooledScene(t, file => file.set('keyTypes.famC.upstream', ['spare', 'famC']))
  const other = await swapped.g.key('famC')
  const reply = { object: 'response', status: 'completed', output: [], usage: { input_tokens: 10, output_tokens: 5 } }
  swapped.first.script = (_received, res) => json(res, reply)
  t.match(
    await swapped.g.call(RESPONSES, { key: other, body }),
    { status: 200 },
    'the account that can get it is asked',
  )
  await g.settled(key)
  await swapped.g.settled(other)
})

t.test('a bad request that is about the account goes to the next one, and its text to no customer', async t => {
  const { g, first, spare, key } = await pooledScene(t)
  const told = 'Your credit balance is too low to access the API. Please go to Plans & Billing.'
  const refuse = (status: number, body: object): void => {
    first.script = (_received, res) => json(res, body, status)
  }
  const error = { type: 'invalid_request_error', message: told }
  for (const [status, body] of [
    [400, { type: 'error', error }],
    [400, { error }],
    [422, { detail: told }],
    [400, { error: { message: 'Provider returned error', code: 400, metadata: { raw: JSON.stringify({ error }) } } }],
  ] as const) {
    refuse(status, body)
    const asked = spare.requests.length
    t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
    t.equal(spare.requests.length, asked + 1)
    g.gateway.pool.reset()
  }
  const asked = spare.requests.length
  const said = { ...BODY, messages: [{ role: 'user', content: `${told} \u00e4` }] }
  const quoted = { error: { ...error, message: `bad value: "${told}"` } }
  refuse(400, quoted)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 400, 'a quotation may be a customer’s text')
  t.equal(spare.requests.length, asked)
  refuse(400, { error })
  t.equal((await g.call(CHAT, { key, body: said })).status, 200, 'a request with the same words goes on, too')
  const other = await g.key('famC')
  t.equal((await g.call(CHAT, { key: other, body: said })).status, 200)
  t.equal(g.gateway.pool.health(mainOf(g)).outMs(Date.now()), 0, 'and tells nothing about the account')
  await g.settled(other)
  await g.settled(key)
})

t.test('an error body that stalls does not delay the next account', async t => {
  const head = 'HTTP/1.1 500 No\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"err'
  const stalling = await rawUpstream(t, socket => void socket.write(head))
  const { g, spare, key } = await pooledScene(t, file => file.set('upstreams.famC.url', stalling.url))
  const beganMs = performance.now()
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
  t.equal(spare.requests.length, 1)
  t.ok(performance.now() - beganMs < 10_000, 'limits.keepalive is 15 s')
  await g.settled(key)
})

t.test('an answer with an unknown content encoding is a failure of its account, and another one is asked', async t => {
  const { g, first, spare, key } = await pooledScene(t)
  for (const [nth, status] of [503, 200].entries()) {
    first.script = (_received, res) =>
      void res.writeHead(status, { 'content-type': 'application/json', 'content-encoding': 'compress' }).end('x')
    t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY }, `status ${status}`)
    t.equal(spare.requests.length, nth + 1)
    t.equal(g.gateway.pool.health(mainOf(g)).counts.failures, nth + 1)
  }
  await g.settled(key)
})

t.test('a translated reply that makes no sense is a failure of its account', async t => {
  const account = { name: 'main', key: 'main-secret-0123456789', quota: { credits: 5, per: 'day' } }
  const { g, first, spare, key } = await pooledScene(t, file =>
    file.set('upstreams.famC.speaks', ['chat-completions']).set('upstreams.famC.accounts', [account]),
  )
  first.script = (_received, res) => json(res, { choices: [{ message: { tool_calls: [{ id: 'a' }] } }], usage: USAGE })
  const body = { model: BODY.model, max_output_tokens: 100, input: 'hi' }
  t.match(await g.call(RESPONSES, { key, body }), { status: 502 })
  t.equal(spare.requests.length, 0, 'its provider may have billed it')
  const main = mainOf(g)
  t.equal(g.gateway.pool.health(main).counts.failures, 1)
  matchAll(t, await g.settled(key), [{ type: 'void', cost_nano: '0' }])
  const [quota] = main.quotas as [UpstreamAccount['quotas'][number]]
  await until(async () => (await g.gateway.ledger.reads.quotaUsed(main.name, quota, Date.now())).used === 105_000n)
})

t.test('a reply that is larger than the file allows says nothing about its account', async t => {
  const { g, first, spare, key } = await pooledScene(t, file => file.set('limits.reply', '2MiB'))
  const long = 'x'.repeat(3 * 2 ** 20)
  const stream = { ...BODY, stream: true }
  const cases: [string, object, string, number][] = [
    ['a JSON reply', BODY, JSON.stringify({ ...REPLY, long }), 502],
    ['the first event of a stream', stream, `data: ${long}`, 502],
    ['a later event', stream, `${CONTENT}data: ${long}`, 200],
    ['comments', stream, `: ${long}\n\n`, 502],
  ]
  const many = `[${'0,'.repeat(600_000)}0]`
  cases.push(['a JSON reply of too many values', BODY, `{"choices":[],"output":${many}}`, 502])
  cases.push(['an event of too many values', stream, `data: {"choices":[],"many":${many}}\n\n`, 502])
  cases.push(['a JSON reply that is too deep', BODY, `{"deep":${'['.repeat(200_000)}${']'.repeat(200_000)}}`, 502])
  for (const [name, body, text, status] of cases) {
    const type = body === BODY ? 'application/json' : 'text/event-stream'
    first.script = (_received, res) => void res.writeHead(200, { 'content-type': type }).end(text)
    t.equal((await g.call(CHAT, { key, body })).status, status, name)
    await g.settled(key)
  }
  t.equal(first.requests.length, cases.length)
  t.equal(spare.requests.length, 0, 'another account would be paid for the same')
  t.equal(g.gateway.pool.health(mainOf(g)).counts.failures, 0)
})

t.test('a large answer that is no reply leaves the memory to the reply of the next account', async t => {
  const { g, first, spare, key } = await pooledScene(t, file => file.set('limits.memory', '16MiB'))
  const long = 'x'.repeat(600_000)
  const bad = [long, JSON.stringify({ error: { message: long, type: 'server_error' } })]
  spare.script = (_received, res) => json(res, { ...REPLY, long })
  for (const text of bad) {
    first.script = (_received, res) => void res.writeHead(200, { 'content-type': 'application/json' }).end(text)
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  }
  t.equal(spare.requests.length, bad.length)
  await g.settled(key)
})

t.test('an absurd report of a failed attempt does not empty the quota of its account', async t => {
  const account = { name: 'main', key: 'main-secret-0123456789', quota: { credits: 5, per: 'day' } }
  const { g, first, key } = await pooledScene(t, file => file.set('upstreams.famC.accounts', [account]))
  const failure = { error: { message: 'boom', type: 'server_error' } }
  const main = mainOf(g)
  const [quota] = main.quotas as [UpstreamAccount['quotas'][number]]
  for (const prompt_tokens of [9_000_000_000, 1000]) {
    first.script = (_received, res) => json(res, { ...failure, usage: { prompt_tokens, completion_tokens: 0 } })
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  }
  await g.settled(key)
  const used = async (): Promise<bigint> => (await g.gateway.ledger.reads.quotaUsed(main.name, quota, Date.now())).used
  await until(async () => (await used()) === 3_000_000n)
})

t.test('what a failed attempt reports is judged by the time that this attempt took', async t => {
  const account = { name: 'main', key: 'main-secret-0123456789', quota: { credits: 5, per: 'day' } }
  const { g, first, spare, key } = await pooledScene(t, file =>
    file.set('upstreams.famC.accounts', [account]).model('famC', 'acme/famC-5.5', { outputRate: 100_000 }),
  )
  const main = mainOf(g)
  const [quota] = main.quotas as [UpstreamAccount['quotas'][number]]
  const failure = { error: { message: 'boom', type: 'server_error' } }
  first.script = (_received, res) => json(res, { ...failure, usage: { prompt_tokens: 10, completion_tokens: 4150 } })
  const used = async (): Promise<bigint> => (await g.gateway.ledger.reads.quotaUsed(main.name, quota, Date.now())).used
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200, 'the next account serves')
  await g.settled(key)
  await until(async () => (await used()) > 0n)
  const once = await used()
  t.ok(once >= 4150n * 15_000n, `${once}: more than the 4,096 tokens that are plausible in no time`)
  spare.script = (_received, res) => json(res, {}, 500)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502, 'no account serves')
  await g.settled(key)
  await until(async () => (await used()) === 2n * once)
})

t.test('a request that goes on to an account with a smaller quota is limited to what that quota covers', async t => {
  const { g, first, spare, key } = await pooledScene(t, file =>
    file.set('upstreams.spare.accounts.0.quota', { credits: 0.5, per: 'day' }),
  )
  first.script = (_received, res) => json(res, {}, 500)
  t.equal((await g.call(CHAT, { key, body: { ...BODY, max_tokens: 100_000 } })).status, 200)
  t.equal(first.requests[0]?.json['max_tokens'], 100_000)
  const limit = Number(spare.requests[0]?.json['max_tokens'])
  t.ok(limit > 30_000 && limit < 34_000, `${limit}: half a credit covers 33,333 tokens`)
  await g.settled(key)
})

t.test('an account that breaks off every stream goes out after as many as the file says', async t => {
  const cutting = await rawUpstream(t, socket => void socket.end(`${SSE_HEAD}${chunk(CONTENT)}`))
  const { g, spare, key } = await pooledScene(t, file =>
    file
      .set('upstreams.famC.url', cutting.url)
      .set('upstreams.famC.health', { failures: 3, cooldown: '1m', least: 1000 }),
  )
  const body = { ...BODY, stream: true }
  for (let nth = 0; nth < 3; nth++) {
    t.match(await g.call(CHAT, { key, body }), { status: 200, text: /"error"/ })
    t.equal(spare.requests.length, 0)
  }
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, json: REPLY })
  t.equal(spare.requests.length, 1)
  await g.settled(key)
})

t.test('a reply in one piece is not preceded by comments', async t => {
  const { g, first, key } = await pooledScene(t, file =>
    file.set('limits.keepalive', '50ms').set('keyTypes.famC.upstream', 'famC'),
  )
  first.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'application/json' })
    res.flushHeaders()
    await new Promise(resolve => setTimeout(resolve, 200))
    res.end(JSON.stringify(REPLY))
  }
  const answer = await g.call(CHAT, { key, body: { ...BODY, stream: true } })
  t.match(answer.headers.get('content-type'), /^application\/json/)
  t.match(answer.json, REPLY)
  await g.settled(key)
})

t.test('a client’s credentials reach no provider by the query or by a header of its agent', async t => {
  const { g, first, key } = await pooledScene(t, file => file.everyUpstream({ passes: ['beta'] }))
  first.script = (_received, res) =>
    sse(res, `data: {"choices":[],"usage":${JSON.stringify(USAGE)}}\n\ndata: [DONE]\n\n`)
  const names = ['x-api-key', 'api_token', 'password', 'customer', 'key[]', 'jwt']
  const query = `${names.map(name => `${name}=abc`).join('&')}&beta=${key}&beta=true`
  const headers = { 'x-stainless-api-key': 'abc', 'x-stainless-note': `Bearer ${key}`, 'x-stainless-lang': 'js' }
  await g.call(`${CHAT}?${query}`, { key, headers, body: { ...BODY, stream: true } })
  const { path, headers: sent } = first.requests[0] as { path: string; headers: Record<string, string> }
  t.equal(path, `${CHAT}?beta=true`, 'what the file lets through, without the key')
  t.notMatch(JSON.stringify(sent), /abc/)
  t.notMatch(JSON.stringify(sent), key)
  t.match(sent, { 'x-stainless-lang': 'js' })
  await g.settled(key)
})

t.test('an account that is passed over keeps no hold, and is asked again if no other can serve', async t => {
  const edit: Edit = file =>
    file
      .set('upstreams.spare.accounts', [
        { name: 'one', key: 'spare-secret-0123456789', quota: { credits: 5, per: 'day' } },
      ])
      .set('upstreams.spare.health', { failures: 1, cooldown: '20ms' })
      .set('upstreams.third', {
        url: 'http://127.0.0.1:9',
        speaks: ['chat-completions'],
        accounts: [{ name: 'one', key: 'third-secret-0123456789', quota: { credits: 0.000001, per: 'day' } }],
      })
      .set('keyTypes.famC.upstream', ['famC', 'spare', 'third'])
  const { g, first, spare, key } = await pooledScene(t, edit)
  for (const each of [first, spare]) each.script = (_received, res) => json(res, {}, 500)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  const { accounts } = g.gateway.config.upstreams.get('spare') as Upstream
  const [account] = accounts as [UpstreamAccount]
  const health = g.gateway.pool.health(account)
  await until(() => health.ready(Date.now()))
  const waiting: (() => void)[] = []
  spare.script = (_received, res) => void waiting.push(() => json(res, REPLY))
  const calls = Array.from({ length: 10 }, () => g.call(CHAT, { key, body: BODY }))
  await until(() => waiting.length === 10)
  for (const answer of waiting) answer()
  for (const { status } of await Promise.all(calls)) t.equal(status, 200)
  await g.settled(key)
  const [quota] = account.quotas as [UpstreamAccount['quotas'][number]]
  await until(
    async () => (await g.gateway.ledger.reads.quotaUsed(account.name, quota, Date.now())).used === 10n * 105_000n,
  )
})

const SSE_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const ROLE = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
const CONTENT = 'data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n'

/** What breaks a connection, whatever was sent before. */
const BREAKS: readonly (readonly [name: string, break_: (socket: Socket) => void])[] = [
  ['ends', socket => void socket.end()],
  ['is reset', socket => void socket.resetAndDestroy()],
  ['sends no chunk', socket => void socket.end('zz\r\n\r\n')],
  ['sends half of an event and ends', socket => void socket.end(chunk('data: {"choices":[{"ind'))],
]
/** How long silence takes. */
const SILENT = { firstByte: '500ms', idle: '500ms' }

t.test(
  'a connection that breaks before the content is tried elsewhere if the file says so, and never after it',
  async t => {
    let sent = ''
    let break_: (socket: Socket) => void = () => {}
    const broken = await rawUpstream(t, socket => {
      // The bytes must leave before the connection is reset.
      if (sent === '') break_(socket)
      else socket.write(sent, () => setTimeout(() => break_(socket), 20))
    })
    const edit: Edit = file => file.set('upstreams.famC.url', broken.url)
    const impatient: Edit = file => edit(file).set('upstreams.famC.timeouts', SILENT)
    const eager: Edit = file => file.set('keyTypes.famC.retry', { on: ['connect', 'timeout', '5xx', 'empty'] })
    const silence = ['falls silent', () => {}] as const
    for (const { g, spare, isEager, breaks } of [
      { ...(await pooledScene(t, edit)), isEager: false, breaks: BREAKS },
      { ...(await pooledScene(t, file => eager(edit(file)))), isEager: true, breaks: BREAKS },
      { ...(await pooledScene(t, impatient)), isEager: false, breaks: [silence] },
      { ...(await pooledScene(t, file => eager(impatient(file)))), isEager: true, breaks: [silence] },
    ]) {
      spare.script = (_received, res) => sse(res, `${CONTENT}data: [DONE]\n\n`)
      const stream = { ...BODY, stream: true }
      for (const [name, how] of breaks) {
        break_ = how
        for (const before of [
          '',
          SSE_HEAD,
          `${SSE_HEAD}${chunk(ROLE)}`,
          `${SSE_HEAD}${chunk(ROLE)}${chunk(CONTENT)}`,
        ]) {
          sent = before
          g.gateway.pool.reset()
          const key = await g.key('famC')
          const [asked, elsewhere] = [broken.requests.length, spare.requests.length]
          const reply = await g.call(CHAT, { key, body: stream })
          const what = `${name} after ${before.length} bytes`
          t.equal(broken.requests.length, asked + 1, what)
          const [entry] = await g.settled(key)
          t.match(await g.balance(key), { held: '0' })
          if (before.includes('some')) {
            t.equal(spare.requests.length, elsewhere, `${what}: nothing is sent twice`)
            t.match(reply, { status: 200, text: /some[^]*"error"/ })
            t.match(entry, { type: 'settle', status: 'broken' }, what)
          } else if (spare.requests.length > elsewhere) {
            t.match(reply, { status: 200, text: /some/ }, what)
            t.notMatch(reply.text, /"error"/)
            t.match(entry, { type: 'settle', status: 'ok' }, what)
          } else {
            t.notOk(isEager, `${what} would be tried elsewhere`)
            t.match(reply, { text: /error/ }, what)
            t.match(entry, { type: 'void' }, what)
          }
        }
      }
    }
  },
)

t.test('what is no reply, and no failure that `retry.on` names, is a clean error that costs nothing', async t => {
  const { g, first, spare, key } = await pooledScene(t)
  const answers: readonly ((res: ServerResponse) => void)[] = [
    res => void res.writeHead(301, { location: 'http://127.0.0.1:1/' }).end(),
    res => void res.writeHead(204).end(),
    res => json(res, {}, 404),
    res => json(res, {}, 418),
  ]
  for (const answer of answers) {
    first.script = (_received, res) => answer(res)
    const reply = await g.call(CHAT, { key, body: BODY })
    t.ok(reply.status >= 400, String(reply.status))
    t.notMatch(reply.headers.get('location') ?? '', /1/)
  }
  t.equal(spare.requests.length, 0)
  for (const entry of await g.settled(key)) t.match(entry, { type: 'void' })
})

t.test('a wait that a provider asks for is obeyed: none, until a date, or long, for eight days at most', async t => {
  for (const [after, least, most] of [
    ['0', 0, 0],
    ['1000000000', 691_000_000, 691_200_000],
    [new Date(Date.now() + 7_200_000).toUTCString(), 7_100_000, 7_200_001],
    ['nonsense', 0, 0],
  ] as const) {
    const { g, first, key } = await pooledScene(t)
    first.script = (_received, res) => json(res, {}, 429, { 'retry-after': after })
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200, after)
    const waitMs = g.gateway.pool.health(mainOf(g)).waitMs(Date.now(), sentFor(g))
    t.ok(waitMs >= least && waitMs <= most, `${after}: ${waitMs} ms`)
    await g.settled(key)
  }
})
