/** Credits in the admin API: added to balances, and taken back. */
import { formatCredits } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { isoTime } from 'tollgate/plugin/operator'
import { keyView } from './keys.ts'
import {
  amountOf,
  balanceOf,
  type Call,
  keyOf,
  noting,
  type Operation,
  operation,
  type SubjectKind,
  subjectOf,
  SUBJECTS,
  wholeList,
} from './operation.ts'
import {
  BALANCE,
  GIVEN_AMOUNT,
  GIVEN_DURATION,
  GIVEN_NAME,
  GIVEN_REASON,
  GRANT,
  KEY,
  listOf,
  shape,
} from './schemas.ts'

/** Adds to a balance, or takes something back. */
async function credit(
  call: Call<unknown, { readonly credits: string | number; readonly reason?: string; readonly extend_by?: string }>,
  action: 'topup' | 'deduct',
  kind: SubjectKind,
) {
  const { ledger } = call.office
  const { id, account } = await subjectOf(call, kind)
  const sum = amountOf(call.body.credits)
  const { reason = '' } = call.body
  const amount = action === 'topup' ? sum : -sum
  const done = { id, credited: formatCredits(amount) }
  const { extend_by: extendBy } = call.body
  const details = {
    credits: done.credited,
    ...(reason !== '' && { reason }),
    ...(extendBy !== undefined && { extend_by: extendBy }),
  }
  const notes = { reason: action, ...(reason !== '' && { note: reason }) }
  const extend =
    extendBy === undefined ? undefined : call.office.keys.changes.extension(id, operator.duration(extendBy))
  const note = noting(call, done, { action: `${kind}.${action}`, target: id, details })
  const also: operator.Also = async sql => {
    // A repeated request ends here.
    await note(sql)
    await extend?.(sql)
  }
  const added = await ledger.accounts.grant(account, { id: `api:${call.once.id}`, amount, notes }, also)
  return added ? done : call.once.repeat(ledger.records)
}

const CREDITED = {
  key: shape('CreditedKey', { ...KEY.properties, credited: { type: 'string' } }),
  balance: shape('CreditedBalance', { ...BALANCE.properties, credited: { type: 'string' } }),
} as const

/** Returns the view of what was credited. */
function creditedOf(kind: SubjectKind) {
  return async ({ id, credited }: { id: string; credited: string }, call: Call) => {
    if (kind === 'balance') {
      const [view] = await operator.balanceViews(call.office.ledger, [await balanceOf(call, id)])
      return { ...view, credited }
    }
    await call.office.keys.changes.bringUp([id])
    return { ...(await keyView(call, await keyOf(call, id))), credited }
  }
}

const EXTEND_BY = {
  ...GIVEN_DURATION,
  description: 'For how much longer the key is valid, from now or from its expiry on, whichever is later.',
}

/** What an operator may do, with its summary and what it takes for a key and for a balance. */
const ACTIONS = {
  topup: {
    key: [
      'Add to the balance of a key, and extend its validity if you like.',
      { reason: GIVEN_NAME, extend_by: EXTEND_BY },
    ],
    balance: ['Add to a balance.', { reason: GIVEN_NAME }],
    required: ['credits'],
  },
  deduct: {
    key: ['Take something of the balance of a key back, at most what is left.', { reason: GIVEN_REASON }],
    balance: ['Take something of a balance back, at most what is left.', { reason: GIVEN_REASON }],
    required: ['credits', 'reason'],
  },
} as const

function crediting(action: 'topup' | 'deduct', kind: SubjectKind): Operation {
  const { [kind]: [summary, more], required } = ACTIONS[action] // prettier-ignore
  return operation({
    method: 'POST',
    path: `${SUBJECTS[kind].path}/${action}`,
    summary,
    scope: 'keys',
    creates: 'grant',
    body: { type: 'object', additionalProperties: false, required, properties: { credits: GIVEN_AMOUNT, ...more } },
    reply: CREDITED[kind],
    run: call => credit(call as never, action, kind),
    show: creditedOf(kind),
  })
}

const REASONS: Readonly<Record<string, string>> = { created: 'created with it', code: 'redeem code' }

function grants(kind: SubjectKind): Operation {
  return operation({
    method: 'GET',
    path: `${SUBJECTS[kind].path}/grants`,
    summary: `List what was added to ${kind === 'key' ? 'the balance of a key' : 'a balance'} and taken back, oldest first.`,
    scope: 'read',
    reply: listOf(GRANT),
    async run(call) {
      const { account } = await subjectOf(call, kind)
      const all = await operator.orUnavailable(call.office.ledger.records.accounts.grants(account, 1))
      const data = all.map(({ id: grant, amount, at, notes }) => {
        const { reason = '', note = notes['code'] ?? '' } = notes
        const why = reason === 'plan' ? `plan ${notes['change']}` : (REASONS[reason] ?? reason)
        return { id: grant, credits: formatCredits(amount), at: isoTime(at), reason: why, note }
      })
      return wholeList(data)
    },
  })
}

/** What can be done with the credits of keys, or of balances. */
export function creditOperations(kind: SubjectKind): readonly Operation[] {
  return [crediting('topup', kind), crediting('deduct', kind), grants(kind)]
}
