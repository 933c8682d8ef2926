import t, { type Test } from 'tap'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { RawClient } from '../raw.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'
import { typed } from '../stream-events.ts'

/** Small inputs that grow large: what a client or an upstream multiplies is refused before it is built. */

const CHAT = '/v1/chat/completions'
const FAMA = 'acme/famA-medium-5'
const MESSAGE = {
  type: 'message',
  role: 'assistant',
  content: [{ type: 'text', text: 'a' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 1, output_tokens: 1 },
}
const CHUNK = {
  id: 'c',
  object: 'chat.completion.chunk',
  model: 'm',
  choices: [{ index: 0, delta: { content: 'a' }, finish_reason: null }],
}
const END =
  'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'

async function start(t: Test, edit: Edit = file => file): Promise<{ g: TestGateway; upstream: ScriptedUpstream }> {
  const upstream = await ScriptedUpstream.start(t)
  return { g: await startGateway(t, { upstream: upstream.url, edit }), upstream }
}

t.test(
  'a schema that repeats its parts by references is refused if it would become several times as large',
  async t => {
    const { g, upstream } = await start(t)
    upstream.script = (_received, res) => json(res, MESSAGE)
    const key = await g.key('famA', 1000n)
    const ask = async (levels: number, size: number): Promise<number> => {
      // Each level contains all those below it, and refers to the next.
      const path = (level: number): string => `#/properties${'/p/properties'.repeat(level)}/p`
      let schema: object = { type: 'object', description: 'é'.repeat(size), properties: {} }
      for (let level = levels; level > 0; level--)
        schema = { ...(level < levels && { $ref: path(level) }), type: 'object', properties: { p: schema } }
      const tool = {
        type: 'function',
        function: { name: 'f', parameters: { $ref: path(0), type: 'object', properties: { p: schema } } },
      }
      const body = { model: FAMA, max_tokens: 1, messages: [{ role: 'user', content: 'x' }], tools: [tool] }
      return (await g.call(CHAT, { key, body })).status
    }
    t.equal(await ask(3, 10), 200)
    const { length } = upstream.requests
    t.equal(await ask(25, 30_000), 400)
    t.equal(await ask(25, 3_000_000), 400, 'on the thread for long jobs as well')
    t.equal(upstream.requests.length, length)
  },
)

t.test('ids are short, and only so many ids that a reply stores at its provider are remembered', async t => {
  const { g, upstream } = await start(t)
  const key = await g.key('famC', 1000n)
  const RESPONSES = '/v1/responses'
  const body = (id: string): object => ({ model: 'acme/famC-5.5', input: [{ type: 'item_reference', id }] })
  t.match(await g.call(RESPONSES, { key, body: body('x'.repeat(513)) }), {
    status: 400,
    json: { error: { message: /more than 512 characters/ } },
  })
  const output = Array.from({ length: 3000 }, (_, index) => ({ type: 'reasoning', id: `rs_${index}`, summary: [] }))
  upstream.script = (_received, res) =>
    json(res, {
      id: 'r',
      object: 'response',
      status: 'completed',
      output,
      usage: { input_tokens: 1, output_tokens: 1 },
    })
  t.equal((await g.call(RESPONSES, { key, body: { model: 'acme/famC-5.5', input: 'x' } })).status, 200)
  t.equal((await g.call(RESPONSES, { key, body: body('rs_990') })).status, 200)
  t.equal((await g.call(RESPONSES, { key, body: body('rs_1001') })).status, 400)
  await g.settled(key)
})

t.test('a body in thousands of tiny chunks is refused', async t => {
  const { g } = await start(t)
  const head = `POST ${CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${await g.key('famC')}\r\ntransfer-encoding: chunked\r\n\r\n`
  const client = new RawClient(g.gateway.port, head)
  client.send('1\r\n{\r\n' + '1\r\n \r\n'.repeat(5000))
  await client.closed
  t.equal(client.status, 400)
  t.match(client.answer, /chunks of the body are too small/)
})

t.test('a stream of very many events or parts fails if its client asked for a JSON reply', async t => {
  const { g, upstream } = await start(t)
  const key = await g.key('famA', 1000n)
  upstream.script = (_received, res) => sse(res, 'data: {}\n\n'.repeat(260_000))
  t.equal(
    (await g.call(CHAT, { key, body: { model: FAMA, max_tokens: 1, messages: [{ role: 'user', content: 'x' }] } }))
      .status,
    502,
  )
  const opened = typed({ type: 'message_start', message: { ...MESSAGE, content: [] } })
  const parts = Array.from({ length: 21_000 }, (_, index) =>
    typed({ type: 'content_block_start', index, content_block: { type: 'text', text: 'a' } }),
  )
  upstream.script = (_received, res) => sse(res, opened + parts.join(''))
  const { text } = await g.call(CHAT, {
    key,
    body: { model: FAMA, stream: true, max_tokens: 1, messages: [{ role: 'user', content: 'x' }] },
  })
  t.match(text, /"error"/)
  await g.settled(key)
})

t.test('an event of very many values fails its stream, and no other', async t => {
  const { g, upstream } = await start(t, file => file.set('limits.memory', '8GiB'))
  const key = await g.key('famC', 1000n)
  const ask = (): Promise<{ status: number; text: string }> =>
    g.call(CHAT, { key, body: { model: 'acme/famC-5.5', stream: true, messages: [{ role: 'user', content: 'x' }] } })
  upstream.script = (_received, res) =>
    sse(res, `data: ${JSON.stringify(CHUNK)}\n\ndata: {"usage":[${'{},'.repeat(400_000)}{}]}\n\n${END}`)
  t.match((await ask()).text, /"error"/)
  upstream.script = (_received, res) => sse(res, `${': \n\n'.repeat(20_000)}data: ${JSON.stringify(CHUNK)}\n\n${END}`)
  t.match((await ask()).text, /\[DONE\]/, 'comments are passed over')
  await g.settled(key)
})

t.test('a header of the upstream that clients would refuse does not pass', async t => {
  const { g, upstream } = await start(t)
  upstream.script = (_received, res) =>
    json(
      res,
      {
        choices: [{ finish_reason: 'stop', message: { content: 'a' } }],
        usage: { prompt_tokens: 1, completion_tokens: 1 },
      },
      200,
      {
        'cache-control': 'x'.repeat(8000),
      },
    )
  const { status, headers } = await g.call(CHAT, {
    key: await g.key('famC'),
    body: { model: 'acme/famC-5.5', messages: [] },
  })
  t.equal(status, 200)
  t.equal(headers.get('cache-control'), null)
})

t.test('as many requests of a key wait as may run at a time; one more is refused at once', async t => {
  const { g, upstream } = await start(t, file =>
    file.setAll('keyTypes.famC', { formats: ['chat-completions'], limits: { concurrency: 1, queue: '10s' } }),
  )
  const held: (() => void)[] = []
  upstream.script = (_received, res) =>
    void held.push(() =>
      json(res, {
        choices: [{ finish_reason: 'stop', message: { content: 'a' } }],
        usage: { prompt_tokens: 1, completion_tokens: 1 },
      }),
    )
  const key = await g.key('famC')
  const ask = (): Promise<{ status: number }> => g.call(CHAT, { key, body: { model: 'acme/famC-5.5', messages: [] } })
  const first = ask()
  await until(() => held.length === 1)
  const others = [ask(), ask()]
  t.equal((await Promise.race(others)).status, 429)
  held[0]?.()
  await until(() => held.length === 2)
  held[1]?.()
  t.strictSame(
    [(await first).status, ...(await Promise.all(others)).map(({ status }) => status).sort()],
    [200, 200, 429],
  )
  await g.settled(key)
})

t.test("one address asks the customers' page about keys at most 120 times a minute", async t => {
  const began = Date.now()
  const g = await startGateway(t, { environment: { now: () => began } })
  const key = await g.key('famC')
  const asked = await Promise.all(Array.from({ length: 150 }, () => g.call('/page/settings', { key })))
  t.equal(asked.filter(({ status }) => status === 200).length, 120)
  const refused = asked.find(({ status }) => status !== 200)
  t.match(refused, { status: 429, json: { error: { message: /asks about keys too often/ } } })
  t.ok(Number(refused?.headers.get('retry-after')) > 0)
  t.match(await g.call('/page/settings'), { status: 200, json: { key: null } }, 'the page itself opens')
})
