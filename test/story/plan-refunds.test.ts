import t, { type Test } from 'tap'
import { renewOperation } from '../../core/ledger/operations.ts'
import { Balances } from '../../core/keys/balances.ts'
import { NANO } from '../../core/money/credits.ts'
import { expireHolds } from '../gateway.ts'
import { operate } from '../admin.ts'
import { notes, Payer } from '../payer.ts'

const OVER = { status: 409, json: { error: { message: /in windows that are over; it can be refunded as credits/ } } }

/** A key with 10 credits and a plan of 20 a month. */
async function planned(t: Test) {
  const office = await operate(t)
  const { changes, plans } = office.gateway.gateway.keys
  const { key, secret } = await changes.create({
    type: 'famC',
    name: '',
    credits: 10n * NANO,
    expiresAt: undefined,
  })
  const terms = { windows: [{ credits: '20', per: 'month' }], then: 'credits', until: '30d' } as const
  await plans.set({ account: key.account, id: 'plan' }, terms)
  const payer = new Payer(office.gateway, key, secret)
  const change = (what: string, body: object) => office.api('POST', `/balances/${payer.account}/plan${what}`, body)
  const refund = (id: string, more = {}) => office.api('POST', `/entries/${id}/refund`, { reason: 'sorry', ...more })
  return { ...office, payer, terms, change, refund }
}

const CHANGES: readonly (readonly [what: string, path: string, body: object])[] = [
  ['reset', '/reset', { window: 1, reason: 'x' }],
  ['ended', '/end', { reason: 'x' }],
  ['replaced', '', { plan: { windows: [{ credits: '20', per: 'month' }], then: 'credits' }, reason: 'x' }],
]

for (const [what, path, body] of CHANGES)
  t.test(`a refund to a window that was ${what} is refused, and can be made as credits`, async t => {
    const { payer, change, refund, gateway } = await planned(t)
    const id = await payer.pay(7n * NANO, 7n * NANO)
    t.match(await change(path, body), { status: 200 })
    t.match(await refund(id), OVER, 'before another request')
    t.match(await refund(id, { as: 'credits' }), { status: 200, json: { refunded: '7', credits: '7', plan: '0' } })
    t.match(await gateway.balance(payer.secret), { balance: 17 })
    t.match(await refund(id), { status: 200, json: { refunded: '0' } }, 'a repeated one says so')
  })

t.test('a refused refund of a reaped request does not end it', async t => {
  const { payer, change, refund, gateway } = await planned(t)
  const { ledger } = gateway.gateway
  const hold = await payer.hold(3n * NANO)
  Object.assign(hold.request, { floor: () => ({ charge: NANO, tokens: 1, notes: notes({}) }) })
  await ledger.scripts.run(renewOperation(hold, 60_000, ledger.scripts.keys))
  await expireHolds(ledger, payer.account)
  await ledger.background.reap()
  t.match(await change('/reset', { window: 1, reason: 'x' }), { status: 200 })
  t.match(await refund(hold.id), OVER)
  ledger.settle(hold, { charge: 3n * NANO, tokens: 1, kind: 'settle', notes: notes({}) })
  await ledger.scripts.answered()
  const [entry] = await ledger.reads.history({ account: payer.account }, { count: 1 })
  t.match(entry, { kind: 'late', charge: 0n, plan: { covered: 3n * NANO } })
})

t.test('a refund names the balance that it went back to, which its key has left', async t => {
  const { payer, refund, gateway, api } = await planned(t)
  const { ledger, keys } = gateway.gateway
  const id = await payer.pay(2n * NANO, 2n * NANO)
  await ledger.background.archiveAll()
  const to = await new Balances(ledger, Date.now).create({ name: '', externalId: '', metadata: {}, credits: 3n * NANO })
  await keys.changes.move(payer.id, to)
  t.match(await refund(id), { status: 200, json: { key: payer.id, balance_id: payer.account, balance: '10' } })
  t.match(
    (await api('GET', `/requests/${id}`)).json.sentences.at(-1),
    new RegExp(`went back to ${payer.account}: sorry`),
  )
})
