import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { NANO } from '../../core/money/credits.ts'
import type { HoldAnswer } from '../../core/ledger/hold.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { timedId } from '../../core/lib/ids.ts'
import { operations, startGateway, until } from '../gateway.ts'
import { json, rawUpstream, sse } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { matchAll } from '../matching.ts'
import { ended, text } from '../stream-events.ts'
import { typed } from '../stream-events.ts'
import { scene } from '../scene.ts'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'
/** The model in this file does not reason. */
const plain: Edit = file => file.model('famC', 'acme/famC-5.5', { reasoning: 'none' })
const reply = (usage: unknown): object => ({
  choices: [{ message: { content: 'Hello there' }, finish_reason: 'stop' }],
  usage,
})

t.test('500 parallel requests on an allocation that pays for 10 admit exactly 10', async t => {
  const { g, upstream } = await scene(t)
  let release = (): void => {}
  const gate = new Promise<void>(resolve => (release = resolve))
  upstream.script = async (_received, res) => {
    await gate
    json(res, reply({ prompt_tokens: 10, completion_tokens: 10 }))
  }
  // The hold of one such request: its body at two bytes per token, and its 100 output tokens.
  const held = Math.ceil(JSON.stringify(BODY).length / 2) * 3000 + 100 * 15_000
  const key = await g.keyOfNano('famC', BigInt(held * 10))
  const calls = Array.from({ length: 500 }, () => g.call(CHAT, { key, body: BODY }))
  const refused: number[] = []
  for (const call of calls) void call.then(answer => answer.status === 429 && refused.push(answer.status))
  await until(() => refused.length + upstream.requests.length >= 500)
  t.equal((await g.balance(key)).exact.held, String(held * 10))
  release()
  const statuses = (await Promise.all(calls)).map(({ status }) => status)
  t.equal(statuses.filter(status => status === 200).length, 10)
  t.equal(upstream.requests.length, 10)
  t.equal((await g.settled(key)).length, 10)
})

t.test('every kind of reported usage is charged as reported', async t => {
  const { g, upstream } = await scene(t)
  const cases: [string, string, string, unknown, Record<string, unknown>][] = [
    [
      'reasoning that the completion count leaves out',
      'famC',
      CHAT,
      {
        prompt_tokens: 12,
        completion_tokens: 2,
        total_tokens: 354,
        completion_tokens_details: { reasoning_tokens: 340 },
      },
      { input_tokens: 12, output_tokens: 342, reasoning_tokens: 340 },
    ],
    [
      'reasoning inside the output',
      'famC',
      '/v1/responses',
      { input_tokens: 1875, output_tokens: 695, total_tokens: 2570, output_tokens_details: { reasoning_tokens: 397 } },
      { input_tokens: 1875, output_tokens: 695, reasoning_tokens: 397 },
    ],
    [
      'cache reads and writes inside the input',
      'famC',
      CHAT,
      {
        prompt_tokens: 100,
        completion_tokens: 1,
        prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 30 },
      },
      {
        input_tokens: 100,
        cache_read_tokens: 60,
        cache_creation_5m_tokens: 30,
        cost_nano: String(10 * 3000 + 60 * 300 + 30 * 3750 + 15_000),
      },
    ],
    [
      'more cached than input: the cached part is beside it',
      'famC',
      CHAT,
      { prompt_tokens: 10, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 60 } },
      { input_tokens: 70, cache_read_tokens: 60 },
    ],
    [
      'cache classes outside the input',
      'famA',
      '/v1/messages',
      {
        input_tokens: 5,
        cache_read_input_tokens: 100,
        cache_creation_input_tokens: 30,
        cache_creation: { ephemeral_5m_input_tokens: 10, ephemeral_1h_input_tokens: 20 },
        output_tokens: 7,
      },
      {
        input_tokens: 135,
        cache_creation_1h_tokens: 20,
        cost_nano: String(5 * 3000 + 100 * 300 + 10 * 3750 + 20 * 6000 + 7 * 15_000),
      },
    ],
    [
      'a compaction: the passes are billed together',
      'famA',
      '/v1/messages',
      {
        input_tokens: 612,
        output_tokens: 2819,
        iterations: [
          { input_tokens: 60_385, output_tokens: 522 },
          { input_tokens: 612, output_tokens: 2819 },
        ],
      },
      { input_tokens: 60_997, output_tokens: 3341 },
    ],
    [
      'more output than was allowed, by what tools at the provider may need',
      'famC',
      CHAT,
      { prompt_tokens: 1, completion_tokens: 4096 },
      { output_tokens: 4096 },
    ],
    ['zeros are no usage', 'famC', CHAT, { prompt_tokens: 0, completion_tokens: 0 }, { usage_source: 'estimated' }],
  ]
  for (const [name, type, path, usage, expected] of cases) {
    upstream.script = (_received, res) =>
      json(
        res,
        path === '/v1/messages'
          ? { type: 'message', content: [], usage }
          : path === CHAT
            ? reply(usage)
            : { object: 'response', status: 'completed', output: [], usage },
      )
    const key = await g.key(type)
    const answer = await g.call(path, {
      key,
      body: { ...BODY, input: 'x', model: type === 'famA' ? 'acme/famA-medium-5' : 'acme/famC-5.5' },
    })
    t.equal(answer.status, 200, name)
    matchAll(t, await g.settled(key), [{ type: 'settle', status: 'ok', quarantined: false, ...expected }], name)
  }
})

t.test('missing usage is estimated and marked; implausible usage is estimated and quarantined', async t => {
  const { g, upstream } = await scene(t)
  const cases: [string, unknown, boolean, Record<string, unknown>?][] = [
    ['missing', undefined, false],
    ['null', null, false],
    ['the output is not told', { prompt_tokens: 10 }, false, { input_tokens: 10 }],
    ['the input is not told', { prompt_tokens: null, completion_tokens: 70 }, false, { output_tokens: 70 }],
    ['negative', { prompt_tokens: -5, completion_tokens: 5 }, false, { output_tokens: 5 }],
    ['fractional', { prompt_tokens: 1.5, completion_tokens: 5 }, false, { output_tokens: 5 }],
    [
      'text',
      { prompt_tokens: '10', completion_tokens: 5 },
      false,
      { input_tokens: 10, output_tokens: 5, usage_source: 'upstream' },
    ],
    ['beyond exact numbers', { prompt_tokens: 2 ** 60, completion_tokens: 5 }, false, { output_tokens: 5 }],
    [
      'far more output than the request allowed',
      { prompt_tokens: 5, completion_tokens: 1_000_000 },
      true,
      // The output that there was time for.
      { input_tokens: 5, output_tokens: Number },
    ],
  ]
  for (const [name, usage, quarantined, told] of cases) {
    upstream.script = (_received, res) => json(res, reply(usage))
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    const [entry] = await g.settled(key)
    const estimate = {
      input_tokens: Math.ceil(JSON.stringify(BODY).length / 3),
      output_tokens: Math.ceil('Hello there'.length / 3),
    }
    t.equal(
      (await g.gateway.ledger.reads.summary({ account: await g.id(key) }, Date.now())).quarantined,
      quarantined ? 1 : 0,
      'counted',
    )
    t.match(entry, { type: 'settle', usage_source: 'estimated', quarantined, ...estimate, ...told }, name)
  }
  upstream.script = (_received, res) =>
    json(res, { type: 'message', content: [], usage: { input_tokens: 50_000_000, output_tokens: 1 } })
  const key = await g.key('famA')
  await g.call('/v1/messages', { key, body: { ...BODY, model: 'acme/famA-medium-5' } })
  t.match(
    await g.settled(key),
    [{ quarantined: true, usage_source: 'estimated' }],
    'more than the context window holds',
  )
})

t.test('the output that a messages stream reports at its start is not taken for the final output', async t => {
  const { g, upstream } = await scene(t)
  const events = [
    { type: 'message_start', message: { type: 'message', content: [], usage: { input_tokens: 10, output_tokens: 1 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x'.repeat(300) } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
    { type: 'message_stop' },
  ]
  upstream.script = (_received, res) => sse(res, events.map(typed).join(''))
  const key = await g.key('famA')
  await g.call('/v1/messages', { key, body: { ...BODY, model: 'acme/famA-medium-5', stream: true } })
  matchAll(t, await g.settled(key), [{ status: 'ok', usage_source: 'estimated', input_tokens: 10, output_tokens: 100 }])
})

t.test('a failed request costs nothing and leaves an entry with the reason', async t => {
  const { g, upstream } = await scene(t)
  const key = await g.key('famC')
  const failures: ((res: Parameters<typeof json>[0]) => void)[] = [
    res => json(res, { error: { message: 'no' } }, 500),
    res => json(res, { error: { message: 'no' } }, 400),
    res => json(res, { error: { message: 'no' } }, 200),
    res => json(res, '<html>', 200, { 'content-type': 'text/html' }),
    res => void res.destroy(),
    res => sse(res, ''),
    res => sse(res, 'data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n'),
  ]
  for (const fail of failures) {
    upstream.script = (_received, res) => fail(res)
    t.ok((await g.call(CHAT, { key, body: { ...BODY, stream: true } })).status >= 400)
  }
  const entries = await g.settled(key)
  t.equal(entries.length, failures.length, 'one entry for each request')
  for (const entry of entries) t.match(entry, { type: 'void', status: 'failed', cost_nano: '0' })
  t.match(await g.balance(key), { used: 0, held: 0, balance: 10 })
})

t.test('a client that leaves a model without reasoning cancels the upstream and pays for what it received', async t => {
  const { g, upstream } = await scene(t, plain)
  const key = await g.key('famC')
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(`data: {"choices":[{"delta":{"content":"${'x'.repeat(300)}"}}]}\n\n`)
  }
  const leave = new AbortController()
  const response = await g.open(CHAT, { key, body: { ...BODY, stream: true }, signal: leave.signal })
  await (response.body as ReadableStream).getReader().read()
  leave.abort()
  await upstream.last.closed
  const [entry] = await g.settled(key)
  t.match(entry, {
    type: 'settle',
    status: 'client_gone',
    usage_source: 'estimated',
    output_tokens: 100,
    client_disconnected: true,
  })
})

t.test('a hold without renewal is reaped at its floor, and a late settlement charges the difference', async t => {
  const g = await startGateway(t, {
    edit: file => file.set('ledger.lease', '600ms').set('ledger.reapEvery', '1h'),
  })
  const { ledger } = g.gateway
  const renewals = operations(g, 'renew')
  const key = await g.key('famC', 1n)
  const account = await g.id(key)
  const notes = { endpoint: CHAT, model: 'm', stream: true }
  const [lost, neverHeld] = [timedId(Date.now()), timedId(Date.now())]
  const hold = (): Promise<HoldAnswer> =>
    ledger.hold({
      account,
      id: lost,
      amount: 1000n,
      least: 1000n,
      version: '1',
      notes,
      floor: () => ({ charge: 70n, notes: {} }),
    })
  const answer = await hold()
  if (answer.kind !== 'held') throw new Error(answer.kind)
  t.equal((await hold()).kind, 'held', 'the same id again changes nothing')
  t.equal((await ledger.reads.balance(account)).held, 1000n)
  // A lease has three renewals. At the fourth, a hold that was not renewed would be older than its lease.
  await until(() => renewals.length >= 4)
  t.equal(await ledger.background.reap(), 0, 'a live hold is never reaped, however old')
  await forget(ledger, lost)
  await until(async () => (await ledger.background.reap()) > 0)
  t.match(await ledger.reads.balance(account), { held: 0n, settled: 70n })
  ledger.settle(answer.hold, { charge: 100n, kind: 'settle', notes })
  ledger.settle(answer.hold, { charge: 100n, kind: 'settle', notes })
  await until(async () => (await ledger.reads.balance(account)).settled === 100n)
  ledger.settle({ account, id: neverHeld }, { charge: 5n, kind: 'settle', notes })
  await until(async () => (await ledger.reads.balance(account)).settled === 105n)
  const kinds = (await ledger.reads.history({ account: account }, { count: 10 })).map(entry => entry.kind)
  t.same(kinds, ['orphan', 'late'])
  t.same((await audit(ledger, [account])).drifts, [])
})

/** What kill -9 does to a hold: no gateway renews it any more. */
async function forget(ledger: Ledger, id: string): Promise<void> {
  const { scripts } = ledger
  const run = scripts.run.bind(scripts)
  scripts.run = operation =>
    operation.name === 'renew' && operation.args[1] === id ? Promise.resolve(['ok']) : run(operation)
  await turn()
}

t.test('the audit finds every kind of drift', async t => {
  const g = await startGateway(t)
  const { ledger } = g.gateway
  const account = await g.id(await g.key('famC', 1n))
  t.same((await audit(ledger)).drifts, [])
  await ledger.scripts.redis.hincrby(ledger.scripts.keys.of(account).account, 'bal', -1)
  t.match((await audit(ledger)).drifts, [{ account, findings: [/settled = the sum of the recorded/] }])
})

t.test('the weekly quota of the editor account applies to all its keys together', async t => {
  const { g, upstream } = await scene(t, file =>
    file.set('upstreams.editor.accounts.0.quota.credits', 0.0035).stage('key-info', { quotas: 'all' }),
  )
  upstream.script = (_received, res) => json(res, reply({ prompt_tokens: 100, completion_tokens: 100 }))
  const [one, other] = [await g.key('editor'), await g.key('editor')]
  const body = { ...BODY, model: 'acme/famB-4.6' }
  t.equal((await g.call(CHAT, { key: one, body })).status, 200)
  await g.settled(one)
  const info = (await g.call('/api/v1/key-info', { key: other })).json
  t.match(info.weekly_quota, { limit: 0.0035, used: 0.0018, remaining: 0.0017 })
  t.match(new Date(info.weekly_quota.reset_at).getUTCDay(), 1, 'weeks begin on Monday')
  const answer = await g.call(CHAT, { key: other, body: { ...body, max_tokens: 200 } })
  t.match(answer, { status: 429, json: { error: { type: 'rate_limit_exceeded', message: /until 20/ } } })
  matchAll(t, await g.settled(other), [
    { type: 'void', status: 'failed', error_code: 'quota_exhausted', cost_nano: '0' },
  ])
  t.equal((await g.balance(other)).balance, 10)
  t.match(await audit(g.gateway.ledger), { accounts: 2, drifts: { length: 0 } })
})

t.test('disabling a key takes effect at the next request, cached or not', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, reply({ prompt_tokens: 1, completion_tokens: 1 }))
  const key = await g.key('famC')
  const id = await g.id(key)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  await g.gateway.keys.changes.disable(id)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 401)
  await g.gateway.keys.changes.enable(id)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  const { secret } = await g.gateway.keys.changes.rotate(id)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 401, 'a rotated secret is dead')
  t.equal((await g.call(CHAT, { key: secret, body: BODY })).status, 200)
  t.equal((await g.settled(secret)).length, 3, 'history and balance stay')
})

t.test('a key type limits the concurrent requests of one key', async t => {
  const upstream = await rawUpstream(t, () => {})
  const g = await startGateway(t, {
    upstream: upstream.url,
    edit: file => file.setAll('keyTypes.famC', { limits: { concurrency: 2, queue: '0s' } }),
  })
  const key = await g.key('famC')
  const leave = new AbortController()
  const running = [1, 2].map(() => g.call(CHAT, { key, body: BODY, signal: leave.signal }).catch(() => undefined))
  await until(() => upstream.requests.length >= 2)
  const answer = await g.call(CHAT, { key, body: BODY })
  t.match(answer, { status: 429, json: { error: { code: 'rate_limit_exceeded' } } })
  leave.abort()
  await Promise.all(running)
  for (const socket of upstream.sockets) socket.destroy()
  t.equal((await g.settled(key)).length, 2)
})

t.test('without the store new requests are refused, and admitted again when it is back', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => json(res, reply({ prompt_tokens: 1, completion_tokens: 1 }))
  const key = await g.key('famC', 1n)
  await g.call(CHAT, { key, body: BODY })
  await g.settled(key)
  const { redis } = g.gateway.store
  const back = new Promise(resolve => redis.once('ready', resolve))
  redis.disconnect(true)
  const answer = await g.call(CHAT, { key, body: BODY })
  t.match(answer, { status: 503, json: { error: { type: 'server_error', code: 'unavailable' } } })
  t.ok(Number(answer.headers.get('retry-after')) >= 1)
  t.equal((await g.call('/health')).status, 200, 'the process lives')
  await back
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  t.equal((await g.balance(key)).exact.granted, String(NANO))
  await g.settled(key)
})

t.test('a client that closes after it has read the end pays the reported usage', async t => {
  const { g, upstream } = await scene(t)
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(
      `data: {"choices":[{"delta":{"content":"${'x'.repeat(3000)}"},"finish_reason":"stop"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20}}\n\ndata: [DONE]\n\n`,
    )
  }
  const key = await g.key('famC')
  const leave = new AbortController()
  const response = await g.open(CHAT, { key, body: { ...BODY, stream: true }, signal: leave.signal })
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  for (let text = ''; !text.includes('[DONE]');) text += Buffer.from((await reader.read()).value ?? []).toString()
  leave.abort()
  matchAll(t, await g.settled(key), [{ status: 'ok', usage_source: 'upstream', input_tokens: 10, output_tokens: 20 }])
})

t.test('both holds of an exchange through an account with a quota are renewed', async t => {
  const { g, upstream } = await scene(t, file => file.set('ledger.lease', '1500ms').set('ledger.reapEvery', '20ms'))
  let end = (): void => {}
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write(text('x'))
    end = () => res.end(ended(10, 20))
  }
  const key = await g.key('editor')
  const answer = g.call(CHAT, { key, body: { ...BODY, model: 'acme/famB-4.6', stream: true } })
  // A lease has three renewals, so a hold that was not renewed would have been reaped by the fourth.
  const renewals = operations(g, 'renew')
  await until(() => renewals.length >= 8)
  t.equal(new Set(renewals).size, 2)
  t.not((await g.balance(key)).exact.held, '0')
  end()
  await answer
  matchAll(t, await g.settled(key), [{ type: 'settle', status: 'ok' }])
  t.same((await audit(g.gateway.ledger)).drifts, [])
})

t.test('reported usage beyond all context windows is quarantined even for models without a known window', async t => {
  const { g, upstream } = await scene(t)
  for (const usage of [
    { prompt_tokens: 1e9, completion_tokens: 1 },
    { prompt_tokens: 1, completion_tokens: 2e15 },
  ]) {
    upstream.script = (_received, res) => json(res, reply(usage))
    const key = await g.key('famC')
    t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    matchAll(t, await g.settled(key), [{ type: 'settle', quarantined: true, usage_source: 'estimated' }])
  }
})

t.test('a client that leaves before its request was sent, or during an upstream failure, pays nothing', async t => {
  const upstream = await rawUpstream(
    t,
    socket =>
      void socket.write('HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"error"'),
  )
  const g = await startGateway(t, { upstream: upstream.url })
  const key = await g.key('famC')
  const leave = new AbortController()
  const call = g.call(CHAT, { key, body: BODY, signal: leave.signal }).catch(() => undefined)
  await until(() => upstream.requests.length > 0)
  await turn()
  leave.abort()
  await call
  matchAll(t, await g.settled(key), [{ type: 'void', cost_nano: '0' }])
})

t.test("the upstream's report of the operator's cost is recorded, and shown to no customer", async t => {
  const { g, upstream } = await scene(t, file => file.set('upstreams.famC.dollar', 2))
  const key = await g.key('famC')
  upstream.script = (_received, res) =>
    json(res, reply({ prompt_tokens: 1, completion_tokens: 2, cost_in_usd_ticks: 1_721_250 }))
  await g.call(CHAT, { key, body: BODY })
  t.notMatch(JSON.stringify(await g.settled(key)), '344250')
  const [entry] = await g.gateway.ledger.reads.history({ account: await g.id(key) }, { count: 1 })
  t.equal(entry?.notes.cost, '344250', 'a tick is a ten-billionth of a dollar, and a dollar two credits here')
  t.equal(g.gateway.meter.belowCost, 1)
})
