import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'

let g: TestGateway
t.before(async () => {
  g = await startGateway(t, { edit: file => file.append('billing-trailer') })
})

const messages = [{ role: 'user' as const, content: 'Hello' }]
const HELLO = 'Hello from the simulated provider. You said: Hello'

t.test('a JSON reply has its cost and the balance in headers, exactly as settled', async t => {
  const key = await g.key('famC')
  const answer = await g.call('/v1/chat/completions', { key, body: { model: 'acme/famC-5.5', messages } })
  const [entry] = await g.settled(key)
  t.equal(Number(answer.headers.get('x-tollgate-cost')), entry?.cost)
  t.equal(Number(answer.headers.get('x-tollgate-balance')), (await g.balance(key)).balance)
  t.equal(answer.headers.get('x-request-id'), entry?.request_id)
  t.match(
    (await g.call('/v1/chat/completions', { key, body: {} })).headers.get('x-tollgate-cost'),
    null,
    'an error costs nothing and tells nothing',
  )
})

t.test('a stream has them in a comment before its last event, in each format', async t => {
  const calls: [string, string, object, RegExp][] = [
    [
      'famC',
      '/v1/chat/completions',
      { model: 'acme/famC-5.5', messages, stream: true },
      /\n\n: tollgate cost=(\S+) balance=(\S+) request=(\S+)\ndata: \[DONE\]\n\n$/,
    ],
    [
      'famC',
      '/v1/responses',
      { model: 'acme/famC-5.5', input: 'Hello', stream: true },
      /\n\n: tollgate cost=(\S+) balance=(\S+) request=(\S+)\nevent: response\.completed\n[^\n]+\n\n$/,
    ],
    [
      'famA',
      '/v1/messages',
      { model: 'acme/famA-medium-5', max_tokens: 99, messages, stream: true },
      /\n\n: tollgate cost=(\S+) balance=(\S+) request=(\S+)\nevent: message_stop\n[^\n]+\n\n$/,
    ],
  ]
  for (const [type, path, body, pattern] of calls) {
    const key = await g.key(type)
    const { text } = await g.call(path, { key, body })
    const [entry] = await g.settled(key)
    const [, cost, balance, request] = pattern.exec(text) ?? []
    t.equal(Number(cost), entry?.cost, path)
    t.equal(Number(balance), (await g.balance(key)).balance)
    t.equal(request, entry?.request_id)
  }
})

t.test('what a plan pays does not raise the balance that they tell', async t => {
  const key = await g.key('famC', 3n)
  await g.gateway.keys.plans.set(
    { account: await g.id(key), id: 'plan' },
    { windows: [{ credits: '20', per: 'month' }], then: 'credits' },
  )
  const answer = await g.call('/v1/chat/completions', { key, body: { model: 'acme/famC-5.5', messages } })
  t.match(Number(answer.headers.get('x-tollgate-cost')) > 0, true)
  t.equal(answer.headers.get('x-tollgate-balance'), '3')
})

t.test('the SDKs ignore them', async t => {
  const openai = new OpenAI({ apiKey: await g.key('famC'), baseURL: `${g.url}/v1` })
  const model = 'acme/famC-5.5'
  t.equal((await openai.chat.completions.create({ model, messages })).choices[0]?.message.content, HELLO)
  const chat = await openai.chat.completions
    .stream({ model, messages, stream_options: { include_usage: true } })
    .finalChatCompletion()
  t.equal(chat.choices[0]?.message.content, HELLO)
  t.ok(chat.usage)
  t.equal((await openai.responses.stream({ model, input: 'Hello' }).finalResponse()).output_text, HELLO)
  const anthropic = new Anthropic({ apiKey: await g.key('famA'), baseURL: g.url })
  const final = await anthropic.messages
    .stream({ model: 'acme/famA-medium-5', max_tokens: 99, messages })
    .finalMessage()
  t.match(final.content, [{ type: 'text', text: HELLO }])
})
