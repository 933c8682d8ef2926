import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { UpstreamAccount, Quota, Upstream } from '../../core/config/config.ts'
import { findServer } from '../../core/store/managed.ts'
import { beside, recordsEnv, startGateway, type TestGateway, until, upstreamEnv } from '../gateway.ts'
import { type Edit, GatewayFile } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { BODY, CHAT, REPLY, USAGE, withSpare, pooledScene, type PooledScene } from '../pooled.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'
import { CHUNK_TOKENS } from '../stream-events.ts'

/** Several gateways need a store that all of them can reach. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const DAY = { per: 'day', zone: 'UTC', weekday: 1, day: 1, hour: 0, minute: 0 } as const

const STREAM = { ...BODY, stream: true }
const MESSAGES = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }], stream: true }

const ROLE = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
const TEXT = 'data: {"choices":[{"index":0,"delta":{"content":"good"}}]}\n\n'
const FINISH = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`

function answerWell(upstream: ScriptedUpstream): void {
  upstream.script = ({ json: asked }, res) =>
    asked['stream'] === true ? sse(res, `${ROLE}${TEXT}${FINISH}`) : json(res, REPLY)
}

/** A gateway that asks up to three times. Both providers know streams. */
async function retryingScene(
  t: Test,
  edit: Edit = file => file,
  retry: object = {},
  now: () => number = Date.now,
): Promise<PooledScene> {
  const started = await pooledScene(t, file => edit(file.set('keyTypes.famC.retry', { attempts: 3, ...retry })), {
    environment: { now },
  })
  for (const each of [started.first, started.spare]) answerWell(each)
  return started
}

const FAILURES: readonly (readonly [name: string, fail: (res: ServerResponse) => void])[] = [
  ['has a broken server', res => json(res, { error: { message: 'x' } }, 500)],
  ['is overloaded', res => json(res, { error: { type: 'overloaded_error' } }, 529)],
  ['is unavailable', res => json(res, {}, 503, { 'retry-after': '0' })],
  ['limits the rate', res => json(res, { error: { message: 'slow down' } }, 429)],
  ['is too slow for the request', res => json(res, {}, 408)],
  ['refuses the key', res => json(res, { error: { code: 'invalid_api_key' } }, 401)],
  ['wants money', res => json(res, {}, 402)],
  ['has blocked the account', res => json(res, {}, 403)],
  ['answers in HTML', res => void res.writeHead(200, { 'content-type': 'text/html' }).end('<html>')],
  ['answers with a failure', res => json(res, { error: { type: 'server_error', message: 'x' } })],
  ['fails in its first event', res => sse(res, 'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n')],
  ['fails after its first event', res => sse(res, `${ROLE}data: {"error":{"type":"server_error"}}\n\n`)],
  ['ends a stream without an event', res => sse(res, ': ping\n\n')],
  ['ends a stream without content', res => sse(res, ROLE)],
]

t.test('a customer does not notice an account that fails before any content', async t => {
  const { g, first, spare } = await retryingScene(t)
  for (const [name, fail] of FAILURES) {
    for (const body of [BODY, STREAM]) {
      g.gateway.pool.reset()
      const key = await g.key('famC')
      const asked = [first.requests.length, spare.requests.length] as const
      first.script = (_received, res) => fail(res)
      const answer = await g.call(CHAT, { key, body })
      t.match(answer, { status: 200, text: /good/ }, `${name}, stream: ${'stream' in body}`)
      t.notMatch(answer.text, /error/)
      t.same([first.requests.length - asked[0], spare.requests.length - asked[1]], [1, 1], 'each account is asked once')
      const history = await g.settled(key)
      t.match(history, [{ type: 'settle', status: 'ok', input_tokens: 10, output_tokens: 5 }], 'and charged once')
      t.equal(history.length, 1)
    }
  }
  t.equal(first.requests.length, FAILURES.length * 2)
  t.ok(spare.requests.every(({ headers }) => headers.authorization === 'Bearer spare-secret-0123456789'))
})

t.test('an account that cannot be reached is passed over, and every attempt is in the history', async t => {
  const { g, spare } = await retryingScene(t, file => file.set('upstreams.famC.url', 'http://127.0.0.1:1'))
  const key = await g.key('famC')
  t.match(await g.call(CHAT, { key, body: STREAM }), { status: 200, text: /good/ })
  t.equal(spare.requests.length, 1)
  await g.settled(key)
  const [entry] = await g.gateway.ledger.reads.history({ account: await g.id(key) }, { count: 1 })
  t.equal(entry?.notes.upstream, 'spare/one', 'the history names the account that served')
  t.match(entry?.notes.attempts, [
    { account: 'famC/1', failure: 'connect' },
    { account: 'spare/one', status: 200 },
  ])
})

t.test('nothing is repeated once content has gone to the client', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => sse(res, `${ROLE}${TEXT}data: {"error":{"type":"server_error"}}\n\n`)
  const answer = await g.call(CHAT, { key, body: STREAM })
  t.match(answer.text, /good[^]*"error"/)
  t.equal(spare.requests.length, 0)
  matchAll(t, await g.settled(key), [{ type: 'settle', status: 'failed' }])
})

t.test('events before the content are not held back for longer than `opening`', async t => {
  const { g, first, spare } = await retryingScene(t, undefined, { opening: '100ms' })
  const key = await g.key('famC')
  let finish: () => void = () => {}
  first.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(ROLE)
    finish = () => void res.end('data: {"error":{"type":"server_error"}}\n\n')
  }
  const reply = await g.open(CHAT, { key, body: STREAM })
  t.equal(reply.status, 200, 'the reply has begun')
  finish()
  t.match(await reply.text(), /assistant[^]*"error"/)
  t.equal(spare.requests.length, 0)
  await g.settled(key)
})

t.test('what the request itself causes is not tried elsewhere', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  for (const status of [400, 413, 422]) {
    first.script = (_received, res) => json(res, { error: { message: 'wrong', type: 'invalid_request_error' } }, status)
    t.equal((await g.call(CHAT, { key, body: BODY })).status, status)
  }
  first.script = (_received, res) =>
    sse(res, 'data: {"error":{"message":"too long","code":"context_length_exceeded"}}\n\n')
  t.equal((await g.call(CHAT, { key, body: STREAM })).status, 400)
  t.equal(spare.requests.length, 0)
  await g.settled(key)
})

t.test('a request that was sent and not answered is tried elsewhere only if the file says so', async t => {
  for (const [on, status, asked] of [
    [undefined, 504, 0],
    [['timeout'], 200, 1],
  ] as const) {
    const { g, first, spare } = await retryingScene(
      t,
      file => file.set('upstreams.famC.timeouts', { firstByte: '400ms' }),
      on && { on },
    )
    first.script = () => {}
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, status)
    t.equal(spare.requests.length, asked)
    await g.settled(key)
  }
})

t.test('no more accounts are asked than `attempts` allows', async t => {
  const { g, first, spare } = await retryingScene(t, undefined, { attempts: 1 })
  first.script = (_received, res) => json(res, {}, 500)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  t.equal(spare.requests.length, 0)
  await g.settled(key)
})

t.test('accounts of one conversation may speak different formats', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => json(res, {}, 500)
  const stream = await g.call('/v1/responses', {
    key,
    body: { model: BODY.model, input: 'hi', max_output_tokens: 50, stream: true },
  })
  t.match(stream.text, /response\.output_text\.delta[^]*good[^]*response\.completed/)
  t.match([first.last.path, spare.last.path], ['/v1/responses', CHAT])
  const messages = await g.call('/v1/messages', { key, body: MESSAGES })
  t.match(messages.text, /text_delta[^]*good[^]*message_stop/)
  const history = await g.settled(key)
  t.match(history, [{ output_tokens: 5 }, { output_tokens: 5 }])
})

t.test('a failed attempt counts into the quota and the cost of its account, not of its customer', async t => {
  const quota = { credits: 1, per: 'day' }
  const { g, first, spare } = await retryingScene(t, file =>
    file
      .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
      .set('upstreams.spare.accounts', [{ name: 'one', key: 'spare-secret-0123456789', quota }])
      .set('upstreams.famC.cost', { '*': 'medium' })
      .set('upstreams.spare.cost', { '*': 'medium' }),
  )
  const key = await g.key('famC')
  first.script = (_received, res) =>
    sse(res, `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: {"error":{"type":"server_error"}}\n\n`)
  t.match(await g.call(CHAT, { key, body: STREAM }), { status: 200, text: /good/ })
  const [entry] = await g.settled(key)
  const id = await g.id(key)
  const [recorded] = await g.gateway.ledger.reads.history({ account: id }, { count: 1 })
  const once = BigInt(entry?.['cost_nano'] as string)
  t.ok(once > 0n)
  t.equal(recorded?.notes.cost, String(2n * once), 'the operator pays for both')
  for (const name of ['famC/main', 'spare/one']) {
    const used = await g.gateway.ledger.reads.quotaUsed(
      name,
      { name: 'day', amount: 10n ** 9n, window: DAY, unit: 'credits' as const, fairShare: false },
      Date.now(),
    )
    t.equal(used.used, once, name)
  }
  t.equal(spare.requests.length, 1)
})

t.test('a failed attempt counts for its account as far as its model had time for what it reports', async t => {
  const quota = { credits: 10, per: 'day' }
  const { g, first } = await retryingScene(t, file =>
    file
      .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
      .model('famC', 'acme/famC-5.5', { outputRate: 100_000 }),
  )
  const key = await g.key('famC', 100n)
  first.script = async (_received, res) => {
    // Eight times the rate allows this many tokens in a fortieth of the time.
    await sleep(1000)
    const usage = { prompt_tokens: 10, completion_tokens: 20_000 }
    sse(res, `data: ${JSON.stringify({ choices: [], usage })}\n\ndata: {"error":{"type":"server_error"}}\n\n`)
  }
  t.match(await g.call(CHAT, { key, body: STREAM }), { status: 200, text: /good/ })
  await g.settled(key)
  const [account] = g.gateway.config.upstreams.get('famC')?.accounts ?? []
  const { used } = await g.gateway.ledger.reads.quotaUsed('famC/main', account?.quotas[0] as Quota, Date.now())
  t.equal(used, 10n * 3000n + 20_000n * 15_000n)
})

t.test('a stream grows its holds on quotas in both units, and ends when one of them is used up', async t => {
  const cost = { input: 1.5, output: 7.5, tiers: [] }
  for (const quota of [
    { credits: 0.2, per: 'week', fairShare: true },
    { cost: 0.1, per: 'week', fairShare: true },
  ]) {
    const { g, first } = await retryingScene(t, file =>
      file
        .set('prices.bought', cost)
        .set('upstreams.famC.cost', { '*': 'bought' })
        .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
        .model('famC', 'acme/famC-5.5', { reasoning: 'none' }),
    )
    first.script = async (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      res.write(ROLE)
      const word = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x'.repeat(400) } }] })}\n\n`
      for (; !res.destroyed; await sleep(1)) res.write(word)
    }
    const key = await g.key('famC')
    const { text } = await g.call(CHAT, { key, body: { ...STREAM, max_tokens: 64_000 } })
    t.match(text, /"finish_reason":"length"/)
    const [entry] = await g.settled(key)
    const charged = BigInt(entry?.['cost_nano'])
    // A calendar keeps most of what others have not used, so the key gets its share at the least.
    t.ok(charged >= 90_000_000n && charged <= 200_000_000n + CHUNK_TOKENS * 15_000n, `${charged}`)
    const [account] = g.gateway.config.upstreams.get('famC')?.accounts ?? []
    const { used } = await g.gateway.ledger.reads.quotaUsed('famC/main', account?.quotas[0] as Quota, Date.now())
    t.equal(used, 'cost' in quota ? charged / 2n : charged)
  }
})

t.test('an account whose quota is used up gives way to the next one', async t => {
  const quota = { credits: 0.000001, per: 'day' }
  const { g, first, spare } = await retryingScene(t, file =>
    file.set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }]),
  )
  const key = await g.key('famC')
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, text: /good/ })
  t.same([first.requests.length, spare.requests.length], [0, 1])
  await g.settled(key)
})

t.test('an account that speaks another format than the one whose quota is used up has its usage read', async t => {
  const quota = { credits: 0.000001, per: 'day' }
  const usage = { input_tokens: 1000, cache_read_input_tokens: 9000, output_tokens: 20 }
  const { g, spare } = await retryingScene(t, file =>
    file
      .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
      .set('upstreams.spare.speaks', ['messages']),
  )
  const message = {
    type: 'message',
    role: 'assistant',
    content: [{ type: 'text', text: 'good' }],
    stop_reason: 'end_turn',
  }
  spare.script = (_received, res) => json(res, { ...message, usage })
  const key = await g.key('famC')
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 200, text: /good/ })
  matchAll(t, await g.settled(key), [
    {
      usage_source: 'upstream',
      input_tokens: 10_000,
      cache_read_tokens: 9000,
      output_tokens: 20,
      cost_nano: '6000000',
    },
  ])
})

t.test('an account that fails again and again is not asked, until one request finds it well', async t => {
  let aheadMs = 0
  const { g, first, spare } = await retryingScene(
    t,
    file => file.set('upstreams.famC.health', { failures: 3, cooldown: '10m' }),
    {},
    () => Date.now() + aheadMs,
  )
  const key = await g.key('famC')
  const call = async (): Promise<void> => void t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  first.script = (_received, res) => json(res, {}, 500)
  for (let nth = 0; nth < 5; nth++) await call()
  t.equal(first.requests.length, 3, 'three failures take it out')
  t.equal(spare.requests.length, 5)
  aheadMs = 600_000
  let asked: ServerResponse | undefined
  first.script = (_received, res) => void (asked = res)
  const trial = call()
  await until(() => asked !== undefined)
  await Promise.all(Array.from({ length: 5 }, call))
  t.equal(first.requests.length, 4, 'one request tries it')
  answerWell(first)
  json(asked as unknown as ServerResponse, REPLY)
  await trial
  await call()
  t.equal(first.requests.length, 5, 'and it is asked again')
  await g.settled(key)
})

t.test('an account that its provider refuses is out, and a changed key brings it back', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => json(res, {}, 401)
  for (let nth = 0; nth < 3; nth++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.same([first.requests.length, spare.requests.length], [1, 3])
  answerWell(first)
  const file = new GatewayFile(readFileSync(g.file, 'utf8'))
  file.set('upstreams.famC.accounts', [{ key: 'another-secret-0123456789' }])
  t.equal(await g.gateway.reload(String(file)), true)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.same([first.requests.length, spare.requests.length], [2, 3])
  await g.settled(key)
})

t.test('when no account is left, the error says truly when one will be', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => json(res, {}, 429, { 'retry-after': '7200' })
  spare.script = (_received, res) =>
    json(res, {}, 429, { 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '20s' })
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 503)
  const soon = await g.call(CHAT, { key, body: BODY })
  t.equal(soon.status, 503)
  t.ok(Number(soon.headers.get('retry-after')) <= 20)
  t.equal(soon.headers.get('x-should-retry'), null)
  g.gateway.pool.reset()
  spare.script = (_received, res) => json(res, {}, 402)
  await g.call(CHAT, { key, body: BODY })
  const late = await g.call(CHAT, { key, body: BODY })
  t.ok(Number(late.headers.get('retry-after')) > 50, 'until the refused account is tried again')
  t.equal(late.headers.get('x-should-retry'), null)
  t.same([first.requests.length, spare.requests.length], [2, 2], 'neither is asked again')
  await g.settled(key)
})

t.test('a customer is not told to wait longer than until the first account can serve', async t => {
  const { g, first, spare } = await retryingScene(t)
  const key = await g.key('famC')
  first.script = (_received, res) => json(res, {}, 429, { 'retry-after': '20' })
  spare.script = (_received, res) => json(res, {}, 429, { 'retry-after': '4000' })
  for (let nth = 0; nth < 2; nth++) {
    const refused = await g.call(CHAT, { key, body: BODY })
    t.equal(refused.status, 503)
    t.equal(refused.headers.get('x-should-retry'), null)
    t.ok(Number(refused.headers.get('retry-after')) <= 20, refused.headers.get('retry-after') ?? 'none')
  }
  await g.settled(key)
})

t.test(
  'gateways share what they know of an account, and continue with it while the store is away',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
    answerWell(spare)
    first.script = (_received, res) => json(res, {}, 401)
    const env = { REDIS_URL: redis.url, ...recordsEnv(), ...upstreamEnv(first.url) }
    const pooled: Edit = file => withSpare(ownPrefix(file), spare)
    const one = await startGateway(t, { edit: pooled, env })
    const shared = beside(one, pooled)
    const two = await startGateway(t, { edit: shared, env })
    const famC = one.gateway.config.upstreams.get('famC') as Upstream
    const [account] = famC.accounts as [UpstreamAccount]
    const isOut = ({ gateway }: TestGateway): boolean => gateway.pool.health(account).state.refused !== undefined
    const key = await one.key('famC')
    t.equal((await one.call(CHAT, { key, body: BODY })).status, 200)
    t.equal(first.requests.length, 1)
    await until(() => isOut(two))
    t.equal((await two.call(CHAT, { key, body: BODY })).status, 200)
    t.equal(first.requests.length, 1, 'the other gateway does not ask it')
    two.gateway.pool.reset(account.name)
    await until(() => !isOut(one))

    t.comment('The store loses what was shared.')
    one.gateway.pool.refused({ upstream: famC, account, model: 'm', lastResort: false }, 401, 'x')
    await until(() => isOut(two))
    await redis.command('DEL', one.gateway.ledger.scripts.keys.shared('pool'))
    await until(
      async () => (await redis.command('HEXISTS', one.gateway.ledger.scripts.keys.shared('pool'), account.name)) === 1,
    )
    t.ok(isOut(one) && isOut(two))
    await one.settled(key)
  },
)

t.test('an operator lists accounts, tests one, takes it out and brings it back', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
  answerWell(spare)
  first.script = (_received, res) => json(res, { error: { message: 'no money left', type: 'billing' } }, 402)
  const quota = { credits: 5, per: 'day' }
  const place = new Place(
    t,
    file =>
      withSpare(ownPrefix(file), spare).set('upstreams.famC.accounts', [
        { name: 'main', key: 'main-secret-0123456789', quota },
      ]),
    { REDIS_URL: redis.url, ...upstreamEnv(first.url) },
  )
  const gateway = await place.start(t)
  const { key } = await place.key('famC', '1')
  const ask = async (): Promise<number> => {
    const body = JSON.stringify(BODY)
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    return (await fetch(`${gateway.url}${CHAT}`, { method: 'POST', headers, body })).status
  }
  t.equal(await ask(), 200)
  const lines = async (): Promise<Record<string, any>[]> =>
    (await place.run('upstreams', '--json')).out
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
  const of = async (name: string): Promise<Record<string, any>> =>
    (await lines()).find(({ account }) => account === name) ?? {}
  await until(async () => (await of('famC/main'))['failures'] === 1)
  t.match(await of('famC/main'), {
    health: /^refused by the provider \(402\) since /,
    failures: 1,
    quotas: [{ window: 'day', credits: '5', used: '0' }],
    last_failure: 'upstream status 402 billing no money left',
  })
  t.match(await of('spare/one'), { health: 'ok', requests: 1, failures: 0, quotas: [] })
  t.match(
    (await place.run('upstreams')).out,
    /famC\/main +refused by the provider.*1 requests, 1 failed; 0 of 5 credits per day until /,
  )
  t.match(await place.run('upstreams', 'test', 'famC/main'), {
    code: 1,
    err: /failed after \d+ ms: upstream status 402/,
  })
  t.match(await place.run('upstreams', 'test', 'spare/one'), { code: 0, out: /spare\/one answered in \d+ ms/ })
  t.match(await place.run('upstreams', 'test', 'spare/two'), {
    code: 2,
    err: /no account spare\/two; did you mean spare\/one/,
  })

  answerWell(first)
  const asked = first.requests.length
  t.match(await place.run('upstreams', 'reset', 'famC/main'), { code: 0, out: /is asked again/ })
  await until(async () => {
    t.equal(await ask(), 200)
    return first.requests.length > asked
  })
  t.match(await place.run('upstreams', 'disable', 'famC/main'), { code: 0 })
  const at = async (): Promise<number> => {
    t.equal(await ask(), 200)
    return first.requests.length
  }
  await until(async () => (await at()) === (await at()))
  // A restart, and a store that has lost it, do not bring it back.
  await gateway.stop('SIGTERM')
  await redis.command('DEL', ...((await redis.command('KEYS', '*:pool')) as string[]))
  const again = await place.start(t)
  t.match(await of('famC/main'), { health: 'disabled' })
  t.match(await place.run('upstreams', 'enable', 'famC/main'), { code: 0 })
  t.match(await of('famC/main'), { health: 'ok' })
  await again.stop('SIGTERM')
})

t.test('a client that waits for its first event gets comments, and then a reply or an error in its format', async t => {
  const { g, first, spare } = await retryingScene(t, file =>
    file.set('limits.keepalive', '100ms').set('upstreams.famC.timeouts', { firstByte: '5s', idle: '5s' }),
  )
  const key = await g.key('famC')
  for (const [path, error] of [
    [CHAT, /^data: \{"error":\{"message":".*"type":"server_error"/m],
    ['/v1/responses', /^event: error\n[^]*^event: response\.failed\ndata: .*"error":\{"code":"server_error"/m],
    ['/v1/messages', /^event: error\ndata: \{"type":"error","error":\{"type":"api_error"/m],
  ] as const) {
    const body = { ...STREAM, input: 'hi' }
    let asked: ServerResponse | undefined
    first.script = (_received, res) => void (asked = res)
    answerWell(spare)
    const good = await g.open(path, { key, body })
    t.equal(good.status, 200, 'the head comes with a comment')
    json(asked as unknown as ServerResponse, {}, 500)
    const text = await good.text()
    t.match(text, /^: keepalive\n\n/)
    t.match(text, /good/, 'another account is asked all the same')
    g.gateway.pool.reset()

    asked = undefined
    spare.script = (_received, res) => json(res, {}, 500)
    const bad = await g.open(path, { key, body })
    json(asked as unknown as ServerResponse, {}, 500)
    t.match(await bad.text(), error, path)
    g.gateway.pool.reset()
  }
  const history = await g.settled(key)
  t.equal(history.filter(({ type }) => type === 'settle').length, 3)
})

t.test('what a reply stored is asked for at the account that has it', async t => {
  const providers = await Promise.all(
    ['a', 'b', 'c', 'd'].map(async name => ({ name, at: await ScriptedUpstream.start(t) })),
  )
  let made = 0
  for (const { at } of providers)
    at.script = (_received, res) => {
      const usage = { input_tokens: 1, output_tokens: 1 }
      json(res, { id: `resp_${++made}`, object: 'response', status: 'completed', output: [], usage })
    }
  const accounts = providers.map(({ name, at }) => ({ name, key: `secret-of-${name}-0123456789`, url: at.url }))
  const g = await startGateway(t, {
    upstream: providers[0]?.at.url ?? '',
    edit: file => file.set('upstreams.famC.accounts', accounts),
  })
  const key = await g.key('famC')
  const ask = (more: object): Promise<{ status: number; json: any }> =>
    g.call('/v1/responses', { key, body: { model: BODY.model, input: `hi ${++made}`, ...more } })
  const asked = (): string => providers.map(({ name, at }) => `${name}${at.requests.length}`).join(' ')
  for (let nth = 0; nth < 10; nth++) {
    const before = providers.map(({ at }) => at.requests.length)
    const { json: reply } = await ask({ store: true })
    const holder = providers.findIndex(({ at }, index) => at.requests.length > (before[index] ?? 0))
    // Another conversation, as far as the client says.
    t.equal((await ask({ previous_response_id: reply.id, prompt_cache_key: `other ${nth}` })).status, 200)
    t.equal(providers[holder]?.at.requests.length, (before[holder] ?? 0) + 2, asked())
  }

  const { json: reply } = await ask({ store: true })
  for (const account of g.gateway.config.upstreams.get('famC')?.accounts ?? [])
    g.gateway.pool.failed(
      { upstream: g.gateway.config.upstreams.get('famC') as Upstream, account, model: 'm', lastResort: false },
      'x',
      5000,
    )
  const refused = await ask({ previous_response_id: reply.id })
  t.match(refused, { status: 503 }, 'the others cannot know it')
  await g.settled(key)
})

t.test('an account serves while all of its quotas have something left', async t => {
  const quotas = [
    { credits: 1, per: 'month', anchor: '15 08:00', zone: 'Europe/Berlin' },
    { credits: 0.005, per: '5h' },
  ]
  const { g, first, spare } = await retryingScene(t, file =>
    file.set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota: quotas }]),
  )
  const key = await g.key('famC')
  const body = { ...BODY, max_tokens: 10 }
  t.equal((await g.call(CHAT, { key, body })).status, 200)
  await g.settled(key)
  t.match((await g.call('/api/v1/key-info', { key })).json, {
    monthly_quota: { used_up: false },
    quota_of_5h: { used_up: false },
  })
  const longer = { ...BODY, max_tokens: 1000 }
  for (let nth = 0; nth < 3; nth++) t.equal((await g.call(CHAT, { key, body: longer })).status, 200)
  t.same([first.requests.length, spare.requests.length], [1, 3])
  await g.settled(key)
  const { ledger, config } = g.gateway
  const [account] = config.upstreams.get('famC')?.accounts ?? []
  const used = await Promise.all(
    account?.quotas.map(quota => ledger.reads.quotaUsed('famC/main', quota, Date.now())) ?? [],
  )
  t.equal(used[0]?.used, used[1]?.used, 'each of them counts every charge, and nothing is held')
})

t.test('a quota in cost counts what the upstream charges: as it reports, or at the prices of its cost', async t => {
  const cost = { input: 1.5, output: 5, tiers: [] }
  for (const dollar of [undefined, 2]) {
    const { g, first, spare } = await retryingScene(t, file =>
      file
        .set('prices.bought', cost)
        .setAll('upstreams.famC', { cost: { '*': 'bought' }, ...(dollar !== undefined && { dollar }) })
        .set('upstreams.famC.accounts', [
          { name: 'main', key: 'main-secret-0123456789', quota: { cost: 0.01, per: 'week' } },
        ]),
    )
    // At the prices of the key, 100 tokens of each cost 0.0018 credits. At those of the upstream, 0.00065.
    const usage = { prompt_tokens: 100, completion_tokens: 100, ...(dollar !== undefined && { cost: 0.001 }) }
    first.script = (_received, res) => json(res, { ...REPLY, usage })
    const key = await g.key('famC')
    const served = async (): Promise<number> => {
      const before = first.requests.length
      t.equal((await g.call(CHAT, { key, body: { ...BODY, max_tokens: 100 } })).status, 200)
      await g.settled(key)
      return first.requests.length - before
    }
    let count = 0
    while ((await served()) === 1) count++
    // The last one is held for in full, at the greatest factor between both prices.
    t.equal(count, dollar ? 5 : 15)
    t.equal(spare.requests.length, 1)
    const [account] = g.gateway.config.upstreams.get('famC')?.accounts ?? []
    const [quota] = account?.quotas ?? []
    const { used } = await g.gateway.ledger.reads.quotaUsed('famC/main', quota as Quota, Date.now())
    t.equal(used, BigInt(count) * (dollar ? 2_000_000n : 650_000n))
  }
})

t.test('a key from a file is read again when the file changes, and brings its account back', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-secret-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const secret = join(folder, 'famC')
  writeFileSync(secret, 'old-secret-0123456789\n')
  const { g, first, spare } = await retryingScene(t, file => file.fromFile('upstreams.famC.accounts.0.key', secret))
  const keys = (): unknown => [...new Set(first.requests.map(({ headers }) => headers.authorization))]
  first.script = ({ headers }, res) =>
    headers.authorization === 'Bearer new-secret-0123456789' ? json(res, REPLY) : json(res, {}, 401)
  const key = await g.key('famC')
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.same([first.requests.length, spare.requests.length], [1, 1])
  t.same(keys(), ['Bearer old-secret-0123456789'])
  writeFileSync(secret, 'new-secret-0123456789\n')
  await until(async () => {
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    return first.requests.length === 2
  })
  t.same(keys(), ['Bearer old-secret-0123456789', 'Bearer new-secret-0123456789'])
  await g.settled(key)
})

t.test('two gateways share the quotas of an account, and every credit is accounted for', { skip }, async t => {
  const redis = await RealRedis.start(t)
  const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
  for (const each of [first, spare]) answerWell(each)
  const env = { REDIS_URL: redis.url, ...recordsEnv(), ...upstreamEnv(first.url) }
  const quota = { credits: 0.005, per: 'day' }
  const pooled: Edit = file =>
    withSpare(ownPrefix(file), spare)
      .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
      .set('keyTypes.famC.limits.concurrency', 80)
  const one = await startGateway(t, { edit: pooled, env })
  const two = await startGateway(t, {
    edit: beside(one, pooled),
    env,
  })
  const key = await one.key('famC')
  const asks = Array.from({ length: 80 }, (_, nth) => (nth % 2 === 0 ? one : two).call(CHAT, { key, body: BODY }))
  for (const { status } of await Promise.all(asks)) t.equal(status, 200)
  await one.settled(key)
  await two.settled(key)
  t.equal(first.requests.length + spare.requests.length, 80, 'nothing was asked twice')
  t.ok(first.requests.length > 0 && spare.requests.length > 0)
  const history = await one.gateway.ledger.reads.history({ account: await one.id(key) }, { count: 100 })
  t.equal(history.length, 80)
  const charge = history[0]?.charge ?? 0n
  t.ok(history.every(entry => entry.charge === charge && entry.kind === 'settle'))
  const used = await one.gateway.ledger.reads.quotaUsed(
    'famC/main',
    { name: 'day', amount: 10n ** 9n, window: DAY, unit: 'credits' as const, fairShare: false },
    Date.now(),
  )
  t.equal(used.used, charge * BigInt(first.requests.length))
  t.ok(used.used <= 5_000_000n)
  t.match(await one.balance(key), { held: '0' })
})
