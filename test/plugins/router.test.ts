import t from 'tap'
import router from '../../plugins/router.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, CHAT, hostWith, keyOf, MESSAGES, modelOf, RESPONSES } from './facts.ts'

const route = async (type: string, model: string, path: string): Promise<any> => {
  const body = bodyFrom({ model, messages: [{ role: 'user', content: 'a' }], input: 'a', max_tokens: 5 })
  const facts = { key: keyOf(type), body, model: modelOf(type, model) }
  const host = hostWith({ longJobs: { of: () => ({}) } })
  return ((await drive(router, { exchange: at(path), facts, host })).given as any).route
}

t.test('a format that the upstream speaks is kept, whatever it prefers', async t => {
  const { format, translation, candidates } = await route('famC', 'acme/famC-5.5', CHAT)
  t.match([format.path, translation], [CHAT, undefined])
  t.match(candidates, [{ account: { name: 'famC/1' } }])
})

t.test('another format is translated into the first one that the upstream speaks', async t => {
  for (const [type, model, path, spoken] of [
    ['famC', 'acme/famC-5.5', MESSAGES, RESPONSES],
    ['famA', 'acme/famA-medium-5', CHAT, MESSAGES],
  ] as const) {
    const { format, translation } = await route(type, model, path)
    t.equal(format.path, spoken)
    t.ok(translation)
  }
})
