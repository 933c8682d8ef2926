import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json, type Script, ScriptedUpstream } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user' as const, content: 'hi' }] }
const answer: Script = (_received, res) =>
  json(res, {
    id: 'c',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 1000, completion_tokens: 100 },
  })
/** What that costs, in nano-credits. */
const COST = 1000n * 3000n + 100n * 15_000n

interface Scene {
  readonly g: TestGateway
  readonly upstream: ScriptedUpstream
  readonly key: string
}

async function scene(t: Test): Promise<Scene> {
  const upstream = await ScriptedUpstream.start(t)
  const g = await startGateway(t, { upstream: upstream.url })
  return { g, upstream, key: await g.key('famC') }
}

/** A client that leaves before anything came; its request has been with the upstream. */
async function lost(t: Test, { g, upstream, key }: Scene, headers: Record<string, string>): Promise<void> {
  const leave = new AbortController()
  upstream.script = () => leave.abort()
  await t.rejects(g.open(CHAT, { key, body: BODY, headers, signal: leave.signal }))
  await upstream.last.closed
}

const used = async ({ g, key }: Scene): Promise<bigint> => BigInt((await g.balance(key)).exact.used)

t.test('an SDK whose first attempt timed out and whose second came through pays for one', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  upstream.script = (received, res) => (received.headers['x-stainless-retry-count'] === '0' ? undefined : answer(received, res))
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, timeout: 1000, maxRetries: 2 })
  t.equal((await client.chat.completions.create(BODY)).choices[0]?.message.content, 'Hello')
  t.equal(upstream.requests.length, 2)
  const [second, first] = await g.settled(key)
  t.match(first, { status: 'client_gone', usage_source: 'estimated' })
  t.equal(second?.waived_nano, first?.cost_nano, 'what the first had cost is taken off the second')
  t.equal(await used(place), COST)
})

t.test('two attempts that timed out and a third that came through are paid for as one', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  upstream.script = (received, res) => (received.headers['x-stainless-retry-count'] === '2' ? answer(received, res) : undefined)
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, timeout: 1000, maxRetries: 2 })
  await client.chat.completions.create(BODY)
  t.equal(upstream.requests.length, 3)
  await g.settled(key)
  t.equal(await used(place), COST)
})

t.test('an attempt that the upstream failed costs nothing, so its retry costs what it costs', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  upstream.script = (received, res) => (upstream.requests.length === 1 ? json(res, { error: { message: 'no' } }, 500) : answer(received, res))
  const client = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 2 })
  await client.chat.completions.create(BODY)
  t.match(await g.settled(key), [{ type: 'settle', waived_nano: '0' }, { type: 'void' }])
  t.equal(await used(place), COST)
})

t.test('a request with an idempotency key is charged once, however often it brought nothing before', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  const headers = { 'idempotency-key': 'order-1' }
  await lost(t, place, headers)
  await g.settled(key)
  upstream.script = answer
  t.equal((await g.call(CHAT, { key, body: BODY, headers })).status, 200)
  await g.settled(key)
  t.equal(await used(place), COST)
  t.equal((await g.call(CHAT, { key, body: BODY, headers })).status, 200)
  await g.settled(key)
  t.equal(await used(place), 2n * COST, 'a reply that came is paid for, under whatever name')
})

t.test('requests that happen to be the same are each charged', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  upstream.script = answer
  await Promise.all(Array.from({ length: 5 }, () => g.call(CHAT, { key, body: BODY, headers: { 'x-stainless-retry-count': '0' } })))
  await g.settled(key)
  t.equal(await used(place), 5n * COST)
})

t.test('a client that says nothing of retries pays for what it left, and one lost attempt counts for one retry', async t => {
  const place = await scene(t)
  const { g, upstream, key } = place
  await lost(t, place, {})
  const [entry] = await g.settled(key)
  const left = BigInt(entry?.cost_nano)
  t.ok(left > 0n)
  await lost(t, place, { 'x-stainless-retry-count': '0' })
  await g.settled(key)
  upstream.script = answer
  for (const count of ['1', '2']) await g.call(CHAT, { key, body: BODY, headers: { 'x-stainless-retry-count': count } })
  await g.settled(key)
  t.equal(await used(place), left + 2n * COST)
})

t.test('it does not matter which of the two is settled first', async t => {
  const place = await scene(t)
  const { g, key } = place
  const { ledger } = g.gateway
  const account = await g.id(key)
  const notes = { requestId: 'r', endpoint: CHAT, model: 'm', stream: false }
  const settle = (id: string, charge: bigint, part: 'lost' | 'retry', request: string): void =>
    ledger.settle({ account, id }, { charge, kind: 'settle', notes, attempt: { request, part } })
  settle('a', 100n, 'lost', 'x')
  settle('b', 60n, 'retry', 'x')
  settle('c', 60n, 'retry', 'y')
  settle('d', 100n, 'lost', 'y')
  settle('d', 100n, 'lost', 'y')
  await g.settled(key)
  t.equal((await ledger.balance(account)).settled, 200n)
})
