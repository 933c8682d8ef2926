import t from 'tap'
import { operate } from '../admin.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const STATEMENT = '/api/v1/key-info/history?kind=all'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

t.test('a customer reads every change of the balance in one list that agrees with key info', async t => {
  const upstream = await ScriptedUpstream.start(t)
  const usage = { prompt_tokens: 30, completion_tokens: 10 }
  upstream.script = (_received, res) => json(res, { choices: [{ finish_reason: 'stop' }], usage })
  const { gateway: g, api } = await operate(t, {}, { upstream: upstream.url })
  const key = await g.key('famC', 5n)
  const id = await g.id(key)
  const first = await g.call(CHAT, { key, body: BODY })
  const request = first.headers.get('x-request-id') ?? ''
  t.equal(first.status, 200)
  await g.gateway.ledger.background.archiveAll()
  const { json: made } = await api('POST', '/codes', { kind: 'credits', credits: '2' })
  t.equal((await g.call('/api/v1/redeem', { key, body: { code: made.codes[0].code } })).status, 200)
  t.equal((await api('POST', `/keys/${id}/deduct`, { credits: '1', reason: 'given by mistake' })).status, 200)
  t.equal((await api('POST', `/entries/${request}/refund`, { reason: 'slow' })).status, 200)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  await g.settled(key)
  await g.gateway.ledger.background.archiveAll()

  const { json: page } = await g.call(STATEMENT, { key })
  t.match(page.data, [
    { number: 6, type: 'charge', amount: -0.00024, balance_after: 5.99976, model: 'acme/famC-5.5', corrects: null },
    { number: 5, type: 'refund', amount: 0.00024, balance_after: 6, id: request, reason: 'slow' },
    { number: 4, type: 'deduction', amount: -1, balance_after: 5.99976, reason: 'given by mistake' },
    { number: 3, type: 'code', amount: 2, amount_nano: '2000000000', reason: /^code_/ },
    { number: 2, type: 'charge', amount: -0.00024, id: request, begun_at: /T/, booked_at: /T/ },
    { number: 1, type: 'grant', amount: 5, balance_after: 5 },
  ])
  const balance = await g.balance(key)
  t.match(page.sums, { booked: 5.99976, balance: balance['balance'], held: 0, not_booked: 0 })
  const two = (await g.call(`${STATEMENT}&page_size=2`, { key })).json
  t.match(two, { has_more: true, data: [{ number: 6 }, { number: 5 }] })
  const rest = (await g.call(`${STATEMENT}&page_size=50&cursor=${two.next_cursor}`, { key })).json
  t.strictSame([...two.data, ...rest.data], page.data)
  const csv = (await g.call(`${STATEMENT}&format=csv`, { key })).text.trim().split('\n')
  t.match(csv, [/^"number","type",/, /^6,"charge",/, /^5,"refund",/])
  t.equal(csv.length, 7)
  t.match((await api('GET', `/keys/${id}/statement`)).json.data, [{ number: 6 }, { number: 5 }])
  t.equal((await api('GET', `/keys/${id}/statement?format=csv`)).text.trim(), csv.join('\n'), 'operators read the same')

  t.match(await g.call(`${STATEMENT}&cursor=7`, { key }), { status: 400, json: { error: { param: 'cursor' } } })
  t.match(await g.call(`${STATEMENT}&model=x`, { key }), { status: 400, json: { error: { param: 'model' } } })
  t.match(await g.call(`${STATEMENT}s`, { key }), { status: 400, json: { error: { param: 'kind' } } })
})

t.test('what is held and what is not booked yet is told beside the statement', async t => {
  const upstream = await ScriptedUpstream.start(t)
  let finish: (() => void) | undefined
  upstream.script = async (_received, res) => {
    await new Promise<void>(resolve => (finish = resolve))
    json(res, { choices: [{ finish_reason: 'stop' }], usage: { prompt_tokens: 30, completion_tokens: 10 } })
  }
  const { gateway: g } = await operate(
    t,
    {},
    { upstream: upstream.url, edit: file => file.set('ledger.archiveEvery', '1h') },
  )
  const key = await g.key('famC', 5n)
  const running = g.call(CHAT, { key, body: BODY })
  while (!finish) await new Promise(resolve => setImmediate(resolve))
  const during = (await g.call(STATEMENT, { key })).json.sums
  t.ok(during.held > 0)
  t.equal(during.not_booked, 0)
  t.equal(during.booked, 5)
  t.equal(BigInt(during.exact.balance) + BigInt(during.exact.held), BigInt(during.exact.booked))
  finish()
  await running
  await g.settled(key)
  const after = (await g.call(STATEMENT, { key })).json.sums
  t.match(after, { booked: 5, held: 0, balance: 4.99976, not_booked: 0.00024 })
})
