import { connect } from 'node:net'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import { findServer } from '../../core/store/managed.ts'
import { beside, recordsEnv, startGateway, type TestGateway, until } from '../gateway.ts'
import { RawClient } from '../raw.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { begun, json, type Script, ScriptedUpstream, sse } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { ended } from '../stream-events.ts'
import { scene, type Scene } from '../scene.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user' as const, content: 'hi' }] }
const answer: Script = (_received, res) =>
  json(res, {
    id: 'c',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 1000, completion_tokens: 100 },
  })
/** The cost of this reply, in nano-credits. */
const COST = 1000n * 3000n + 100n * 15_000n

/** A gateway with the key of a customer who sends requests again. */
interface Retrying extends Scene {
  readonly key: string
}

async function retrying(t: Test, onDisconnect = 'finish', more: Edit = file => file): Promise<Retrying> {
  const started = await scene(t, file => more(file.set('upstreams.famC.onDisconnect', onDisconnect)))
  return { ...started, key: await started.g.key('famC') }
}

/** A client that leaves before its reply began. The upstream has its request. Resolves when the gateway has noticed. */
async function leaves(
  { g, upstream, key }: Retrying,
  headers: Record<string, string>,
  body: object = BODY,
): Promise<void> {
  const leave = new AbortController()
  const before = upstream.requests.length
  const call = g.open(CHAT, { key, body, headers, signal: leave.signal }).catch(() => undefined)
  await until(() => upstream.requests.length > before)
  leave.abort()
  await call
  await until(
    async () =>
      (await g.gateway.ledger.scripts.redis.zcard(g.gateway.ledger.scripts.keys.of(await g.id(key)).slots)) > 0 ||
      g.gateway.running === 0,
  )
}

/** Requests that the upstream has received. The test decides when to reply. */
function withheld(upstream: ScriptedUpstream): (() => void)[] {
  const replies: (() => void)[] = []
  upstream.script = (received, res) => void replies.push(() => void answer(received, res))
  return replies
}

const used = async ({ g, key }: Retrying): Promise<bigint> => BigInt((await g.balance(key)).exact.used)

t.test(
  'the retry of an SDK whose first attempt timed out gets its reply: one request upstream, one charge',
  async t => {
    const place = await retrying(t)
    const { g, upstream, key } = place
    upstream.script = async (received, res) => {
      await until(
        async () =>
          (await g.gateway.ledger.scripts.redis.zcard(g.gateway.ledger.scripts.keys.of(await g.id(key)).slots)) > 0,
      )
      await answer(received, res)
    }
    const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, timeout: 1000, maxRetries: 2 })
    t.equal((await client.chat.completions.create(BODY)).choices[0]?.message.content, 'Hello')
    t.equal(upstream.requests.length, 1)
    matchAll(t, await g.settled(key), [{ usage_source: 'upstream', waived_nano: '0' }])
    t.equal(await used(place), COST)
  },
)

/** Conversations that a stream keeps, and that it releases when its content begins. */
for (const [size, words] of [
  ['small', 1],
  ['large', 20_000],
] as const) {
  const messages = [{ role: 'user', content: 'word '.repeat(words) }]
  const body = { ...BODY, messages, stream: true, stream_options: { include_usage: true } }
  const delta = (content: string): string =>
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`
  const rest = delta('lo') + ended(9, 700)

  t.test(`a retry of a ${size} request gets a stream from its start, and the rest as it arrives`, async t => {
    const place = await retrying(t)
    const { g, upstream, key } = place
    const replies = begun(upstream, delta('Hel'))
    await leaves(place, { 'x-stainless-retry-count': '0' }, body)
    const retry = await g.open(CHAT, { key, body, headers: { 'x-stainless-retry-count': '1' } })
    t.equal(
      await g.gateway.ledger.scripts.redis.zcard(g.gateway.ledger.scripts.keys.of(await g.id(key)).slots),
      0,
      'it is no longer abandoned',
    )
    replies[0]?.end(rest)
    const text = await retry.text()
    t.match(text, /"content":"Hel"[^]*"content":"lo"[^]*"completion_tokens":700[^]*\[DONE\]/)
    t.equal(upstream.requests.length, 1)
    matchAll(t, await g.settled(key), [{ status: 'ok', usage_source: 'upstream', output_tokens: 700 }])
  })

  t.test(`a ${size} stream that may be sent again is charged once, and answers what repeats it`, async t => {
    const { g, upstream, key } = await retrying(t)
    upstream.script = (_received, res) => sse(res, delta('Hel') + rest)
    for (const headers of [
      { 'x-stainless-retry-count': '1' },
      { 'idempotency-key': 'one' },
      { 'idempotency-key': 'one' },
    ])
      t.match(await (await g.open(CHAT, { key, body, headers })).text(), /"completion_tokens":700/)
    t.equal(upstream.requests.length, 2)
    matchAll(t, await g.settled(key), [{ output_tokens: 700 }, { output_tokens: 700 }])
    const other = { ...body, messages: [...messages, ...messages] }
    t.equal((await g.call(CHAT, { key, body: other, headers: { 'idempotency-key': 'one' } })).status, 400)
  })
}

t.test('a reply that arrived when no client listened is kept for the retry', async t => {
  const place = await retrying(t)
  const { g, upstream, key } = place
  const replies = withheld(upstream)
  await leaves(place, { 'x-stainless-retry-count': '0' })
  replies[0]?.()
  await g.settled(key)
  const retry = { key, body: BODY, headers: { 'x-stainless-retry-count': '1' } }
  t.match(await g.call(CHAT, retry), { status: 200, json: { choices: [{ message: { content: 'Hello' } }] } })
  t.equal(await used(place), COST)
  t.equal((await g.settled(key)).length, 1, 'no stage decides after it has settled')
  upstream.script = answer
  await g.call(CHAT, retry)
  t.equal(upstream.requests.length, 2, 'one retry has it: another one is another request')
  await g.settled(key)
  t.equal(await used(place), 2n * COST)
})

t.test('an attempt that the upstream failed is free, and its retry is charged', async t => {
  const place = await retrying(t)
  const { g, upstream, key } = place
  upstream.script = (received, res) =>
    upstream.requests.length === 1 ? json(res, { error: { message: 'no' } }, 500) : answer(received, res)
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 2 })
  await client.chat.completions.create(BODY)
  matchAll(t, await g.settled(key), [{ type: 'settle', waived_nano: '0' }, { type: 'void' }])
  t.equal(await used(place), COST)
})

t.test(
  'requests with one idempotency-key are one request: concurrent ones wait, later ones get the same reply',
  async t => {
    const place = await retrying(t)
    const { g, upstream, key } = place
    const replies = withheld(upstream)
    const headers = { 'idempotency-key': 'order-1' }
    await leaves(place, headers)
    const waiting = [1, 2, 3].map(() => g.call(CHAT, { key, body: BODY, headers }))
    await until(() => g.gateway.running === 4)
    replies[0]?.()
    for (const answer of await Promise.all(waiting))
      t.match(answer, { status: 200, json: { usage: { prompt_tokens: 1000 } } })
    t.equal((await g.call(CHAT, { key, body: BODY, headers })).status, 200)
    t.equal(upstream.requests.length, 1)
    t.equal((await g.settled(key)).length, 1)
    t.equal(await used(place), COST)
    const other = await g.call(CHAT, { key, body: { ...BODY, n: 2 }, headers })
    t.match(other, { status: 400, json: { error: { message: /another request/ } } })
    t.equal(other.headers.get('x-should-retry'), 'false')
    const stranger = await g.key('famC')
    upstream.script = answer
    t.equal(
      (await g.call(CHAT, { key: stranger, body: { ...BODY, n: 2 }, headers })).status,
      200,
      'a key has its names for itself',
    )
  },
)

t.test('a retry gets the reply that used up its key', async t => {
  const { g, upstream } = await retrying(t)
  upstream.script = answer
  const key = await g.keyOfNano('famC', COST)
  const headers = { 'idempotency-key': 'the last one' }
  const body = { ...BODY, max_tokens: 100 }
  for (const time of ['first', 'again']) {
    const { status, json } = await g.call(CHAT, { key, body, headers })
    t.equal(status, 200, time)
    t.equal(json.choices[0].message.content, 'Hello', time)
    await g.settled(key)
  }
  t.equal((await g.balance(key)).exact.balance, '0')
  t.equal(upstream.requests.length, 1)
  // Its body is not read: it announces more bytes than it sends.
  for (const other of [{ 'idempotency-key': 'another' }, { 'x-stainless-retry-count': '1' }] as Record<
    string,
    string
  >[]) {
    const [[name, value]] = Object.entries(other) as [[string, string]]
    const head = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n${name}: ${value}\r\ncontent-length: 1000000\r\n\r\n`
    const client = new RawClient(g.gateway.port, head)
    await client.saw(/"error"[^]*\}\}/)
    t.equal(client.status, 429, name)
    client.socket.destroy()
  }
})

t.test('a request whose attempt failed is sent again under its idempotency-key', async t => {
  const place = await retrying(t)
  const { g, upstream, key } = place
  const call = (): ReturnType<TestGateway['call']> =>
    g.call(CHAT, { key, body: BODY, headers: { 'idempotency-key': 'order-1' } })
  upstream.script = (_received, res) => json(res, { error: { message: 'no' } }, 500)
  t.equal((await call()).status, 502)
  upstream.script = answer
  t.equal((await call()).status, 200)
  await g.settled(key)
  t.equal(await used(place), COST)
})

t.test('a reply that is too large to keep gives a 409, and no second charge', async t => {
  const { g, upstream } = await scene(t, file => file.stage('retries', { replyBytes: 10 }))
  upstream.script = answer
  const key = await g.key('famC')
  const call = (): ReturnType<TestGateway['call']> =>
    g.call(CHAT, { key, body: BODY, headers: { 'idempotency-key': 'order-1' } })
  t.equal((await call()).status, 200)
  const again = await call()
  t.match(again, { status: 409, json: { error: { code: 'request_conflict' } } })
  t.equal(again.headers.get('x-should-retry'), 'false')
  t.equal((await g.settled(key)).length, 1)
})

t.test(
  'an idempotency-key counts across gateways',
  { skip: findServer(process.env) === undefined && 'no redis-server on PATH' },
  async t => {
    const upstream = await ScriptedUpstream.start(t)
    const redis = await RealRedis.start(t)
    upstream.script = answer
    const env = { REDIS_URL: redis.url, ...recordsEnv() }
    const one = await startGateway(t, { upstream: upstream.url, edit: ownPrefix, env })
    const shared = beside(one, ownPrefix)
    const other = await startGateway(t, { upstream: upstream.url, edit: shared, env })
    const key = await one.key('famC')
    const headers = { 'idempotency-key': 'order-1' }
    t.equal((await one.call(CHAT, { key, body: BODY, headers })).status, 200)
    t.match(await other.call(CHAT, { key, body: BODY, headers }), { status: 409 })
    t.match(await other.call(CHAT, { key, body: { ...BODY, n: 2 }, headers }), { status: 400 })
    t.equal(upstream.requests.length, 1)
    t.equal((await one.settled(key)).length, 1)
  },
)

t.test('a client that does not read delays no other client of the same reply', async t => {
  const place = await retrying(t)
  const { g, upstream, key } = place
  const body = JSON.stringify({ ...BODY, stream: true })
  let go = (): void => {}
  const joined = new Promise<void>(resolve => (go = resolve))
  const piece = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { padding: 'x'.repeat(10_000) }, finish_reason: null }] })}\n\n`
  upstream.script = async (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(piece)
    await joined
    for (let time = 0; time < 1500; time++)
      if (!res.write(piece)) await new Promise(resolve => res.once('drain', resolve))
    res.end(ended(9, 700))
  }
  const deaf = connect(g.gateway.port, '127.0.0.1')
  deaf.pause()
  deaf.write(
    `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\nidempotency-key: order-1\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  await until(() => upstream.requests.length === 1)
  // It has joined when its reply begins.
  const again = await g.open(CHAT, {
    key,
    body: { ...BODY, stream: true },
    headers: { 'idempotency-key': 'order-1' },
  })
  go()
  t.match(await again.text(), '[DONE]')
  deaf.destroy()
  matchAll(t, await g.settled(key), [{ usage_source: 'upstream', output_tokens: 700 }])
})

t.test('identical requests that are not retries are each charged', async t => {
  const place = await retrying(t)
  const { g, upstream, key } = place
  upstream.script = answer
  await Promise.all(
    Array.from({ length: 5 }, () => g.call(CHAT, { key, body: BODY, headers: { 'x-stainless-retry-count': '0' } })),
  )
  await g.settled(key)
  t.equal(await used(place), 5n * COST)
})

t.test('two lost attempts do not waive each other: both are charged', async t => {
  const place = await retrying(t, 'cancel')
  const { g, upstream, key } = place
  upstream.script = () => {}
  const body = { ...BODY, stream: true }
  for (let time = 0; time < 5; time++) await leaves(place, { 'x-stainless-retry-count': '1' }, body)
  const entries = await g.settled(key)
  t.equal(entries.length, 5)
  for (const { cost_nano: cost, waived_nano: waived } of entries)
    t.ok(BigInt(cost) > 0n && waived === '0', `${cost}, waived ${waived}`)
})

t.test('a lost attempt is waived once a retry succeeded, and only so often a key', async t => {
  const place = await retrying(t, 'cancel', file => file.set('ledger.waivers', 1))
  const { g, upstream, key } = place
  const body = { ...BODY, stream: true }
  const stream: Script = (_received, res) =>
    sse(
      res,
      'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100}}\n\ndata: [DONE]\n\n',
    )
  for (const spared of [true, false]) {
    upstream.script = () => {}
    await leaves(place, { 'x-stainless-retry-count': '0' }, body)
    const [lost] = await g.settled(key)
    upstream.script = stream
    for (const count of ['1', '2']) {
      await g.call(CHAT, { key, body, headers: { 'x-stainless-retry-count': count } })
      const [entry] = await g.settled(key)
      const waived = spared && count === '1' ? BigInt(lost?.cost_nano) : 0n
      t.equal(entry?.waived_nano, String(waived < COST ? waived : COST))
    }
  }
})

t.test('the order in which the two settle does not matter', async t => {
  const place = await retrying(t)
  const { g, key } = place
  const { ledger } = g.gateway
  const account = await g.id(key)
  const notes = { endpoint: CHAT, model: 'm', stream: false }
  const ids = new Map(['a', 'b', 'c', 'd'].map(name => [name, timedId(Date.now())]))
  const settle = (name: string, charge: bigint, part: 'lost' | 'retry', request: string): void =>
    ledger.settle({ account, id: ids.get(name) ?? '' }, { charge, kind: 'settle', notes, resend: { request, part } })
  settle('a', 100n, 'lost', 'x')
  settle('b', 60n, 'retry', 'x')
  settle('c', 60n, 'retry', 'y')
  settle('d', 100n, 'lost', 'y')
  settle('d', 100n, 'lost', 'y')
  await g.settled(key)
  t.equal((await ledger.reads.balance(account)).settled, 200n)
})
