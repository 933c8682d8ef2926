import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { FOR_REQUESTS } from '../../core/client/memory.ts'
import { Reservation, FairBudget } from '../../core/lib/fair-budget.ts'
import { type TestGateway } from '../gateway.ts'
import { RawClient } from '../raw.ts'
import { begun, json, ScriptedUpstream, sse } from '../upstream.ts'
import { edited } from '../gateway-file.ts'
import { DONE, text, usage } from '../stream-events.ts'
import { scene } from '../scene.ts'

/** The memory that requests and replies may take, and who is refused first when it runs out. */

const CHAT = '/v1/chat/completions'
const MODEL = 'acme/famC-5.5'
const REPLY = {
  choices: [{ finish_reason: 'stop', message: { content: 'hello' } }],
  usage: { prompt_tokens: 10, completion_tokens: 5 },
}
const BODY = { model: MODEL, messages: [{ role: 'user', content: 'hi' }] }
const STREAM = text('a') + usage(10, 5) + DONE

async function start(t: Test, memory: string): Promise<{ g: TestGateway; upstream: ScriptedUpstream; key: string }> {
  const { g, upstream } = await scene(t, file => file.set('limits.memory', memory))
  upstream.script = ({ json: asked }, res) => (asked['stream'] === true ? sse(res, STREAM) : json(res, REPLY))
  return { g, upstream, key: await g.key('famC') }
}

/** Sends the first bytes of a large body. Resolves when the gateway has taken memory for them, or refused. */
async function upload(g: TestGateway, key: string, bytes: number): Promise<RawClient> {
  const taken = g.gateway.memory.taken
  const head = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-length: ${bytes + 1000}\r\n\r\n`
  const client = new RawClient(g.gateway.port, `${head}{"model":"${MODEL}","messages":"${'a'.repeat(bytes)}`)
  while (g.gateway.memory.taken < taken + 2 * bytes - 20_000 && client.status === 0)
    await new Promise(resolve => setImmediate(resolve))
  return client
}

t.test('each key may take as much memory as it leaves free, so the key that took the most is refused first', t => {
  const budget = new FairBudget(400)
  const of = (key: string, address = key) => new Reservation(budget, { key, address })
  const [greedy, second, third] = [of('greedy'), of('second'), of('third')]
  t.notOk(greedy.take(151, FOR_REQUESTS), 'requests have three quarters of the budget, of which one key may have half')
  t.ok(greedy.take(150, FOR_REQUESTS))
  t.notOk(greedy.take(1, FOR_REQUESTS))
  t.ok(second.take(75, FOR_REQUESTS))
  t.notOk(second.take(1, FOR_REQUESTS))
  t.ok(third.take(30, FOR_REQUESTS))
  t.ok(second.take(20), 'replies of those that run may have the rest')
  for (const account of [greedy, second, third]) account.close()
  t.equal(budget.taken, 0)
  const neighbours = Array.from({ length: 10 }, (_, index) => of(`key ${index}`, 'one address'))
  while (neighbours.some(account => account.take(10, FOR_REQUESTS)));
  t.equal(budget.taken, 240, 'the keys of one address leave room for others')
  t.ok(of('elsewhere').take(30, FOR_REQUESTS))
  t.end()
})

t.test(
  'without memory, new requests get a 503, first those of the key with the most in flight, and running ones go on',
  async t => {
    const { g, upstream, key } = await start(t, '8MiB')
    const customer = await g.key('famC')
    let finish: () => void = () => {}
    upstream.script = (_received, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write(text('a'))
      finish = () => res.end(STREAM)
    }
    const running = await g.open(CHAT, { key: customer, body: { ...BODY, stream: true } })
    const attackers = [
      await upload(g, key, 1_000_000),
      await upload(g, key, 1_000_000),
      await upload(g, key, 1_000_000),
    ]
    t.strictSame(
      attackers.map(({ status }) => status),
      [0, 503, 503],
    )
    t.match(attackers[1]?.answer ?? '', /retry-after: \d[^]*short of memory/)
    upstream.script = (_received, res) => json(res, REPLY)
    t.equal(
      (await g.call(CHAT, { key: customer, body: { ...BODY, user: 'x'.repeat(100_000) } })).status,
      200,
      'another customer is served',
    )
    finish()
    t.match(await running.text(), /\[DONE\]/)
    for (const { socket } of attackers) socket.destroy()
    await g.settled(key)
    await g.settled(customer)
    t.equal(g.gateway.memory.taken, 0, 'all of it is given back')
  },
)

t.test('a body of many values takes memory for each of them, and more if it is translated', async t => {
  const { g, key } = await start(t, '8MiB')
  const many = { ...BODY, metadata: Array.from({ length: 30_000 }, () => 0) }
  t.equal((await g.call(CHAT, { key, body: many })).status, 200)
  const text = JSON.stringify({
    ...BODY,
    metadata: many.metadata,
    messages: [{ role: 'user', content: many.metadata }],
  })
  t.match(await g.call(CHAT, { key, body: text }), {
    status: 413,
    json: { error: { message: /needs 4 MiB of the gateway's memory, but one request may use at most 3 MiB/ } },
  })
  const famA = await g.key('famA')
  const asked = {
    model: 'acme/famA-medium-5',
    messages: [{ role: 'user', content: 'a'.repeat(400_000) }],
    max_tokens: 1,
  }
  t.not((await g.call(CHAT, { key: famA, body: { ...asked, messages: [{ role: 'user', content: 'a' }] } })).status, 503)
  t.equal((await g.call(CHAT, { key: famA, body: asked })).status, 413, 'a translation takes several copies')
  await g.settled(key)
  t.equal(g.gateway.memory.taken, 0)
})

t.test('values in tool arguments count if they are translated', async t => {
  const { g } = await start(t, '512MiB')
  const call = (values: number): object => ({
    role: 'assistant',
    tool_calls: [
      {
        id: 'call_1',
        type: 'function',
        function: { name: 'f', arguments: `{"a":[${Array.from({ length: values }, () => '{}').join(',')}]}` },
      },
    ],
  })
  const body = (model: string): object => ({
    model,
    max_tokens: 1,
    messages: [{ role: 'user', content: 'x' }, call(200_000), { role: 'tool', tool_call_id: 'call_1', content: 'x' }],
  })
  t.match(await g.call(CHAT, { key: await g.key('famA'), body: body('acme/famA-medium-5') }), {
    status: 400,
    json: { error: { message: /arguments of its calls/ } },
  })
  t.equal((await g.call(CHAT, { key: await g.key('famC'), body: body(MODEL) })).status, 200, 'elsewhere it is a text')
})

t.test('tool arguments may be nested as deep as a request, and escapes hide no depth', async t => {
  const { g, upstream } = await start(t, '512MiB')
  const key = await g.key('famA', 1000n)
  const ask = async (args: string): Promise<number> => {
    const call = `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"${args}"}}]}`
    const messages = `[{"role":"user","content":"x"},${call},{"role":"tool","tool_call_id":"c","content":"x"}]`
    return (await g.call(CHAT, { key, body: `{"model":"acme/famA-medium-5","max_tokens":1,"messages":${messages}}` }))
      .status
  }
  const nested = (levels: number): string => `{\\"a\\":${'['.repeat(levels)}${']'.repeat(levels)}}`
  upstream.script = (_received, res) =>
    json(res, {
      type: 'message',
      role: 'assistant',
      content: [],
      stop_reason: 'end_turn',
      usage: { input_tokens: 1, output_tokens: 1 },
    })
  t.equal(await ask(nested(60)), 200)
  for (const levels of [64, 3000, 60_000]) t.equal(await ask(nested(levels)), 400, `${levels} levels`)
  t.equal(await ask(nested(64).replaceAll('[', '\\u005B')), 400)
  t.equal(await ask(`{\\"a\\":[1${'\\u002c1'.repeat(250_000)}]}`), 400)
  t.equal(
    await ask(`{\\"a\\":\\"${'[,'.repeat(250_000)}\\\\\\"${'{'.repeat(100)}\\\\\\\\\\"}`),
    200,
    'a text holds no values',
  )
})

t.test('a stream whose request was translated takes no memory for the translation while it runs', async t => {
  const { g, upstream } = await start(t, '512MiB')
  const opened =
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":1}}}\n\n'
  const block =
    'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}\n\n'
  const replies = begun(upstream, opened + block)
  const key = await g.key('famA', 1000n)
  const messages = [{ role: 'user', content: 'a'.repeat(1_000_000) }]
  const reply = await g.open(CHAT, {
    key,
    body: { model: 'acme/famA-medium-5', stream: true, max_tokens: 100, messages },
  })
  t.equal(reply.status, 200)
  t.ok(g.gateway.memory.taken < 3_500_000, String(g.gateway.memory.taken))
  replies[0]?.end()
  await reply.text()
  await g.settled(key)
  t.equal(g.gateway.memory.taken, 0)
})

t.test('comments before the first event of a stream take memory', async t => {
  const { g, upstream, key } = await start(t, '8MiB')
  upstream.script = (_received, res) => sse(res, `: ${'a'.repeat(1000)}\n\n`.repeat(4000) + STREAM)
  t.equal((await g.call(CHAT, { key, body: { ...BODY, stream: true } })).status, 503)
  upstream.script = (_received, res) => sse(res, `: ${'a'.repeat(1000)}\n\n`.repeat(100) + STREAM)
  t.match((await g.call(CHAT, { key, body: { ...BODY, stream: true } })).text, /\[DONE\]/)
  await g.settled(key)
  t.equal(g.gateway.memory.taken, 0)
})

t.test('a change of the workers divides the memory when they start, and not before', async t => {
  const { g } = await start(t, '8MiB')
  t.ok(await g.gateway.reload(edited(readFileSync(g.file, 'utf8'), file => file.set('workers', 8))))
  t.equal(g.gateway.memory.total, 8 * 2 ** 20)
})

t.test('large events, large replies and compressed ones count at full size, and affect no other key', async t => {
  const { g, upstream, key } = await start(t, '8MiB')
  const large = `data: {"choices":[{"delta":{"content":"${'a'.repeat(4_000_000)}"}}]}\n\n`
  const reply = JSON.stringify({
    ...REPLY,
    choices: [{ finish_reason: 'stop', message: { content: 'a'.repeat(4_000_000) } }],
  })
  upstream.script = ({ json: asked }, res) => {
    if (asked['user'] === 'other') sse(res, STREAM)
    else if (asked['user'] === 'event') sse(res, large)
    else if (asked['user'] === 'reply') json(res, reply)
    else if (asked['user'] === 'packed')
      res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(gzipSync(reply))
    else res.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end(gzipSync(large))
  }
  for (const [user, stream] of [
    ['event', true],
    ['reply', false],
    ['packed', false],
    ['packed events', true],
  ] as const)
    t.match(
      await g.call(CHAT, { key, body: { ...BODY, stream, user } }),
      { status: 503, json: { error: { message: /short of memory/ } } },
      user,
    )
  upstream.script = (_received, res) => sse(res, `data: {"choices":[{"delta":{"content":"a"}}]}\n\n${large}`)
  t.match(
    (await g.call(CHAT, { key, body: { ...BODY, stream: true } })).text,
    /"a"[^]*"error"/,
    'a stream that has begun ends with an error',
  )
  upstream.script = (_received, res) => sse(res, STREAM)
  t.match((await g.call(CHAT, { key: await g.key('famC'), body: { ...BODY, stream: true } })).text, /\[DONE\]/)
  await g.settled(key)
  t.equal(g.gateway.memory.taken, 0)
})
