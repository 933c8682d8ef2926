/** Balances in the admin API: creating, finding and changing them. Several keys may spend from one. */
import { formatCredits } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { creditOperations } from './credits.ts'
import { keyPage } from './key-list.ts'
import { amountOf, balanceOf, type Call, noting, type Operation, operation, wrongCursor } from './operation.ts'
import { PLAN_OPERATIONS } from './plans.ts'
import { reportsOn } from './reports.ts'
import {
  BALANCE,
  BALANCE_COLUMNS,
  GIVEN_AMOUNT,
  GIVEN_EXTERNAL_ID,
  GIVEN_METADATA,
  GIVEN_NAME,
  KEY,
  KEY_COLUMNS,
} from './schemas.ts'

/** Returns a balance as operators see it. */
async function viewOf(call: Call, id?: string) {
  const [view] = await operator.balanceViews(call.office.ledger, [await balanceOf(call, id)])
  return view
}

function balancesOf({ office }: Call): operator.Balances {
  return new operator.Balances(office.ledger, office.now)
}

const create = operation({
  method: 'POST',
  path: '/balances',
  summary: 'Create a balance, from which several keys may spend.',
  scope: 'keys',
  status: 201,
  creates: 'grant',
  body: {
    type: 'object',
    additionalProperties: false,
    properties: {
      name: { ...GIVEN_NAME, default: '' },
      external_id: { ...GIVEN_EXTERNAL_ID, default: '' },
      credits: GIVEN_AMOUNT,
      metadata: { ...GIVEN_METADATA, default: {} },
    },
  },
  reply: BALANCE,
  async run(call): Promise<{ readonly id: string }> {
    const { name, external_id: externalId, credits: given, metadata } = call.body
    const credits = given === undefined ? 0n : amountOf(given)
    const details = { name, external_id: externalId, credits: formatCredits(credits) }
    const also = (id: string) => noting(call, { id }, { action: 'balance.create', target: id, details })
    const wish = { name, externalId, credits, metadata: metadata as Record<string, string> }
    return { id: await balancesOf(call).create(wish, also) }
  },
  show: async ({ id }: { id: string }, call) => viewOf(call, id),
})

const list = operation({
  method: 'GET',
  path: '/balances',
  summary: 'List balances, the newest first. The balance of a key that was created alone has the id of the key.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      search: {
        type: 'string',
        maxLength: 200,
        description: 'Part of the id, the name or the external id, or of those of a key that spends from it.',
      },
      external_id: { type: 'string', maxLength: 100, description: 'Exactly this external id.' },
    },
  },
  reply: BALANCE,
  columns: BALANCE_COLUMNS,
  async page(call, cursor, limit) {
    const { accounts } = call.office.ledger.records
    if (cursor !== undefined && !(await operator.orUnavailable(accounts.get(cursor)))) throw wrongCursor()
    const { search = '', external_id: externalId } = call.query
    const text = search === '' ? undefined : search
    const found = await operator.orUnavailable(accounts.list({ text, externalId, after: cursor, count: limit + 1 }))
    const shown = found.slice(0, limit)
    const data = await operator.balanceViews(call.office.ledger, shown)
    return { data: data as never[], next: found.length > limit ? shown.at(-1)?.id : undefined }
  },
})

const show = operation({
  method: 'GET',
  path: '/balances/{id}',
  summary: 'Show a balance.',
  scope: 'read',
  reply: BALANCE,
  run: call => viewOf(call),
})

const edit = operation({
  method: 'PATCH',
  path: '/balances/{id}',
  summary: 'Change the name, the external id or the metadata of a balance. Members that are absent stay as they are.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    minProperties: 1,
    expected: 'an object with name, external_id or metadata',
    properties: { name: GIVEN_NAME, external_id: GIVEN_EXTERNAL_ID, metadata: GIVEN_METADATA },
  } as const,
  reply: BALANCE,
  async run(call) {
    const { name, external_id: externalId, metadata } = call.body
    const before = await balanceOf(call)
    const was = { name: before.name, external_id: before.externalId, metadata: before.metadata }
    const also = noting(
      call,
      {},
      { action: 'balance.edit', target: before.id, details: { before: was, after: call.body } },
    )
    const wish = { name, externalId, metadata }
    await balancesOf(call).edit(before.id, wish, also)
    return viewOf(call)
  },
})

const keys = operation({
  method: 'GET',
  path: '/balances/{id}/keys',
  summary: 'List the keys that spend from a balance.',
  scope: 'read',
  reply: KEY,
  columns: KEY_COLUMNS,
  async page(call, cursor, limit) {
    const { id: account } = await balanceOf(call)
    return keyPage(call, { account }, { cursor, limit })
  },
})

/** All of them. */
export const BALANCE_OPERATIONS: readonly Operation[] = [
  create,
  list,
  show,
  edit,
  keys,
  ...creditOperations('balance'),
  ...PLAN_OPERATIONS,
  ...reportsOn('balance'),
]
