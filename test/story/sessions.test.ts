import { createOpenAI } from '@ai-sdk/openai'
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai'
import t from 'tap'
import { NANO } from '../../core/money/credits.ts'
import type { Edit } from '../gateway-file.ts'
import { type Answer, startGateway, type TestGateway } from '../gateway.ts'
import { families, replyTo } from '../session-provider.ts'
import { json, type Received, ScriptedUpstream } from '../upstream.ts'

/** A conversation goes on with a model of another family: what the gateway made for it stays with the gateway. */

const edit: Edit = file =>
  families('medium', [
    { id: 'd', upstream: 'famB', price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
    { id: 'pool', upstream: ['famA', 'famC'], price: 'medium', reasoning: 'hidden', maxOutput: 64_000 },
  ])(file.set('upstreams.famB.speaks', ['responses']))

const now = { ms: 0 }
let g: TestGateway
let upstream: ScriptedUpstream
t.before(async () => {
  upstream = await ScriptedUpstream.start(t)
  now.ms = Date.now()
  g = await startGateway(t, { upstream: upstream.url, edit, environment: { now: () => now.ms } })
})

let count = 0
/** A provider's reply: some text, and a call if the request has a tool and no result yet. */
const says = (received: Received): object => {
  const calls =
    received.body.includes('"tools"') && !/tool_result|function_call_output|"role":"tool"/.test(received.body)
  const text = calls ? 'let me look' : 'sunny'
  return replyTo(received, {
    id: `${++count}`,
    text,
    thought: 'hm',
    call: calls ? { name: 'w', input: {} } : undefined,
  })
}
t.beforeEach(() => {
  upstream.script = (received, res) => json(res, says(received))
})

const ask = (key: string, model: string, input: unknown, more: object = {}): Promise<Answer> =>
  g.call('/v1/responses', { key, body: { model, input, ...more } })

const PROVIDERS = { a: 'messages', b: 'chat completions', c: 'responses' }

for (const [model, provider] of Object.entries(PROVIDERS))
  // Without translation, a provider that is asked for a stream answers with one.
  for (const stream of model === 'c' ? [false] : [false, true])
    t.test(`the AI SDK runs a tool loop on ${provider}, ${stream ? 'as a stream' : 'as JSON'}`, async t => {
      const key = await g.key('famC')
      const openai = createOpenAI({ apiKey: key, baseURL: `${g.url}/v1` })
      const tools = { w: tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }), execute: () => Promise.resolve('sun') }) } // prettier-ignore
      const run = { model: openai.responses(model), maxRetries: 0, prompt: 'weather?', tools, stopWhen: stepCountIs(3) }
      const text = stream ? await streamed(run) : (await generateText(run)).text
      t.equal(text, 'sunny')
      t.match(upstream.last.body, /sun/)
      // An item that the provider stored stays a reference.
      if (model === 'c') return void t.match(upstream.last.body, 'item_reference')
      t.match(upstream.last.body, 'let me look', 'the provider sees the text of the first step')
      t.notMatch(upstream.last.body, 'item_reference')
    })

async function streamed(run: object): Promise<string> {
  const result = streamText({ ...run, onError: () => {} } as never)
  await result.consumeStream()
  return result.text
}

/** The first reply of a model, with a reference to each of its items. */
async function begun(key: string, model: string): Promise<{ items: any[]; references: object[] }> {
  const { json: reply } = await ask(key, model, 'weather?')
  return {
    items: reply.output,
    references: reply.output.map(({ id }: { id: string }) => ({ type: 'item_reference', id })),
  }
}

const NOT_FOUND = (id: string): object => ({
  status: 404,
  json: {
    error: {
      type: 'invalid_request_error',
      param: 'input',
      code: null,
      message: `Item with id '${id}' not found. Items are not persisted when \`store\` is set to false. Try again with \`store\` set to true, or remove this item from your input.`,
    },
  },
})

t.test('a reference to an item of another key, or of a reply that stores nothing, gets a 404', async t => {
  const [key, other] = [await g.key('famC'), await g.key('famC')]
  const { items } = await begun(key, 'a')
  const id = items.at(-1).id
  const input = [
    { type: 'item_reference', id },
    { role: 'user', content: 'x' },
  ]
  t.match(await ask(other, 'a', input), NOT_FOUND(id))
  const { json: reply } = await ask(key, 'b', 'x', { store: false })
  const forgotten = reply.output.at(-1).id
  t.match(await ask(key, 'b', [{ type: 'item_reference', id: forgotten }, { role: 'user', content: 'x' }]), NOT_FOUND(forgotten)) // prettier-ignore
})

t.test('the store holds the items encrypted, and another secret cannot read them', async t => {
  const key = await g.key('famC')
  const { items } = await begun(key, 'a')
  const { keys, redis } = g.gateway.ledger.scripts
  const account = await g.id(key)
  const { items: name, sizes } = keys.kept({ account })
  const stored = await redis.hgetall(name)
  t.strictSame(Object.keys(stored).toSorted(), items.map(({ id }) => id).toSorted())
  for (const value of Object.values(stored)) {
    t.notMatch(Buffer.from(value.split(' ')[1] ?? '', 'base64').toString('latin1'), 'sunny')
    t.notMatch(value, 'sunny')
  }
  t.ok((await redis.pttl(name)) <= 3_600_000 && (await redis.pttl(name)) > 0)
  t.equal(await redis.hget(sizes, account), String(Object.entries(stored).reduce((sum, [id, value]) => sum + id.length + value.length, 0))) // prettier-ignore
  const { kept } = g.gateway.ledger
  t.equal((await kept.read({ spender: { account }, secret: 'sk-another' }, [items.at(-1).id])).size, 0)
})

t.test('an account keeps at most 256 KiB: the oldest items go', async t => {
  const { kept, scripts } = g.gateway.ledger
  const owner = { spender: { account: 'hoarder' }, secret: 'sk-x' }
  const text = 'x'.repeat(40_000)
  for (let nth = 0; nth < 8; nth++) await kept.keep(owner, new Map([[`msg_${nth}_0`, text]]))
  await kept.keep(owner, new Map([['msg_huge_0', 'x'.repeat(150_000)]]))
  const ids = Array.from({ length: 8 }, (_, nth) => `msg_${nth}_0`)
  t.strictSame([...(await kept.read(owner, [...ids, 'msg_huge_0'])).keys()], ['msg_7_0', 'msg_huge_0'])
  await kept.keep(owner, new Map([['msg_larger_0', 'x'.repeat(300_000)]]))
  t.equal((await kept.read(owner, ['msg_larger_0'])).size, 0, 'a larger one is not kept')
  const size = Number(await scripts.redis.hget(scripts.keys.kept({ account: 'hoarder' }).sizes, 'hoarder'))
  t.ok(size <= 262_144, `${size} bytes`)
  await kept.keep(owner, new Map([['msg_huge_0', 'short']]))
  t.strictSame([...(await kept.read(owner, ['msg_huge_0'])).values()], ['short'], 'an item is replaced')
})

t.test('the accounts of a shard keep at most 256 KiB together: those that keep most lose theirs', async t => {
  const { kept, scripts } = g.gateway.ledger
  const shard = scripts.keys.of('hoarder').shard
  const near: string[] = []
  for (let nth = 0; near.length < 2; nth++) if (scripts.keys.of(`near-${nth}`).shard === shard) near.push(`near-${nth}`)
  const [large = '', small = ''] = near
  await kept.keep({ spender: { account: large }, secret: 's' }, new Map([['a', 'x'.repeat(150_000)]]))
  await kept.keep({ spender: { account: small }, secret: 's' }, new Map([['b', 'x'.repeat(50_000)]]))
  t.equal((await kept.read({ spender: { account: large }, secret: 's' }, ['a'])).size, 0)
  t.equal((await kept.read({ spender: { account: small }, secret: 's' }, ['b'])).size, 1)
  t.ok(Number(await scripts.redis.hget(scripts.keys.kept({ account: small }).sizes, '')) <= 262_144)
})

t.test('a conversation that moves between upstreams of two formats in a pool goes on', async t => {
  const key = await g.key('famC')
  const { items, references } = await begun(key, 'pool')
  t.equal(upstream.last.path, '/v1/messages')
  const question = { role: 'user', content: 'more' }
  // The first upstream is out: the second one speaks the client's format.
  upstream.script = (received, res) =>
    received.path === '/v1/messages' ? void res.writeHead(529).end('{}') : json(res, says(received))
  for (const before of [items, references]) {
    const { status, json: reply } = await ask(key, 'pool', [{ role: 'user', content: 'x' }, ...before, question])
    t.equal(status, 200)
    t.equal(upstream.last.path, '/v1/responses')
    t.match(upstream.last.body, 'sunny')
    t.notMatch(upstream.last.body, /tollgate|item_reference|_\d+_\d+"/)
    // Back again, with items of both.
    g.gateway.pool.reset()
    upstream.script = (received, res) => json(res, says(received))
    t.equal((await ask(key, 'pool', [...before, question, ...reply.output, question])).status, 200)
    t.equal(upstream.last.path, '/v1/messages')
    upstream.script = (received, res) =>
      received.path === '/v1/messages' ? void res.writeHead(529).end('{}') : json(res, says(received))
  }
  g.gateway.pool.reset()
})

t.test(
  'a reference to what another key has stored never reaches a provider, whichever upstream of a pool answers',
  async t => {
    const key = await g.key('famC')
    const before = upstream.requests.length
    upstream.script = (received, res) =>
      received.path === '/v1/messages' ? void res.writeHead(529).end('{}') : json(res, says(received))
    const said = [{ role: 'assistant', content: 'ok' }, { role: 'user', content: 'repeat it' }] // prettier-ignore
    const theirs = [
      { type: 'item_reference', id: 'msg_victim' },
      { role: 'user', content: [{ type: 'input_file', file_id: 'file-victim' }] },
    ]
    for (const each of theirs) t.match(String((await ask(key, 'pool', [each, ...said])).status), /^40[04]$/)
    t.equal(upstream.requests.length, before)
  },
)

t.test('however often a request refers to an item, the provider gets it once', async t => {
  const key = await g.key('famC')
  const { items } = await begun(key, 'a')
  const { id } = items.at(-1)
  for (const model of Object.keys(PROVIDERS)) {
    const many = Array.from({ length: 50 }, () => ({ type: 'item_reference', id }))
    t.equal(
      (await ask(key, model, [{ role: 'user', content: 'x' }, ...many, { role: 'user', content: 'y' }])).status,
      200,
    )
    t.equal(upstream.last.body.split('sunny').length, 2, model)
  }
})

t.test('a policy by which requests store nothing keeps references working', async t => {
  const strict = await startGateway(t, {
    upstream: upstream.url,
    edit: file => edit(file).set('keyTypes.famC.policy', { store: 'drop' }),
  })
  const key = await strict.key('famC')
  const first = await strict.call('/v1/responses', { key, body: { model: 'a', input: 'x' } })
  const input = [
    { type: 'item_reference', id: first.json.output.at(-1).id },
    { role: 'user', content: 'y' },
  ]
  t.equal((await strict.call('/v1/responses', { key, body: { model: 'a', input } })).status, 200)
})

t.test('an item of one upstream is carried to another one of the same format', async t => {
  const key = await g.key('famC')
  const { references } = await begun(key, 'c')
  t.equal((await ask(key, 'c', [...references, { role: 'user', content: 'x' }])).status, 200)
  t.match(upstream.last.body, 'item_reference', 'its own provider has it')
  t.equal((await ask(key, 'd', [...references, { role: 'user', content: 'x' }])).status, 200)
  t.match(upstream.last.body, 'sunny')
  t.notMatch(upstream.last.body, 'item_reference')
})

t.test(
  'signatures that a client has made up are refused or left out, and nothing fails within the gateway',
  async t => {
    const key = await g.key('famC')
    const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
    const forged = (by: string, json: string): string =>
      `tollgate.${by}.${Buffer.from(`{"text":"","data":${json}}`).toString('base64url')}`
    const data = [
      forged('chat-completions', `{"details":${deep}}`),
      forged('chat-completions', '{"details":[{"file":{"file_id":"file-victim"}}]}'),
      forged('messages', `{"signature":"x","redacted":${deep}}`),
      forged('messages', '{"signature":"x","redacted":{"type":"file","file_id":"file-victim"}}'),
      'tollgate.compaction.!!!!',
      'tollgate.compaction.',
    ]
    for (const encrypted_content of data)
      for (const type of ['reasoning', 'compaction'])
        for (const model of Object.keys(PROVIDERS)) {
          const { status } = await ask(key, model, [{ role: 'user', content: 'x' }, { type, summary: [], encrypted_content }, { role: 'assistant', content: 'y' }, { role: 'user', content: 'z' }]) // prettier-ignore
          t.ok(status === 200 || status === 400, `${model}: ${status}`)
          t.notMatch(upstream.last.body, /victim|tollgate/)
        }
  },
)

t.test('reasoning of a responses model is not sent to a model that speaks messages', async t => {
  const key = await g.key('famC')
  const body = (model: string, messages: object[]): object => ({ model, max_tokens: 2000, messages, thinking: { type: 'adaptive' } }) // prettier-ignore
  const first = await g.call('/v1/messages', { key, body: body('c', [{ role: 'user', content: 'q' }]) })
  t.equal(first.json.content[0].type, 'thinking')
  const turns = [{ role: 'user', content: 'q' }, { role: 'assistant', content: first.json.content }, { role: 'user', content: 'more' }] // prettier-ignore
  const { status, headers } = await g.call('/v1/messages', { key, body: body('a', turns) })
  t.equal(status, 200)
  t.notMatch(upstream.last.body, 'tollgate')
  t.match(upstream.last.body, 'sunny')
  t.equal(headers.get('x-tollgate-dropped'), 'reasoning')
  await g.call('/v1/messages', { key, body: body('c', turns) })
  t.match(upstream.last.body, `enc${count - 2}`, 'its own provider gets it back')
})

t.test('the least output limit is held and paid for', async t => {
  const key = await g.key('famC')
  const { headers } = await g.call('/v1/messages', { key, body: { model: 'c', max_tokens: 1, messages: [{ role: 'user', content: 'probe' }] } }) // prettier-ignore
  t.equal(upstream.last.json['max_output_tokens'], 16)
  t.match(headers.get('x-tollgate-dropped'), 'max_tokens')
  const [entry] = await g.settled(key)
  t.match(entry, { output_tokens: 10 })
})

t.test('a prompt that the gateway marks is held at the price of filling the cache', async t => {
  const key = await g.key('famC')
  const held: bigint[] = []
  upstream.script = async (received, res) => {
    held.push((await g.gateway.ledger.reads.balance(await g.id(key))).held)
    json(res, says(received))
  }
  const body = { model: 'a', max_tokens: 20, messages: [{ role: 'user', content: 'x'.repeat(30_000) }] }
  await g.call('/v1/chat/completions', { key, body })
  await g.call('/v1/chat/completions', { key, body: { ...body, prompt_cache_key: 'k' } })
  const [plain = 0n, marked = 0n] = held
  t.ok(marked > plain && marked < plain * 2n, `${marked} and ${plain}`)
  t.ok(marked < NANO)
})

/** The requests that agents are known to send, each with what must be true. */
t.test('a compaction of a provider is refused elsewhere with a code, in the words of each format', async t => {
  const key = await g.key('famC')
  const { status, json: refusal } = await ask(key, 'a', [{ type: 'compaction', encrypted_content: 'gAAA' }, { role: 'user', content: 'x' }]) // prettier-ignore
  t.equal(status, 400)
  t.match(refusal.error, { code: 'compaction_bound', message: /only the provider which made it can read/ })
  const turns = [{ role: 'assistant', content: [{ type: 'compaction', content: null, encrypted_content: 'x' }] }, { role: 'user', content: 'x' }] // prettier-ignore
  const messages = await g.call('/v1/messages', { key, body: { model: 'c', max_tokens: 20, messages: turns } })
  t.match(messages, { status: 400, json: { error: { message: /only the provider which made it can read/ } } })
})

t.test('arguments that a provider sends as an object reach clients of every format', async t => {
  const key = await g.key('famC')
  const tools = [{ name: 'w', input_schema: { type: 'object' } }]
  const body = { max_tokens: 50, messages: [{ role: 'user', content: 'x' }], tools }
  upstream.script = (received, res) => json(res, JSON.parse(JSON.stringify(says(received)).replace('"arguments":"{}"', '"arguments":{"city":"Oslo"}'))) // prettier-ignore
  for (const model of ['b', 'c']) {
    const { json: reply } = await g.call('/v1/messages', { key, body: { ...body, model } })
    t.strictSame(reply.content.at(-1).input, { city: 'Oslo' }, model)
  }
})

t.test('references to items of a translated reply resolve at any family for an hour', async t => {
  const key = await g.key('famC')
  const { items, references } = await begun(key, 'a')
  for (const model of Object.keys(PROVIDERS)) {
    const { status } = await ask(key, model, ['x', ...references, 'more'].map(each => (typeof each === 'string' ? { role: 'user', content: each } : each))) // prettier-ignore
    t.equal(status, 200, model)
    t.match(upstream.last.body, 'sunny')
    t.notMatch(upstream.last.body, 'tollgate')
  }
  const id = items.find(({ type }) => type === 'message').id
  // What has ended is recorded before an hour passes.
  await g.settled(key)
  await g.gateway.ledger.background.archiveAll()
  now.ms += 3_599_000
  t.equal(
    (
      await ask(key, 'a', [
        { type: 'item_reference', id },
        { role: 'user', content: 'x' },
      ])
    ).status,
    200,
  )
  now.ms += 2000
  const input = [
    { type: 'item_reference', id },
    { role: 'user', content: 'x' },
  ]
  for (const model of ['a', 'c']) t.match(await ask(key, model, input), NOT_FOUND(id), `afterwards, at ${model}`)
  t.equal((await g.settled(key)).length, 5, 'a request whose item is not found is none')
})
