import OpenAI from 'openai'
import t from 'tap'
import type { Edit } from '../gateway-file.ts'
import { type Answer, startGateway, type TestGateway } from '../gateway.ts'
import { families, replyTo } from '../session-provider.ts'
import { json, type Received, ScriptedUpstream, sse } from '../upstream.ts'

/** A responses client asks for a compaction: the provider makes it, or the gateway does, with one request to the model. */

const edit: Edit = file =>
  families('medium', [
    { id: 'mix', upstream: ['native', 'famA'], price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
    { id: 'n', upstream: 'native', price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
  ])(
    file.set('upstreams.native', {
      url: upstream.url,
      speaks: ['responses'],
      compaction: 'native',
      accounts: [{ name: 'n1', key: 'k1' }, { name: 'n2', key: 'k2' }], // prettier-ignore
    }),
  )

let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  g = await startGateway(t, { upstream: upstream.url, edit })
})

const COMPACT = '/v1/responses/compact'
const TRIGGER = { type: 'compaction_trigger' }
const tools = [
  { type: 'function', name: 'w', parameters: { type: 'object', properties: {} }, strict: false },
  { type: 'web_search' },
]
const history = [
  { role: 'user', content: 'count the files' },
  { type: 'function_call', call_id: 'c1', name: 'w', arguments: '{}' },
  { type: 'function_call_output', call_id: 'c1', output: 'a '.repeat(4000) },
  { type: 'function_call', call_id: 'c2', name: 'w', arguments: '{}' },
  { type: 'function_call_output', call_id: 'c2', output: 'b '.repeat(4000) },
  { role: 'assistant', content: 'three' },
  { role: 'user', content: 'and now?' },
]

const said = 'They counted three files.'
/** The reply of each provider, with some text. */
const replies =
  (text: string) =>
  (received: Received): object =>
    replyTo(received, { id: '1', text })
t.beforeEach(() => {
  upstream.script = (received, res) => json(res, replies(said)(received))
})

const ask = (key: string, model: string, input: unknown, more: object = {}, path = '/v1/responses'): Promise<Answer> =>
  g.call(path, { key, body: { model, input, tools, store: false, ...more } })

const MODELS = ['a', 'b', 'c']

/** The parsed events of a stream. */
const eventsOf = ({ text }: Answer): Record<string, any>[] =>
  [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => JSON.parse(data))

for (const model of MODELS) {
  t.test(`a compaction trigger makes one item that every family accepts later (${model})`, async t => {
    const key = await g.key('famC')
    for (const stream of [false, true]) {
      const answer = await ask(key, model, [...history, TRIGGER], { stream })
      t.equal(answer.status, 200)
      const sent = upstream.last.body
      t.match(sent, /Summarise this conversation/)
      t.match(sent, /count the files/)
      t.notMatch(sent, 'compaction_trigger')
      t.notMatch(sent, 'web_search')
      t.match(sent, /"tool_choice":(?:"none"|\{"type":"none"\})/, 'the model may not call tools')
      const events = stream ? eventsOf(answer) : []
      if (stream) {
        t.strictSame(
          events.map(({ type }) => type),
          ['created', 'in_progress', 'output_item.added', 'output_item.done', 'completed'].map(
            name => `response.${name}`,
          ),
        )
        t.strictSame(
          events.map(({ sequence_number }) => sequence_number),
          [0, 1, 2, 3, 4],
        )
        t.strictSame(events[3]?.['item'], events[4]?.['response'].output[0])
      }
      const reply = stream ? events[4]?.['response'] : answer.json
      t.match(reply, { object: 'response', status: 'completed', usage: { input_tokens: 100, output_tokens: 10 } })
      t.equal(reply.output.length, 1)
      const [item] = reply.output
      t.match(item, { type: 'compaction', id: /^cmp_/ })
      for (const next of [...MODELS, 'n']) {
        const later = await ask(key, next, [
          { role: 'user', content: 'first' },
          item,
          { role: 'user', content: 'go on' },
        ])
        t.equal(later.status, 200, next)
        t.match(upstream.last.body, said, 'the summary is a message')
        t.notMatch(upstream.last.body, /tollgate|"compaction"/)
      }
    }
    const entries = await g.settled(key)
    t.equal(entries.length, 10)
    t.equal(entries.filter(({ compaction }) => compaction === true).length, 2, 'compactions are marked')
    t.equal(new Set(entries.map(({ cost_nano }) => cost_nano)).size, 1, 'and cost what their tokens cost')
  })
}

t.test('the endpoint for compactions repeats the user’s messages before the item', async t => {
  const key = await g.key('famC')
  const openai = new OpenAI({ apiKey: key, baseURL: `${g.url}/v1`, maxRetries: 0 })
  for (const model of MODELS) {
    const compacted = await openai.responses.compact({ model, input: history as never, instructions: 'Be brief.' })
    t.match(compacted, {
      object: 'response.compaction',
      usage: { input_tokens: 100, output_tokens: 10, total_tokens: 110 },
    })
    t.strictSame(
      compacted.output.map(({ type }) => type),
      ['message', 'message', 'compaction'],
    )
    const again = await openai.responses.create({ model, store: false, input: [...compacted.output, { role: 'user', content: 'go on' }] as never }) // prettier-ignore
    t.equal(again.output_text, said)
    t.match(upstream.last.body, /count the files.*and now\?.*They counted three files/)
  }
  t.equal((await g.settled(key)).length, 6)
})

/** The reply of each provider, cut off at its output limit. */
const cutOff = (received: Received): object =>
  JSON.parse(
    JSON.stringify(replies(said)(received))
      .replace('"end_turn"', '"max_tokens"')
      .replace('"finish_reason":"stop"', '"finish_reason":"length"')
      .replace('"status":"completed","error":null,"incomplete_details":null', '"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}'), // prettier-ignore
  ) as object

t.test('a reply without a complete summary is a failed response, which is charged', async t => {
  const key = await g.key('famC')
  for (const answer of [replies(''), cutOff]) {
    upstream.script = (received, res) => json(res, answer(received))
    for (const model of MODELS) {
      const { status, json: reply } = await ask(key, model, [...history, TRIGGER])
      t.equal(status, 200)
      t.match(
        reply,
        { status: 'failed', output: [], error: { code: 'server_error', message: /no complete summary/ } },
        model,
      )
      const events = eventsOf(await ask(key, model, [...history, TRIGGER], { stream: true }))
      t.strictSame(
        events.map(({ type, sequence_number }) => [type, sequence_number]),
        [['response.created', 0], ['response.in_progress', 1], ['error', 2], ['response.failed', 3]], // prettier-ignore
      )
      t.match(events[3]?.['response'].error.message, /no complete summary/)
      const { status: refused, headers } = await ask(key, model, history, { stream: true }, COMPACT)
      t.equal(refused, 502, 'a compacted conversation without its summary would be lost')
      t.equal(headers.get('x-should-retry'), 'false')
    }
  }
  const entries = await g.settled(key)
  t.ok(entries.every(({ compaction }) => compaction === true))
  t.equal(entries.filter(({ cost_nano }) => cost_nano !== '0').length, 12)
})

t.test('a conversation that is too long loses its oldest outputs first, and the reply says so', async t => {
  const key = await g.key('famC')
  const asked: string[] = []
  /** The provider takes so many bytes. */
  let most = 14_000
  upstream.script = (received, res) => {
    asked.push(received.body)
    const message = `prompt is too long: ${received.body.length} tokens > ${most} maximum`
    if (received.body.length <= most) json(res, replies(said)(received))
    else json(res, { type: 'error', error: { type: 'invalid_request_error', message } }, 400)
  }
  const { status, headers } = await ask(key, 'a', [...history, TRIGGER])
  t.equal(status, 200)
  t.equal(asked.length, 2)
  t.match(headers.get('x-tollgate-dropped'), 'input[].output')
  t.notMatch(asked[1], 'a a a')
  t.match(asked[1], 'b b b', 'the newer output is kept')
  t.match(asked[1], /left out/)
  most = 2500
  asked.length = 0
  const cut = await ask(key, 'a', [...history, TRIGGER])
  t.equal(cut.status, 200)
  t.match(cut.headers.get('x-tollgate-dropped'), 'input[]')
  t.match(asked.at(-1), 'and now?', 'the last message is kept')
  most = 10
  const none = await ask(key, 'a', [...history, TRIGGER])
  t.match(none, { status: 400, json: { error: { code: 'context_length_exceeded' } } }, 'nothing is left to leave out')
  const entries = await g.settled(key)
  t.strictSame(
    entries.map(({ cost_nano }) => cost_nano === '0'),
    [true, false, false],
  )
})

t.test('what a request that was too long has reported is not charged', async t => {
  const key = await g.key('famC')
  for (const stream of [false, true]) {
    let count = 0
    upstream.script = (received, res) => {
      if (++count > 1) return json(res, replies(said)(received))
      const response = { id: 'resp_0', object: 'response', status: 'failed', model: 'm', output: [], usage: { input_tokens: 250_000, output_tokens: 0 }, error: { code: 'context_length_exceeded', message: 'Your input exceeds the context window of this model.' } } // prettier-ignore
      if (!stream) return json(res, response)
      const event = (type: string, number: number, members: object): string => `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: number, ...members })}\n\n` // prettier-ignore
      return sse(res, event('response.created', 0, { response: { ...response, status: 'in_progress', error: null, usage: null } }) + event('response.failed', 1, { response })) // prettier-ignore
    }
    const answer = await ask(key, 'c', [...history, TRIGGER], { stream })
    t.equal(answer.status, 200)
    t.equal(count, 2, 'the conversation is shortened also if a stream tells it')
    t.match(answer.text, 'tollgate.compaction')
  }
  for (const entry of await g.settled(key)) t.match(entry, { input_tokens: 100, output_tokens: 10 })
})

t.test('an upstream that makes compactions gives way to the next one, for which the gateway makes it', async t => {
  const key = await g.key('famC')
  upstream.script = (received, res) =>
    received.headers.authorization?.endsWith(' k1') || received.headers.authorization?.endsWith(' k2')
      ? void res.writeHead(503).end('{}')
      : json(res, replies(said)(received))
  for (const [path, input] of [
    ['/v1/responses', [...history, TRIGGER]],
    [COMPACT, history],
  ] as const) {
    const { status, json: reply } = await ask(key, 'mix', input, {}, path)
    t.equal(status, 200, path)
    t.match(reply.output.at(-1).encrypted_content, 'tollgate.compaction')
    g.gateway.pool.reset()
  }
})

t.test('a reference in a compaction is replaced while its item is kept, and a 404 afterwards', async t => {
  const key = await g.key('famC')
  const { json: first } = await ask(key, 'c', 'x', { store: true })
  const { id } = first.output[0]
  const input = [...history, { type: 'item_reference', id }, { role: 'user', content: 'go on' }, TRIGGER]
  t.equal((await ask(key, 'c', input)).status, 200)
  t.match(upstream.last.body, said)
  t.notMatch(upstream.last.body, id)
  const { keys, redis } = g.gateway.ledger.scripts
  await redis.del(...Object.values(keys.kept({ account: await g.id(key) })))
  for (const model of MODELS)
    t.match(await ask(key, model, input), { status: 404, json: { error: { message: new RegExp(id) } } }, model)
})

t.test('a conversation that a provider has stored is not compacted by the gateway', async t => {
  const key = await g.key('famC')
  const { json: first } = await ask(key, 'c', 'x', { store: true })
  const { status, json: refusal } = await ask(key, 'c', [TRIGGER], { previous_response_id: first.id })
  t.equal(status, 400)
  t.match(refusal.error.message, /"previous_response_id" cannot be compacted here/)
})

t.test('an upstream with `compaction: native` gets the request unchanged', async t => {
  const key = await g.key('famC')
  const item = { id: 'cmp_1', type: 'compaction', encrypted_content: 'gAAAA' }
  upstream.script = (received, res) =>
    received.path === COMPACT
      ? json(res, { id: 'resp_1', created_at: 1, object: 'response.compaction', output: [item], usage: { input_tokens: 50, output_tokens: 5, total_tokens: 55 } }) // prettier-ignore
      : json(res, { ...replies(said)(received), output: [item] })
  const body = JSON.stringify({ model: 'n', input: [...history, TRIGGER], store: false })
  const answer = await g.open('/v1/responses', { key, body: JSON.parse(body) })
  t.strictSame(((await answer.json()) as { output: unknown }).output, [item])
  t.equal(upstream.last.body, body, 'the bytes are the client’s')
  const { json: compacted } = await ask(key, 'n', history, { tools: undefined }, COMPACT)
  t.equal(upstream.last.path, COMPACT)
  t.strictSame(compacted.output, [item])
  const entries = await g.settled(key)
  t.strictSame(
    entries.map(({ input_tokens, compaction }) => [input_tokens, compaction]),
    [[50, true], [100, true]], // prettier-ignore
  )
})

t.test('a compaction of a provider stays with the account that made it', async t => {
  const [key, other] = [await g.key('famC'), await g.key('famC')]
  const item = { type: 'compaction', encrypted_content: 'gBBBB' }
  upstream.script = (received, res) => json(res, { ...replies(said)(received), output: [{ id: 'cmp_2', ...item }] })
  await ask(key, 'n', [...history, TRIGGER])
  const account = upstream.last.headers.authorization
  upstream.script = (received, res) => json(res, replies(said)(received))
  for (let nth = 0; nth < 8; nth++) {
    const { status } = await ask(key, 'n', [{ role: 'user', content: `conversation ${nth}` }, item, { role: 'user', content: 'x' }]) // prettier-ignore
    t.equal(status, 200)
    t.equal(upstream.last.headers.authorization, account)
  }
  // Another upstream of the same format cannot read it.
  t.match(await ask(key, 'c', [item, { role: 'user', content: 'x' }]), {
    status: 400,
    json: { error: { code: 'compaction_bound' } },
  })
  t.equal((await ask(other, 'c', [item, { role: 'user', content: 'x' }])).status, 200, 'what is not known passes')
})
