import t from 'tap'
import requestPolicy from '../../plugins/request-policy.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, CHAT, headOf, hostWith, keyOf, modelOf, RESPONSES } from './facts.ts'

const ask = async (path: string, value: object) => {
  const body = bodyFrom({ model: 'acme/famC-5.5', ...(path === CHAT ? { messages: [] } : { input: [] }), ...value })
  const facts = { key: keyOf('famC'), body, model: modelOf('famC', 'acme/famC-5.5') }
  const exchange = at(path)
  const driven = await drive(requestPolicy, { exchange, facts, host: hostWith() })
  return { ...driven, body }
}

t.test('a plain request has no extras', async t => {
  t.match((await ask(CHAT, {})).given, { extras: { tools: [], media: [], conditions: undefined } })
})

t.test('a member that changes the address of the request is refused by name', async t => {
  t.match((await ask(CHAT, { route: 'fallback' })).thrown, { code: 'member_refused', message: /"route"/ })
})

t.test('a tier without a price is dropped, and named in the reply', async t => {
  const { body, stage, x } = await ask(CHAT, { service_tier: 'priority' })
  t.equal(body.get('service_tier'), 'default')
  const head = headOf()
  stage.response?.(x, head)
  t.same(head.reply, { 'x-tollgate-dropped': 'service_tier' })
})

t.test('a tool with a price is held for; beside other tools, one without a price is dropped', async t => {
  const { given, body } = await ask(RESPONSES, {
    tools: [{ type: 'web_search' }, { type: 'code_interpreter', container: { type: 'auto' } }],
  })
  t.match(given, { extras: { tools: [{ kind: 'webSearch' }] } })
  t.same(body.get('tools'), [{ type: 'web_search' }])
})
