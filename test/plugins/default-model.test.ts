import t from 'tap'
import defaultModel from '../../plugins/default-model.ts'
import { drive } from 'tollgate/testing'
import { at, bodyFrom, CHAT, hostWith, keyOf } from './facts.ts'

const ask = async (type: string, value: object) => {
  const body = bodyFrom(value)
  const { thrown } = await drive(defaultModel, {
    exchange: at(CHAT),
    facts: { key: keyOf(type), body },
    host: hostWith(),
  })
  return { thrown, model: body.get('model') }
}

t.test('a request without a model gets the default model if the key type fills it in', async t => {
  t.match(await ask('famB', {}), { thrown: undefined, model: 'acme/famB-4.5' })
})

t.test('otherwise the error names the default model', async t => {
  t.match((await ask('famC', {})).thrown, { code: 'invalid_body', message: /default .* is "acme\/famC-5\.5"/ })
})

t.test('a given model stays, and a model that is not a string is refused', async t => {
  t.match(await ask('famB', { model: 'other' }), { thrown: undefined, model: 'other' })
  t.match((await ask('famB', { model: 1 })).thrown, { code: 'invalid_body', details: { param: 'model' } })
})
