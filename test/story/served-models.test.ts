/** A provider answers with another model than it was asked for: customers pay the cheaper price, and everybody can see both names. */
import t from 'tap'
import type { FormatName } from '../../core/formats/index.ts'
import { usageBy } from '../../core/records/usage.ts'
import { operations, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'
import { scene } from '../scene.ts'
import { DONE, typed } from '../stream-events.ts'
import { json, type Received, sse } from '../upstream.ts'

const PRICES = { cheap: 'small', mid: 'medium', dear: 'large' } as const
type Name = keyof typeof PRICES
const NAMES = Object.keys(PRICES) as Name[]

const edit: Edit = file => {
  for (const type of ['famC', 'famA'])
    for (const id of NAMES) file.insertModel(type, { id, price: PRICES[id], maxOutput: 1000, reasoning: 'none' })
  return file
    .set('upstreams.famC.speaks', ['chat-completions', 'responses'])
    .model('famC', 'mid', { answers: ['mid-by-another-name'] })
    .insertBefore('access-log', { metrics: {} })
}

/** What the provider calls the model, and how it answers. */
const FORMS: Readonly<Record<FormatName, { type: string; path: string; body: object; answer: (model: string, stream: boolean) => object | string }>> = {
  'chat-completions': {
    type: 'famC',
    path: '/v1/chat/completions',
    body: { messages: [{ role: 'user', content: 'hi' }] },
    answer(model, stream) {
      const usage = { prompt_tokens: 1000, completion_tokens: 50 }
      const chunk = (more: object): string => `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', ...more })}\n\n`
      if (!stream) return { model, choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage }
      // Only the first chunk names the model.
      return (
        chunk({ model, choices: [{ index: 0, delta: { role: 'assistant', content: 'x' }, finish_reason: null }] }) +
        chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }) +
        chunk({ choices: [], usage }) +
        DONE
      )
    },
  },
  responses: {
    type: 'famC',
    path: '/v1/responses',
    body: { input: 'hi' },
    answer(model, stream) {
      const response = { id: 'r', object: 'response', model, status: 'completed', output: [], usage: { input_tokens: 1000, output_tokens: 50 } }
      if (!stream) return response
      const { usage: _usage, ...begun } = { ...response, status: 'in_progress' }
      return typed({ type: 'response.created', sequence_number: 0, response: begun }) + typed({ type: 'response.completed', sequence_number: 1, response })
    },
  },
  messages: {
    type: 'famA',
    path: '/v1/messages',
    body: { max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] },
    answer(model, stream) {
      const usage = { input_tokens: 1000, output_tokens: 50 }
      const message = { id: 'm', type: 'message', role: 'assistant', model, content: [], stop_reason: 'end_turn', usage }
      if (!stream) return message
      return (
        typed({ type: 'message_start', message: { ...message, stop_reason: null } }) +
        typed({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 50 } }) +
        typed({ type: 'message_stop' })
      )
    },
  },
} // prettier-ignore

t.test('whatever model answers, in whatever form, the cheaper price counts, and both names are known', async t => {
  const { g, upstream } = await scene(t, edit)
  let answers: (received: Received) => object | string = () => ({})
  upstream.script = (received, res) => {
    const answer = answers(received)
    if (typeof answer === 'string') sse(res, answer)
    else json(res, answer)
  }
  for (const [format, { type, path, body, answer }] of Object.entries(FORMS))
    for (const stream of [false, true]) {
      /** Asks for one model, and lets another one answer. */
      const ask = async (asked: Name, named: string) => {
        answers = () => answer(named, stream)
        const key = await g.key(type)
        const reply = await g.call(path, { key, body: { ...body, model: asked, stream } })
        t.equal(reply.status, 200)
        t.ok(reply.text.includes(`"${asked}"`) && !reply.text.includes(`"model":"${named === asked ? 'x' : named}"`))
        const [entry] = await g.settled(key)
        const served = reply.headers.get('x-tollgate-served-model')
        return { key, cost: Number(entry?.['cost_nano']), entry, served }
      }
      const own = new Map<Name, number>()
      for (const name of NAMES) own.set(name, (await ask(name, name)).cost)
      for (const asked of NAMES)
        for (const served of NAMES) {
          const what = `${format}, ${stream ? 'a stream' : 'JSON'}: ${served} for ${asked}`
          const found = await ask(asked, `${served}-20260101`)
          t.equal(found.cost, Math.min(own.get(asked) ?? 0, own.get(served) ?? 0), what)
          const price = (own.get(served) ?? 0) < (own.get(asked) ?? 0) ? served : asked
          t.match(found.entry, { model: asked, served_model: served, price: PRICES[price] }, what)
          t.equal(found.served, asked === served ? null : served, what)
        }
      const { key } = await ask('mid', 'cheap')
      const csv = await g.call('/api/v1/key-info/history?format=csv', { key })
      t.match(csv.text, /"mid","cheap",/, 'both names are columns')
      // A name that the file gives to the model that was asked for, and one that it does not know.
      if (type === 'famC') t.match(await ask('mid', 'mid-by-another-name'), { cost: own.get('mid'), served: null })
      t.match(await ask('mid', 'something-else'), {
        cost: own.get('mid'),
        served: null,
        entry: { served_model: 'mid' },
      })
    }
  const { records, background } = g.gateway.ledger
  await background.archiveAll()
  const today = Math.floor(Date.now() / 86_400_000)
  const range = { from: today - 1, to: today, count: 10 }
  const usage = async (group: 'model' | 'served') =>
    new Map((await usageBy(records.database, group, range)).map(({ group: name, counts }) => [name, counts]))
  const before = [await usage('model'), await usage('served')] as const
  answers = () => FORMS['chat-completions'].answer('cheap', false)
  const key = await g.key('famC')
  await g.call('/v1/chat/completions', { key, body: { ...FORMS['chat-completions'].body, model: 'dear' } })
  await g.settled(key)
  await background.archiveAll()
  const now = [await usage('model'), await usage('served')] as const
  for (const [of, more, less] of [
    [0, 'dear', 'cheap'],
    [1, 'cheap', 'dear'],
  ] as const)
    // prettier-ignore
    for (const name of ['requests', 'billed', 'output', 'charge'] as const) {
      t.ok((now[of].get(more)?.[name] ?? 0n) > (before[of].get(more)?.[name] ?? 0n), `${name} of ${more}`)
      t.equal(now[of].get(less)?.[name], before[of].get(less)?.[name], `${name} of ${less}`)
    }
  const { text } = await g.call('/metrics')
  t.match(text, /tollgate_served_models_total\{upstream="famC",model="mid",served="cheap"\} 8/)
})

t.test('a request with an advisor pays the cheaper price too, if another model than its own answers', async t => {
  const { g, upstream } = await scene(t, edit)
  const { type, path, body, answer } = FORMS.messages
  const key = await g.key(type)
  upstream.script = (_received, res) => json(res, answer('cheap-20260101', false))
  const tools = [{ type: 'advisor_20260301', name: 'advisor', model: 'acme/famA-large-5' }]
  t.equal((await g.call(path, { key, body: { ...body, model: 'dear', tools } })).status, 200)
  const price = { price: 'small', cost_nano: String(1000 * 1000 + 50 * 5000), unpriced: [] }
  t.match(await g.settled(key), [{ model: 'dear', served_model: 'cheap', ...price }])
})

t.test('a request whose gateway died names the price that it is charged at', async t => {
  const { g, upstream } = await scene(t, file => edit(file).set('ledger.lease', '600ms').set('ledger.reapEvery', '1h'))
  const { type, path, body, answer } = FORMS['chat-completions']
  const [begun = ''] = (answer('cheap-20260101', true) as string).split(/(?<=\n\n)/)
  upstream.script = (_received, res) => void res.writeHead(200, { 'content-type': 'text/event-stream' }).write(begun)
  const key = await g.key(type)
  const renewals = operations(g, 'renew')
  const controller = new AbortController()
  t.teardown(() => controller.abort())
  const asked = { ...body, model: 'dear', stream: true }
  const reply = await g.open(path, { key, body: asked, signal: controller.signal })
  await reply.body?.getReader().read()
  const before = renewals.length
  await until(() => renewals.length > before + 1)
  const { scripts, background } = g.gateway.ledger
  const run = scripts.run.bind(scripts)
  scripts.run = operation => (operation.name === 'renew' ? Promise.resolve(['ok']) : run(operation))
  await until(async () => (await background.reap()) > 0)
  t.match(await g.history(key), [{ type: 'reaped', model: 'dear', served_model: 'cheap', price: 'small' }])
})
