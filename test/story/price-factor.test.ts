/** What customers pay of a price: factors of key types and of keys, free models, and charges below their cost. */
import t, { type Test } from 'tap'
import { operate } from '../admin.ts'
import { audit } from '../../core/ledger/audit.ts'
import type { Edit } from '../gateway-file.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'
const EXACT = { input: 2, output: 10 }

async function shop(t: Test, edit: Edit, more: object = {}) {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    json(res, {
      choices: [{ message: { content: 'x' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 1000, completion_tokens: 77, prompt_tokens_details: { cached_tokens: 100 } },
    })
  const office = await operate(t, {}, { upstream: upstream.url, edit, ...more })
  const buy = (key: string) => office.gateway.call(CHAT, { key, body: BODY })
  return { ...office, buy }
}

t.test(
  'a factor of a key type and one of a key multiply prices exactly, and the audit recomputes each charge',
  async t => {
    const edit: Edit = file => file.set('keyTypes.famC.priceFactor', 0.85).set('prices.famC-m', { ...EXACT, cacheRead: 0.2 }).set('keyTypes.famC.models', [{ id: MODEL, price: 'famC-m', maxOutput: 1000, reasoning: 'none' }]) // prettier-ignore
    const { gateway, api, buy } = await shop(t, edit)
    const plain = await gateway.key('famC', 10n)
    const half = await gateway.key('famC', 10n)
    const id = await gateway.id(half)
    t.match(await api('PATCH', `/keys/${id}`, { limits: { priceFactor: 0.5 } }), { json: { limits: { priceFactor: '0.5' } } }) // prettier-ignore
    for (const key of [plain, half]) {
      t.match(await buy(key), { status: 200 })
      await gateway.settled(key)
    }
    // 900 at 2, 100 at 0.2 and 77 at 10 a million, times the factors.
    const full = 900 * 2000 + 100 * 200 + 77 * 10_000
    const charged = async (key: string): Promise<string> => (await gateway.history(key))[0]?.['cost_nano']
    t.equal(await charged(plain), String((full * 85) / 100))
    t.equal(await charged(half), String((full * 425) / 1000))
    const { json: info } = await gateway.call('/api/v1/key-info', { key: half })
    t.match(info.prices, [{ input: '0.85', cache_read: '0.085', output: '4.25', version: /^[0-9a-f]{12}\*0\.5$/ }])
    await gateway.gateway.ledger.background.archiveAll()
    const { drifts, repriced, unversioned } = await audit(
      gateway.gateway.ledger,
      [await gateway.id(plain), id],
      'charges',
    )
    t.match({ drifts, repriced, unversioned }, { drifts: [], repriced: 2, unversioned: 0 })
    t.match(await api('PATCH', `/keys/${id}`, { limits: { priceFactor: 0.12345 } }), { status: 400 })
    t.match(await api('PATCH', `/keys/${id}`, { limits: { priceFactor: -1 } }), { status: 400 })
  },
)

t.test('a model that is free is served to a key without credits, and counts as a request', async t => {
  const { gateway, buy } = await shop(t, file => file.set('keyTypes.famC.priceFactor', 0).set('keyTypes.famC.plan', { windows: [{ requests: 2, per: 'day' }] })) // prettier-ignore
  const key = await gateway.key('famC', 0n)
  for (const status of [200, 200, 429]) t.match(await buy(key), { status })
  await gateway.settled(key)
  t.match(await gateway.history(key), [{ cost_nano: '0' }, { cost_nano: '0' }])
  const { gateway: other, buy: buyThere } = await shop(t, file => file.set('keyTypes.famC.priceFactor', 0))
  const poor = await other.key('famC', 0n)
  t.match(await buyThere(poor), { status: 200 }, 'without a plan too')
})

t.test('a request that is charged less than it cost is told, unless its key type ignores it', async t => {
  for (const [onLoss, told] of [
    ['warn', 1],
    ['ignore', 0],
  ] as const) {
    // prettier-ignore
    const edit: Edit = file => file.set('prices.dear', { input: 900, output: 900 }).set('upstreams.famC.cost', { '*': 'dear' }).set('keyTypes.famC.onLoss', onLoss) // prettier-ignore
    const { gateway, buy } = await shop(t, edit)
    const key = await gateway.key('famC', 10n)
    t.match(await buy(key), { status: 200 })
    await gateway.settled(key)
    t.equal(gateway.gateway.meter.belowCost, told, onLoss)
  }
})

t.test('the list of models of a key shows only what it may use, at its prices', async t => {
  const { gateway, api } = await shop(t, file => file.stage('models', { prices: true }))
  const key = await gateway.key('famC', 1n)
  const models = async (): Promise<any[]> => (await gateway.call('/v1/models', { key, method: 'GET' })).json.data
  const [first] = await models()
  t.ok((await models()).length > 1)
  await api('PATCH', `/keys/${await gateway.id(key)}`, { limits: { models: [first.id], priceFactor: 2 } })
  const own = await models()
  t.equal(own.length, 1)
  t.equal(Number(own[0].pricing.input), 2 * Number(first.pricing.input))
})
