import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { quotaAccount } from '../../core/ledger/quotas.ts'
import { timedId } from '../../core/lib/ids.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { BODY, CHAT, REPLY } from '../pooled.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { DONE } from '../stream-events.ts'
import { scene, type Scene } from '../scene.ts'

/** Requests of a key above its `concurrency`: they wait in line, and hold nothing that others need. */

const EDITOR = { ...BODY, model: 'acme/famB-4.6' }

/** A gateway whose provider waits. */
interface Gated extends Scene {
  /** Lets the provider answer the requests that have arrived, and all that come later. */
  readonly answer: () => void
}

async function gated(t: Test, concurrency: number, edit: Edit = file => file): Promise<Gated> {
  const { promise: opens, resolve: answer } = Promise.withResolvers<void>()
  const started = await scene(t, file => edit(file.everyKeyType({ limits: { concurrency, queue: '10s' } })), {
    async script(_received, res) {
      await opens
      json(res, REPLY)
    },
  })
  return { ...started, answer }
}

const waiting = async (g: TestGateway, key: string): Promise<number> => g.gateway.meter.lines.waiting(await g.id(key))

t.test('requests that wait hold nothing of a quota, and others use it meanwhile', async t => {
  // Each request holds about 0.0016 credits.
  const { g, upstream, answer } = await gated(t, 10, file =>
    file.set('upstreams.editor.accounts.0.quota.credits', 0.03),
  )
  const [one, other] = [await g.key('editor'), await g.key('editor')]
  const many = Array.from({ length: 20 }, () => g.call(CHAT, { key: one, body: EDITOR }))
  await until(async () => upstream.requests.length === 10 && (await waiting(g, one)) === 10)
  const [account] = g.gateway.config.upstreams.get('editor')?.accounts ?? []
  const [quota] = account?.quotas ?? []
  if (!account || !quota) throw new Error('no quota')
  const { used } = await g.gateway.ledger.reads.quotaUsed(account.name, quota, Date.now())
  t.ok(used < 20_000_000n, `${used} is held for ten requests`)
  const beside = g.call(CHAT, { key: other, body: EDITOR })
  await until(() => upstream.requests.length === 11)
  answer()
  t.equal((await beside).status, 200)
  for (const { status } of await Promise.all(many)) t.equal(status, 200)
  await g.settledAll([one, other])
})

t.test('a quota that running requests hold is busy for a moment, and not used up', async t => {
  const { g, upstream, answer } = await gated(t, 50, file =>
    file.set('upstreams.editor.accounts.0.quota.credits', 0.002),
  )
  const [one, other] = [await g.key('editor'), await g.key('editor')]
  const running = g.call(CHAT, { key: one, body: EDITOR })
  await until(() => upstream.requests.length === 1)
  const refused = await g.call(CHAT, { key: other, body: EDITOR })
  t.match(refused, { status: 429, json: { error: { message: /^Running requests hold what is left of the quota/ } } })
  t.equal(refused.headers.get('retry-after'), '1')
  t.not(refused.headers.get('x-should-retry'), 'false')
  answer()
  await running
  await g.settled(one)
  t.equal((await g.call(CHAT, { key: other, body: EDITOR })).status, 200)
  await g.settled(other)
})

t.test('an account whose one quota is used up is not busy, although running requests hold another one', async t => {
  const quotas = [
    { credits: 0.002, per: 'week' },
    { credits: 0.003, per: 'day' },
  ]
  const { g, upstream, answer } = await gated(t, 50, file => file.set('upstreams.editor.accounts.0.quota', quotas))
  const [one, other] = [await g.key('editor'), await g.key('editor')]
  const [account] = g.gateway.config.upstreams.get('editor')?.accounts ?? []
  const [week] = account?.quotas ?? []
  if (!account || !week) throw new Error('no quota')
  const { ledger } = g.gateway
  const name = quotaAccount(account.name, week)
  const used = { account: name, id: timedId(Date.now()), amount: 1_900_000n, least: 1n, version: '', quota: week }
  const notes = { endpoint: '', model: '', stream: false }
  const held = await ledger.hold({ ...used, notes, floor: () => ({ charge: 0n, notes: {} }) })
  if (held.kind !== 'held') throw new Error(held.kind)
  ledger.settle(held.hold, { charge: 1_900_000n, kind: 'settle', notes })
  const refused = await g.call(CHAT, { key: other, body: EDITOR })
  t.match(refused, { status: 429, json: { error: { message: /is used up until 20/ } } })
  answer()
  await g.settledAll([one, other])
  t.equal(upstream.requests.length, 0)
})

t.test('the first that came is served first', async t => {
  const { g, upstream } = await gated(t, 5)
  const answers: (() => void)[] = []
  upstream.script = (_received, res) => void answers.push(() => json(res, REPLY))
  const key = await g.key('famC')
  const all: Promise<{ status: number }>[] = []
  for (let nth = 0; nth < 10; nth++) {
    all.push(g.call(CHAT, { key, body: { ...BODY, messages: [{ role: 'user', content: `request ${nth}` }] } }))
    await until(async () => upstream.requests.length + (await waiting(g, key)) === nth + 1)
  }
  t.equal(upstream.requests.length, 5)
  for (let nth = 0; nth < 10; nth++) {
    answers[nth]?.()
    await until(() => upstream.requests.length === Math.min(10, nth + 6))
  }
  for (const { status } of await Promise.all(all)) t.equal(status, 200)
  const order = upstream.requests.map(({ body }) => /request (\d)/.exec(body)?.[1])
  t.same(order, ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
  await g.settled(key)
})

t.test('64 connections on 50 places are all served', async t => {
  const { g, answer } = await gated(t, 50, file =>
    file.set('limits.stage', '10m').everyKeyType({ limits: { concurrency: 50, queue: '5m' } }),
  )
  answer()
  const key = await g.key('famC', 100n)
  const refused: string[] = []
  await Promise.all(
    Array.from({ length: 64 }, async () => {
      for (let nth = 0; nth < 10; nth++) {
        const { status, text } = await g.call(CHAT, { key, body: BODY })
        if (status !== 200) refused.push(text)
      }
    }),
  )
  t.same(refused, [])
  await g.settled(key)
})

t.test('a request that waits too long gets a 429, and pays nothing', async t => {
  const { g, upstream, answer } = await gated(t, 1, file =>
    file.everyKeyType({ limits: { concurrency: 1, queue: '50ms' } }),
  )
  const key = await g.key('famC')
  const running = g.call(CHAT, { key, body: BODY })
  await until(() => upstream.requests.length === 1)
  const late = await g.call(CHAT, { key, body: BODY })
  t.match(late, { status: 429, json: { error: { message: 'Too many requests of this key run at the same time.' } } })
  answer()
  await running
  matchAll(t, await g.settled(key), [{ type: 'settle' }])
})

t.test('a client that leaves the line pays nothing', async t => {
  const { g, upstream, answer } = await gated(t, 1)
  const key = await g.key('famC')
  const running = g.call(CHAT, { key, body: BODY })
  await until(() => upstream.requests.length === 1)
  const leave = new AbortController()
  const left = g.call(CHAT, { key, body: BODY, signal: leave.signal }).catch(() => 'left')
  await until(async () => (await waiting(g, key)) === 1)
  leave.abort()
  t.equal(await left, 'left')
  await until(async () => (await waiting(g, key)) === 0)
  answer()
  await running
  matchAll(t, await g.settled(key), [{ type: 'settle' }])
  t.equal(upstream.requests.length, 1)
})

t.test('a place whose client left while its reply is read on is free for the next in line', async t => {
  const { g, upstream } = await scene(t, file =>
    file.everyKeyType({ limits: { concurrency: 1, queue: '10s' } }).everyUpstream({ onDisconnect: 'finish' }),
  )
  const delta = 'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}\n\n'
  let end = (): unknown => undefined
  upstream.script = ({ json: asked }, res) => {
    if (asked['stream'] !== true) return json(res, REPLY)
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(delta)
    end = () => res.end(DONE)
  }
  const key = await g.key('famC')
  const leave = new AbortController()
  const stream = await g.open(CHAT, { key, body: { ...BODY, stream: true }, signal: leave.signal })
  await (stream.body as ReadableStream<Uint8Array>).getReader().read()
  const next = g.call(CHAT, { key, body: BODY })
  await until(async () => (await waiting(g, key)) === 1)
  leave.abort()
  t.equal((await next).status, 200)
  end()
})

t.test('the bodies of requests that wait count towards limits.memory', async t => {
  const { g, upstream, answer } = await gated(t, 1)
  const key = await g.key('famC')
  const large = { ...BODY, messages: [{ role: 'user', content: 'x'.repeat(1_000_000) }] }
  const running = g.call(CHAT, { key, body: BODY })
  await until(() => upstream.requests.length === 1)
  const before = g.gateway.memory.taken
  const next = g.call(CHAT, { key, body: large })
  await until(async () => (await waiting(g, key)) === 1)
  t.ok(g.gateway.memory.taken >= before + 1_000_000)
  answer()
  await Promise.all([running, next])
  await g.settled(key)
})

t.test('the prompt cache of another account is cold for a client that leaves', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const accounts = ['a', 'b', 'c'].map(name => ({ name, key: `${name}-secret-0123456789` }))
  const g = await startGateway(t, {
    upstream: upstream.url,
    edit: file =>
      file
        .set('upstreams.famC.accounts', accounts)
        .everyUpstream({ onDisconnect: 'cancel' })
        .model('famC', 'acme/famC-5.5', { reasoning: 'none' }),
  })
  /** What each account has cached, and what the provider bills, in nano-credits. */
  const warm = new Set<string>()
  let billed = 0n
  const text = 'word '.repeat(8000)
  const tokens = Math.ceil(text.length / 4)
  upstream.script = ({ headers, json: asked }, res) => {
    const account = String(headers.authorization)
    billed += BigInt(tokens) * (warm.has(account) ? 300n : 3000n)
    const cached = warm.has(account) ? tokens : 0
    warm.add(account)
    const usage = { prompt_tokens: tokens, completion_tokens: 1, prompt_tokens_details: { cached_tokens: cached } }
    if (asked['stream'] !== true) return json(res, { ...REPLY, usage })
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}\n\n')
  }
  const key = await g.key('famC')
  const body = { ...BODY, messages: [{ role: 'user', content: text }] }
  const session = randomUUID()
  for (let nth = 0; nth < 2; nth++)
    t.equal((await g.call(CHAT, { key, body, headers: { 'session-id': session } })).status, 200)
  await g.settled(key)
  while (warm.size < 3) {
    const leave = new AbortController()
    const headers = { 'session-id': randomUUID() }
    const reply = await g.open(CHAT, { key, body: { ...body, stream: true }, headers, signal: leave.signal })
    await (reply.body as ReadableStream<Uint8Array>).getReader().read()
    leave.abort()
    await g.settled(key)
  }
  const { exact } = await g.balance(key)
  const charged = BigInt(exact.granted) - BigInt(exact.balance)
  t.ok(charged >= billed, `${charged} was charged, and ${billed} billed`)
  const cold = BigInt(upstream.requests.length) * BigInt(tokens) * 3000n
  t.ok(charged < 2n * cold, `${charged} was charged, and ${cold} is the price without any cache`)
})

t.test('a request is served although another gateway uses every place again as soon as it is free', async t => {
  const { g, upstream, answer } = await gated(t, 5)
  const { store } = g.gateway.config
  const other = await startGateway(t, {
    upstream: upstream.url,
    edit: file =>
      file
        .everyKeyType({ limits: { concurrency: 5, queue: '10s' } })
        .set('store.prefix', store.prefix)
        .set('store.data', store.data),
  })
  const key = await g.key('famC', 100n)
  answer()
  let isOver = false
  const busy = Array.from({ length: 8 }, async () => {
    while (!isOver) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  })
  for (let nth = 0; nth < 3; nth++) t.equal((await other.call(CHAT, { key, body: BODY })).status, 200)
  isOver = true
  await Promise.all(busy)
  await g.settled(key)
})
