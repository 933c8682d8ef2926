import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { quotaAccount } from '../../core/ledger/quota-windows.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { BODY, CHAT, REPLY, USAGE, withSpare } from '../pooled.ts'
import { json, rawUpstream, ScriptedUpstream, sse } from '../upstream.ts'

/** A second account is asked when the first one is late. */

const STREAM = { ...BODY, stream: true }
const WELL =
  'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"good"}}]}\n\n' +
  `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n` +
  `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`

interface Scene {
  readonly g: TestGateway
  readonly key: string
  readonly first: ScriptedUpstream
  readonly spare: ScriptedUpstream
  /** Answers that the upstreams have not given yet. */
  readonly waiting: { first: ServerResponse[]; spare: ServerResponse[] }
  /** Nano-credits that count into the quotas of both accounts. */
  readonly used: () => Promise<[first: bigint, spare: bigint]>
}

/** Two accounts that answer when the test wants, and a gateway that asks the second one after 80 ms. */
async function scene(t: Test, edit: Edit = file => file): Promise<Scene> {
  const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
  const waiting: Scene['waiting'] = { first: [], spare: [] }
  first.script = (_received, res) => void waiting.first.push(res)
  spare.script = (_received, res) => void waiting.spare.push(res)
  const quota = { credits: 5, per: 'day' }
  const g = await startGateway(t, {
    upstream: first.url,
    edit: file =>
      edit(
        withSpare(file, spare)
          .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota }])
          .set('upstreams.spare.accounts', [{ name: 'one', key: 'spare-secret-0123456789', quota }])
          .set('upstreams.famC.cost', { '*': 'medium' })
          .set('upstreams.spare.cost', { '*': 'medium' })
          .set('keyTypes.famC.hedge', { after: '80ms' }),
      ),
  })
  const used = async (name: string): Promise<bigint> => {
    const account = g.gateway.config.upstreams.get(name)?.accounts[0]
    const [of] = account?.quotas ?? []
    if (!account || !of) throw new Error('no quota')
    return (await g.gateway.ledger.quotaUsed(account.name, of, Date.now())).used
  }
  return {
    g,
    key: await g.key('famC'),
    first,
    spare,
    waiting,
    used: async () => [await used('famC'), await used('spare')],
  }
}

/** The attempts of a key's only exchange, as the operator sees them. */
async function attemptsOf({ g, key }: Scene): Promise<unknown> {
  await g.settled(key)
  const [entry] = await g.gateway.ledger.history(await g.id(key), { count: 1 })
  return entry?.notes.attempts
}

const LATE = { failure: 'another account answered first' }

t.test('when the first account is late, the second one serves, and the first one is cancelled', async t => {
  const s = await scene(t)
  const { g, key, first, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  sse(waiting.spare[0] as ServerResponse, WELL)
  t.match(await call, { status: 200, text: /good/ })
  await first.last.closed
  t.match(await attemptsOf(s), [
    { account: 'famC/main', ...LATE },
    { account: 'spare/one', status: 200 },
  ])
  const [entry] = await g.settled(key)
  const charge = BigInt(entry?.['cost_nano'] as string)
  const [lost, won] = await s.used()
  t.equal(won, charge, 'the customer pays what the second account delivered')
  t.ok(lost > 0n && lost < charge, `the input of the first one counts: ${lost} of ${charge}`)
  const [recorded] = await g.gateway.ledger.history(await g.id(key), { count: 1 })
  t.equal(recorded?.notes.cost, String(lost + won), 'the operator pays for both')
  t.match(await g.balance(key), { held: '0' })
})

t.test('when the first account answers after all, the second one is cancelled', async t => {
  const s = await scene(t)
  const { g, key, spare, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  sse(waiting.first[0] as ServerResponse, WELL)
  t.match(await call, { status: 200, text: /good/ })
  await spare.last.closed
  t.match(await attemptsOf(s), [
    { account: 'spare/one', ...LATE },
    { account: 'famC/main', status: 200 },
  ])
  const [entry] = await g.settled(key)
  const [won, lost] = await s.used()
  t.equal(won, BigInt(entry?.['cost_nano'] as string))
  t.ok(lost > 0n && lost < won)
})

t.test('a second account that fails changes nothing', async t => {
  for (const status of [429, 500, 'reset'] as const) {
    const s = await scene(t)
    const { g, key, first, spare, waiting } = s
    spare.script = (_received, res) => void (status === 'reset' ? res.destroy() : json(res, {}, status))
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => g.gateway.pool.members.get('spare/one')?.health.counts.failures === 1)
    sse(waiting.first[0] as ServerResponse, WELL)
    t.match(await call, { status: 200, text: /good/ })
    t.same([first.requests.length, spare.requests.length], [1, 1])
    t.match(await attemptsOf(s), [{ account: 'spare/one' }, { account: 'famC/main', status: 200 }])
    t.equal((await s.used())[1], 0n)
  }
})

t.test('when the first account fails, the request stays with the second one, and is not sent again', async t => {
  for (const status of [500, 401, 'reset'] as const) {
    const s = await scene(t)
    const { g, key, first, spare, waiting } = s
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => waiting.spare.length === 1)
    const res = waiting.first[0] as ServerResponse
    if (status === 'reset') res.destroy()
    else json(res, {}, status)
    await until(() => g.gateway.pool.members.get('famC/main')?.health.counts.failures === 1)
    sse(waiting.spare[0] as ServerResponse, WELL)
    t.match(await call, { status: 200, text: /good/ })
    t.same([first.requests.length, spare.requests.length], [1, 1])
    const [entry] = await g.settled(key)
    t.same(await s.used(), [0n, BigInt(entry?.['cost_nano'] as string)])
  }
})

t.test('what a second account answers tells the same about its health as any other answer', async t => {
  const s = await scene(t)
  const { g, key, spare, waiting } = s
  const health = g.gateway.pool.members.get('spare/one')?.health
  const invalid = { error: { type: 'invalid_request_error', message: 'x' } }
  const noted: [status: number, body: object, headers: Record<string, string>][] = [
    [400, invalid, {}],
    [429, {}, { 'retry-after': '3600' }],
  ]
  for (const [nth, [status, body, headers]] of noted.entries()) {
    spare.script = (_received, res) => json(res, body, status, headers)
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => spare.requests.length === nth + 1)
    sse(waiting.first[nth] as ServerResponse, WELL)
    t.match(await call, { status: 200, text: /good/ })
    t.equal(health?.counts.failures, nth, 'the request caused the 400')
  }
  const waitMs = health?.waitMs(Date.now()) ?? 0
  t.ok(waitMs > 3_500_000 && waitMs <= 3_600_000, `${waitMs} ms`)
  await g.settled(key)
})

t.test('what the request itself causes does not wait for the second account', async t => {
  const s = await scene(t)
  const { g, key, spare, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  json(waiting.first[0] as ServerResponse, { error: { type: 'invalid_request_error', message: 'x' } }, 400)
  t.match(await call, { status: 400 })
  await spare.last.closed
  t.match(await g.settled(key), [{ type: 'void' }])
})

t.test('an account that is late again and again is out for a time', async t => {
  const s = await scene(t, file => file.set('upstreams.famC.health', { failures: 2 }))
  const { g, key, first, spare, waiting } = s
  for (let nth = 0; nth < 2; nth++) {
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => waiting.spare.length === nth + 1)
    sse(waiting.spare[nth] as ServerResponse, WELL)
    t.equal((await call).status, 200)
  }
  spare.script = (_received, res) => sse(res, WELL)
  t.equal((await g.call(CHAT, { key, body: STREAM })).status, 200)
  t.equal(first.requests.length, 2)
  await g.settled(key)
})

t.test('a client that leaves owes the input if only the second account has begun to work', async t => {
  const mute = await rawUpstream(t, () => {})
  const s = await scene(t, file =>
    file
      .set('upstreams.famC.url', mute.url.replace('http:', 'https:'))
      .set('upstreams.famC.allowPrivate', true)
      .set('upstreams.famC.timeouts', { connect: '30s' }),
  )
  const { g, key, spare, waiting } = s
  const leaving = new AbortController()
  const call = g.call(CHAT, { key, body: STREAM, signal: leaving.signal })
  await until(() => waiting.spare.length === 1)
  leaving.abort()
  await t.rejects(call)
  await spare.last.closed
  const [entry] = await g.settled(key)
  t.match(entry, { type: 'settle' })
  const [first, second] = await s.used()
  t.equal(second, BigInt(entry?.['cost_nano'] as string))
  t.equal(first, 0n, 'the first account never had the request')
  await nothingHeld(t, s)
})

t.test('a reply that is read on for a client that left stays with the first account', async t => {
  const s = await scene(t, file => file.set('upstreams.famC.onDisconnect', 'finish'))
  const { g, key, first, spare, waiting } = s
  const leaving = new AbortController()
  const headers = { 'idempotency-key': 'one' }
  const call = g.call(CHAT, { key, body: STREAM, signal: leaving.signal, headers })
  await until(() => waiting.spare.length === 1)
  leaving.abort()
  await t.rejects(call)
  const { connections } = g.gateway
  await until(() => g.gateway.connections <= connections)
  sse(waiting.spare[0] as ServerResponse, WELL)
  await spare.last.closed
  sse(waiting.first[0] as ServerResponse, WELL)
  t.match(await g.call(CHAT, { key, body: STREAM, headers }), { status: 200, text: /good/ })
  t.same([first.requests.length, spare.requests.length], [1, 1], 'the retry gets the same reply')
  t.match(await g.settled(key), [{ type: 'settle', output_tokens: 5 }])
})

t.test('when both fail, the client gets an error and nothing is held', async t => {
  const s = await scene(t)
  const { g, key, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  json(waiting.spare[0] as ServerResponse, {}, 500)
  await until(() => g.gateway.pool.members.get('spare/one')?.health.counts.failures === 1)
  json(waiting.first[0] as ServerResponse, {}, 500)
  t.match(await call, { status: 502 })
  t.match(await attemptsOf(s), [
    { account: 'spare/one', status: 500 },
    { account: 'famC/main', status: 500 },
  ])
  t.same(await s.used(), [0n, 0n])
  t.match(await g.balance(key), { held: '0' })
})

t.test('a client that leaves while two accounts work cancels both', async t => {
  const s = await scene(t)
  const { g, key, first, spare, waiting } = s
  const leaving = new AbortController()
  const call = g.call(CHAT, { key, body: STREAM, signal: leaving.signal })
  await until(() => waiting.spare.length === 1)
  leaving.abort()
  await t.rejects(call)
  await Promise.all([first.last.closed, spare.last.closed])
  const [entry] = await g.settled(key)
  t.match(await g.balance(key), { held: '0' })
  const [one, other] = await s.used()
  t.equal(one, BigInt(entry?.['cost_nano'] as string))
  t.ok(other > 0n && other <= one, `both have got the input: ${one}, ${other}`)
})

t.test('a reply in one piece, and a key type without `hedge`, wait for the first account', async t => {
  const s = await scene(t)
  const whole = s.g.call(CHAT, { key: s.key, body: BODY })
  await until(() => s.waiting.first.length === 1)
  const off = await scene(t, file => file.set('keyTypes.famC.hedge', undefined))
  const stream = off.g.call(CHAT, { key: off.key, body: STREAM })
  await until(() => off.waiting.first.length === 1)
  // Longer than `after`, by the clock that a hedged request would be under.
  const hedged = await scene(t)
  const other = hedged.g.call(CHAT, { key: hedged.key, body: STREAM })
  await until(() => hedged.waiting.spare.length === 1)
  t.same([s.spare.requests.length, off.spare.requests.length], [0, 0])
  json(s.waiting.first[0] as ServerResponse, REPLY)
  for (const each of [off, hedged]) sse(each.waiting.first[0] as ServerResponse, WELL)
  for (const { status } of await Promise.all([whole, stream, other])) t.equal(status, 200)
})

t.test('no second account is asked if its quota is used up, or beyond `attempts`', async t => {
  const spent = await scene(t, file =>
    file.set('upstreams.spare.accounts', [
      { name: 'one', key: 'spare-secret-0123456789', quota: { credits: 0.000001, per: 'day' } },
    ]),
  )
  const single = await scene(t, file => file.set('keyTypes.famC.retry', { attempts: 1 }))
  const asked: string[] = []
  const { ledger } = spent.g.gateway
  const hold = ledger.hold.bind(ledger)
  ledger.hold = async request => {
    asked.push(request.account)
    return hold(request)
  }
  const one = single.g.call(CHAT, { key: single.key, body: STREAM })
  await until(() => single.waiting.first.length === 1)
  const calls = [one, spent.g.call(CHAT, { key: spent.key, body: STREAM })]
  await until(() => asked.some(account => account.startsWith('quota:spare/one')))
  for (const { waiting } of [spent, single]) sse(waiting.first[0] as ServerResponse, WELL)
  for (const { status } of await Promise.all(calls)) t.equal(status, 200)
  for (const { spare } of [spent, single]) t.equal(spare.requests.length, 0)
})

/** Adds a stage of a plugin with the given hooks, as the code of an object. */
function withStage(t: Test, hooks: string): Edit {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-plugin-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(
    join(folder, 'picky.ts'),
    `import { definePlugin } from 'tollgate/plugin'
export default definePlugin({ name: 'picky', summary: 'x', on: 'inference', needs: [], setup: () => (${hooks}) })`,
  )
  return file => file.insertBefore('router', 'picky').set('plugins', [folder])
}

/** Adds a third account, which answers at once. */
async function withThird(t: Test): Promise<{ readonly third: ScriptedUpstream; readonly edit: Edit }> {
  const third = await ScriptedUpstream.start(t)
  third.script = (_received, res) => sse(res, WELL)
  const accounts = [{ name: 'one', key: 'third-secret-0123456789', quota: { credits: 5, per: 'day' } }]
  const edit: Edit = file =>
    file
      .set('upstreams.third', { url: third.url, speaks: ['chat-completions'], accounts })
      .set('keyTypes.famC.upstream', ['famC', 'spare', 'third'])
  return { third, edit }
}

/** Checks that nothing is held of any quota. */
async function nothingHeld(t: Test, { g, key }: Scene): Promise<void> {
  await g.settled(key)
  t.match(await g.balance(key), { held: '0' })
  t.equal(g.gateway.ledger.live, 0)
  const { redis, keys } = g.gateway.ledger.scripts
  for (const { accounts } of g.gateway.config.upstreams.values()) {
    for (const { name, quotas } of accounts) {
      for (const quota of quotas) {
        const held = await redis.hmget(keys.of(quotaAccount(name, quota)).account, 'rsv', 'n')
        t.notOk(
          held.some(value => value !== null && value !== '0'),
          `${name}: ${held.join()}`,
        )
      }
    }
  }
}

t.test('a stage that refuses a second account, or is too late, leaves nothing held and nothing counted', async t => {
  for (const hook of [
    '({ hedge: () => false })',
    "({ hedge: () => { throw new Error('no') } })",
    '({ hedge: () => new Promise(resolve => setTimeout(resolve, 900)) })',
    '({ hedge: (x, other) => other.upstream.name !== "spare", unhedge: async () => { throw new Error("no") } })',
  ]) {
    const { third, edit } = await withThird(t)
    third.script = () => {}
    const refusing = withStage(t, hook)
    const s = await scene(t, file => refusing(edit(file)).set('limits.stage', '600ms'))
    const { g, key, spare, waiting } = s
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => waiting.first.length === 1)
    // Until the accounts after the first one have been asked, or refused.
    const begun = (name: string): number => g.gateway.pool.members.get(name)?.health.counts.requests ?? 0
    await until(() => begun('spare/one') + begun('third/one') === 2)
    sse(waiting.first[0] as ServerResponse, WELL)
    t.match(await call, { status: 200, text: /good/ }, hook)
    t.equal(spare.requests.length, 0, hook)
    t.equal((await s.used())[1], 0n, hook)
    await nothingHeld(t, s)
  }
})

t.test('a stage that refuses to go on to the second account ends it, and the next one serves', async t => {
  const { third, edit } = await withThird(t)
  const refusing = withStage(t, '({ reroute: x => x.route.account.name !== "spare/one" })')
  const s = await scene(t, file => refusing(edit(file)))
  const { g, key, spare, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  sse(waiting.spare[0] as ServerResponse, WELL)
  t.match(await call, { status: 200, text: /good/ })
  await spare.last.closed
  t.equal(third.requests.length, 1)
  const [entry] = await g.settled(key)
  t.match(entry, { type: 'settle', status: 'ok' })
  const [first, second] = await s.used()
  t.ok(first > 0n && second > 0n, 'the input of both counts')
  await nothingHeld(t, s)
})

t.test('a second account that fails while the request goes over to it is passed over', async t => {
  const slow = withStage(t, '({ reroute: () => new Promise(resolve => setTimeout(resolve, 300)) })')
  const { third, edit } = await withThird(t)
  for (const each of [edit, undefined]) {
    const s = await scene(t, file => slow(each ? each(file) : file))
    const { g, key, waiting } = s
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => waiting.spare.length === 1)
    json(waiting.first[0] as ServerResponse, {}, 500)
    await until(() => g.gateway.pool.members.get('famC/main')?.health.counts.failures === 1)
    json(waiting.spare[0] as ServerResponse, {}, 500)
    t.equal((await call).status, each ? 200 : 502)
    t.equal(third.requests.length, 1)
    const [entry] = await g.settled(key)
    t.same(await s.used(), [0n, 0n])
    await nothingHeld(t, s)
    const account = g.gateway.config.upstreams.get('third')?.accounts[0]
    const [quota] = account?.quotas ?? []
    if (!account || !quota) continue
    const { used } = await g.gateway.ledger.quotaUsed(account.name, quota, Date.now())
    t.equal(used, BigInt(entry?.['cost_nano'] as string))
  }
})

t.test('a second account that cannot be read, or that stalls in its failure, keeps no client waiting', async t => {
  for (const fail of [
    (res: ServerResponse): void => void res.writeHead(500, { 'content-encoding': 'lzma' }).end('{}'),
    (res: ServerResponse): void => void res.writeHead(500).write('{'),
  ]) {
    const s = await scene(t, file => file.set('limits.keepalive', '60s'))
    const { g, key, spare, waiting } = s
    spare.script = (_received, res) => fail(res)
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => g.gateway.pool.members.get('spare/one')?.health.counts.requests === 1)
    await until(() => spare.requests.length === 1)
    sse(waiting.first[0] as ServerResponse, WELL)
    t.match(await call, { status: 200, text: /good/ })
    await nothingHeld(t, s)
  }
})

t.test('hedging takes no retry away: an account that was only cancelled may be asked again', async t => {
  const s = await scene(t)
  const { g, key, spare, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  await until(() => waiting.spare.length === 1)
  spare.script = (_received, res) => sse(res, WELL)
  sse(waiting.first[0] as ServerResponse, 'data: {"error":{"message":"x","type":"server_error"}}\n\n')
  t.match(await call, { status: 200, text: /good/ })
  await nothingHeld(t, s)
})

t.test('the input of a second account counts, even if a stage then refuses it and no other is left', async t => {
  for (const hook of [
    '({ reroute: x => x.route.account.name !== "spare/one" })',
    "({ reroute: () => { throw new Error('no') } })",
  ]) {
    const s = await scene(t, withStage(t, hook))
    const { g, key, first, spare, waiting } = s
    const call = g.call(CHAT, { key, body: STREAM })
    await until(() => waiting.spare.length === 1)
    // The first account is asked once more, since it was only late.
    first.script = (_received, res) => json(res, {}, 500)
    sse(waiting.spare[0] as ServerResponse, WELL)
    t.ok((await call).status >= 500)
    await spare.last.closed
    await nothingHeld(t, s)
    const [one, other] = await s.used()
    t.ok(one > 0n && other > 0n, `${hook}: ${one}, ${other}`)
  }
})

t.test('the first answer does not wait for a slow stage that decides about the second account', async t => {
  const slow = withStage(t, '({ hedge: () => new Promise(resolve => (globalThis.decide = resolve)) })')
  const s = await scene(t, file => slow(file).set('limits.stage', '60s'))
  const { g, key, waiting } = s
  const call = g.call(CHAT, { key, body: STREAM })
  const decide = (): (() => void) | undefined => (globalThis as { decide?: () => void }).decide
  await until(() => decide() !== undefined)
  sse(waiting.first[0] as ServerResponse, WELL)
  t.match(await call, { status: 200, text: /good/ })
  decide()?.()
  await until(() => g.gateway.ledger.live === 0)
  await nothingHeld(t, s)
  t.equal(s.spare.requests.length, 0)
})
