import t from 'tap'
import modelGate from '../../plugins/model-gate.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, CHAT, event, format, headOf, hostWith, keyOf, MESSAGES, modelOf } from './facts.ts'

const ask = async (type: string, path: string, model: string) => {
  const body = bodyFrom({ model })
  const options = { suffixes: { '[1m]': { 'anthropic-beta': 'context-1m' } } }
  const driven = await drive(modelGate, {
    options,
    exchange: at(path),
    facts: { key: keyOf(type), body },
    host: hostWith(),
  })
  return { ...driven, sent: body.get('model') }
}

t.test('a model of the key type passes; another one is refused with the list', async t => {
  t.match((await ask('famC', CHAT, 'acme/famC-5.5')).given, { model: { asked: 'acme/famC-5.5' } })
  t.match((await ask('famC', CHAT, 'acme/famB-4.5')).thrown, {
    code: 'model_not_found',
    message: /acme\/famC-5\.6-sol/,
  })
})

t.test('a format that the key type lacks is refused with the list', async t => {
  t.match((await ask('famB', MESSAGES, 'acme/famB-4.5')).thrown, {
    code: 'format_not_allowed',
    message: /They may use POST \/v1\/chat\/completions, POST \/v1\/responses/,
  })
})

t.test('an alias is sent under the name of its model, and a suffix becomes headers', async t => {
  t.equal((await ask('famB', CHAT, 'acme/famB-4.5-latest')).sent, 'acme/famB-4.5')
  const { given, sent } = await ask('famA', MESSAGES, 'acme/famA-medium-5[1M]')
  t.equal(sent, 'acme/famA-medium-5')
  t.match(given, { model: { asked: 'acme/famA-medium-5[1M]', headers: { 'anthropic-beta': 'context-1m' } } })
})

t.test('a reply has the name that the client sent', async t => {
  const { stage } = await ask('famC', CHAT, 'acme/famC-5.5')
  const x = { model: { ...modelOf('famC', 'acme/famC-5.5'), asked: 'mine' }, format: format(CHAT) }
  t.equal(stage.rewrite?.(x as never, headOf({ model: 'mine' })), undefined)
  const [renamed] =
    stage.rewrite?.(x as never, headOf({ model: 'other' }))?.event(event(CHAT, { model: 'other' })) ?? []
  t.equal(renamed?.data, '{"model":"mine"}')
})
