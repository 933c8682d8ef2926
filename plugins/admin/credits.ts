/** The balances of keys in the admin API. */
import { formatCredits } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { isoTime } from 'tollgate/plugin/operator'
import { keyView } from './keys.ts'
import { amountOf, type Call, keyOf, noting, type Operation, operation } from './operation.ts'
import { GIVEN_AMOUNT, GIVEN_NAME, GRANT, KEY, listOf, shape } from './schemas.ts'

/** Adds to a balance, or takes something back. */
async function credit(
  call: Call<unknown, { readonly credits: string | number; readonly reason?: string }>,
  action: 'topup' | 'deduct',
) {
  const { ledger } = call.office
  const { id, account } = await keyOf(call)
  const sum = amountOf(call.body.credits)
  const { reason = '' } = call.body
  const amount = action === 'topup' ? sum : -sum
  const done = { id, credited: formatCredits(amount) }
  const details = { credits: done.credited, ...(reason !== '' && { reason }) }
  const notes = { reason: action, ...(reason !== '' && { note: reason }) }
  const also = noting(call, done, { action: `key.${action}`, target: id, details })
  const added = await ledger.accounts.grant(account, { id: `api:${call.once.id}`, amount, notes }, also)
  const known = added ? undefined : await operator.orUnavailable(ledger.records.requests.find(call.once.id))
  if (known) throw new operator.RequestDone(known)
  return done
}

const CREDITED = shape('CreditedKey', { ...KEY.properties, credited: { type: 'string' } })

async function credited({ id, credited: amount }: { id: string; credited: string }, call: Call) {
  await call.office.keys.changes.bringUp([id])
  return { ...(await keyView(call, await keyOf(call, id))), credited: amount }
}

const topUp = operation({
  method: 'POST',
  path: '/keys/{id}/topup',
  summary: "Add to a key's balance.",
  scope: 'keys',
  creates: 'grant',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['credits'],
    properties: { credits: GIVEN_AMOUNT, reason: GIVEN_NAME },
  },
  reply: CREDITED,
  run: call => credit(call as never, 'topup'),
  show: credited,
})

const deduct = operation({
  method: 'POST',
  path: '/keys/{id}/deduct',
  summary: "Take something of a key's balance back, at most what is left.",
  scope: 'keys',
  creates: 'grant',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['credits', 'reason'],
    properties: {
      credits: GIVEN_AMOUNT,
      reason: { ...GIVEN_NAME, minLength: 1, expected: 'a reason of 1 to 200 characters' },
    },
  },
  reply: CREDITED,
  run: call => credit(call as never, 'deduct'),
  show: credited,
})

const REASONS: Readonly<Record<string, string>> = { created: 'created with the key', code: 'redeem code' }

const grants = operation({
  method: 'GET',
  path: '/keys/{id}/grants',
  summary: 'List what was added to the balance of a key and taken back, oldest first.',
  scope: 'read',
  reply: listOf(GRANT),
  async run(call) {
    const { account } = await keyOf(call)
    const all = await operator.orUnavailable(call.office.ledger.records.accounts.grants(account, 1))
    const data = all.map(({ id: grant, amount, at, notes }) => {
      const { reason = '', note = notes['code'] ?? '' } = notes
      return { id: grant, credits: formatCredits(amount), at: isoTime(at), reason: REASONS[reason] ?? reason, note }
    })
    return { object: 'list', data, has_more: false, next_cursor: null }
  },
})

/** All of them. */
export const CREDIT_OPERATIONS: readonly Operation[] = [topUp, deduct, grants]
