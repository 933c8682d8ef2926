import t from 'tap'
import models from '../../plugins/models.ts'
import type { Reply } from 'tollgate/plugin'
import { drive } from 'tollgate/testing'
import { startGateway } from '../gateway.ts'
import { at, hostWith, keyOf } from './facts.ts'

const list = async (path: string, query = '', find: () => unknown = () => undefined, headers = {}) => {
  const exchange = at(path, { method: 'GET', query: new URLSearchParams(query), headers })
  const { given, thrown } = await drive(models, { exchange, host: hostWith({ keys: { findRecent: find } }) })
  return { thrown, body: given && JSON.parse(String((given as Reply).body)) }
}

t.test('without a key, all models are listed; a key sees its own; a failing store hides none', async t => {
  const all = (await list('/v1/models')).body.data.length
  const headers = { 'x-api-key': 'sk-a' }
  t.equal((await list('/v1/models', '', () => keyOf('famC'), headers)).body.data.length, 4)
  t.equal((await list('/v1/models', '', () => Promise.reject(new Error('away')), headers)).body.data.length, all)
})

t.test('paging ends', async t => {
  const first = (await list('/v1/models', 'limit=2')).body
  t.match(first, { has_more: true, data: [{}, {}] })
  const next = (await list('/v1/models', `limit=2&after_id=${first.last_id}`)).body
  t.notMatch(next.first_id, first.first_id)
  t.match((await list('/v1/models', 'after_id=unknown')).body, { data: [], has_more: false })
})

t.test('one model by its id, escaped or not, and a 404 for an unknown one', async t => {
  t.match((await list('/v1/models/acme%2FfamC-5.5')).body, { id: 'acme/famC-5.5', max_tokens: 128_000 })
  t.match((await list('/v1/models/acme/famC-5.5')).body, { id: 'acme/famC-5.5' })
  t.match((await list('/v1/models/none')).thrown, { code: 'model_not_found' })
})

t.test('models have their prices if the operator wants so, each key type its own', async t => {
  const g = await startGateway(t, {
    edit: file => file.stage('models', { prices: true }).model('famC', 'acme/famC-5.5', { price: 'small' }),
  })
  const key = await g.key('famC')
  const { json } = await g.call('/v1/models/acme%2FfamC-5.5', { key })
  t.match(json.pricing, { unit: 'credits per million tokens', input: '1', cache_read: '0.1', output: '5' })
  const bare = await startGateway(t)
  t.equal((await bare.call('/v1/models')).json.data[0].pricing, undefined)
})
