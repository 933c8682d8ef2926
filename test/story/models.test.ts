import t from 'tap'
import { startGateway, type TestGateway } from '../gateway.ts'

/** The deployment that the repository's gateway.yaml describes. */
const MODELS = {
  famA: ['large-5', 'large-4.8', 'large-4.7', 'large-4.6', 'medium-5', 'small-4.5'].map(name => `acme/famA-${name}`),
  famB: [
    'famB-4.5',
    'famB-4.3',
    'famB-4.20-0309-reasoning',
    'famB-4.20-0309-non-reasoning',
    'famB-4.20-multi-agent-0309',
    'famB-build-0.1',
    'famD-2.5-fast',
    'famB-4.5-latest',
    'famB-build-latest',
    'famB-3-mini',
    'famB-3-mini-fast',
  ].map(name => `acme/${name}`),
  famC: ['5.6-sol', '5.6-terra', '5.6-luna', '5.5'].map(name => `acme/famC-${name}`),
}

let g: TestGateway
t.before(async () => {
  g = await startGateway(t)
})

t.test('the list needs no key and has every model once', async t => {
  const { status, json } = await g.call('/v1/models')
  t.equal(status, 200)
  const ids = json.data.map((model: { id: string }) => model.id)
  t.equal(new Set(ids).size, ids.length)
  t.equal(ids.length, 6 + 11 + 4 + 24 - 4, 'four editor models are famB models, too')
  t.match(json, {
    object: 'list',
    has_more: false,
    first_id: 'acme/famA-large-5',
    data: [
      { object: 'model', type: 'model', display_name: String, created: Number, created_at: String, owned_by: 'acme' },
    ],
  })
})

t.test('a key gets its own list; a wrong key gets the list of all models', async t => {
  for (const [type, models] of Object.entries(MODELS)) {
    const { json } = await g.call('/v1/models', { key: await g.key(type) })
    t.same(
      json.data.map((model: { id: string }) => model.id),
      models,
      `${type}, in the order of the file`,
    )
  }
  const editor = await g.call('/v1/models', { headers: { 'x-api-key': await g.key('editor') } })
  t.equal(editor.json.data.length, 24, 'the table of 22 and 2 is the authoritative list')
  t.equal((await g.call('/v1/models', { key: 'sk-wrong' })).json.data.length, 41)
})

t.test('one model is found by its id, with the slash escaped or plain', async t => {
  for (const path of ['/v1/models/acme%2FfamB-4.5', '/v1/models/acme/famB-4.5'])
    t.match(await g.call(path), { status: 200, json: { id: 'acme/famB-4.5' } })
  t.equal((await g.call('/v1/models/acme%2Fnone')).status, 404)
  t.equal((await g.call('/v1/models/%zz')).status, 404)
})

t.test('paging ends', async t => {
  const seen: string[] = []
  let after = ''
  for (let pages = 0; pages < 20; pages++) {
    const { json } = await g.call(`/v1/models?limit=10${after && `&after_id=${encodeURIComponent(after)}`}`)
    seen.push(...json.data.map((model: { id: string }) => model.id))
    if (!json.has_more) break
    after = json.last_id
  }
  t.equal(seen.length, 41)
  t.match((await g.call('/v1/models?after_id=unknown')).json, { data: [], has_more: false })
})
