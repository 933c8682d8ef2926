/** Finding keys in the admin API. */
import { formatCredits, GatewayError } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { keyView } from './keys.ts'
import { type Call, type Operation, operation, wrongCursor } from './operation.ts'
import { KEY, KEY_COLUMNS, shape } from './schemas.ts'

const FILTERS = {
  search: {
    type: 'string',
    maxLength: 200,
    description: 'Part of the id, the name, the batch, the label or the hint. Never a whole secret.',
  },
  type: { type: 'string', maxLength: 64 },
  batch: { type: 'string', maxLength: 200 },
  status: {
    enum: operator.KEY_STATES,
    description:
      'Without it, all keys that are not deleted. A key that waits for the next period of its plan, or the next day of its limits, counts as active.',
  },
} as const

interface Filters {
  readonly search?: string | undefined
  readonly type?: string | undefined
  readonly batch?: string | undefined
  readonly status?: operator.KeyState | undefined
}

function searchOf({ search, type, batch, status }: Filters, now: number) {
  return { text: search === '' ? undefined : search, type, batch, state: status, now }
}

function cursorText({ id, value }: operator.KeyCursor): string {
  return value === undefined ? id : `${id}.${value}`
}

/** Reads a cursor. @throws GatewayError bad_request unless it is one of a list of keys */
async function placeOf(call: Call, cursor: string): Promise<operator.KeyCursor> {
  const [, id = '', value] = /^(key_[\w-]{1,60})(?:\.(-?\d{1,18}))?$/.exec(cursor) ?? []
  const key = id === '' ? undefined : await operator.orUnavailable(call.office.ledger.records.keys.get(id))
  if (!key) throw wrongCursor()
  return { id, value: value === undefined ? undefined : BigInt(value) }
}

/** Returns a page of the keys that a search finds. */
export async function keyPage(
  call: Call,
  search: Omit<operator.KeySearch, 'after' | 'count' | 'now'>,
  { cursor, limit }: { readonly cursor: string | undefined; readonly limit: number },
) {
  const { ledger, now } = call.office
  const after = cursor === undefined ? undefined : await placeOf(call, cursor)
  const wish = { ...search, now: now(), after, count: limit + 1 }
  const found = await operator.orUnavailable(ledger.records.keys.list(wish))
  const shown = found.slice(0, limit)
  const data = await Promise.all(shown.map(key => keyView(call, key)))
  const last = found.length > limit ? shown.at(-1) : undefined
  return { data: data as never[], next: last && cursorText(operator.cursorAt(last, search.sort ?? 'created')) }
}

const list = operation({
  method: 'GET',
  path: '/keys',
  summary: 'List keys.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      ...FILTERS,
      sort: {
        enum: operator.KEY_ORDERS,
        default: '-created',
        description: 'With a minus sign, the largest come first.',
      },
    },
  },
  reply: KEY,
  columns: KEY_COLUMNS,
  page(call, cursor, limit) {
    const { sort } = call.query
    return keyPage(call, { ...searchOf(call.query as Filters, call.office.now()), sort }, { cursor, limit })
  },
})

const totals = operation({
  method: 'GET',
  path: '/keys/totals',
  summary: 'Count the keys of a search, and add up what they were granted and charged.',
  scope: 'read',
  query: { type: 'object', additionalProperties: false, properties: FILTERS },
  reply: shape('Totals', {
    keys: { type: 'integer' },
    granted: { type: 'string' },
    used: { type: 'string' },
  }),
  async run(call) {
    const { ledger, now } = call.office
    const sums = await operator.orUnavailable(
      operator.keyTotals(ledger.records.database, searchOf(call.query as Filters, now())),
    )
    return { keys: sums.keys, granted: formatCredits(sums.granted), used: formatCredits(sums.settled) }
  },
})

const find = operation({
  method: 'POST',
  path: '/keys/find',
  summary: 'Find the key with a secret.',
  scope: 'read',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['key'],
    properties: { key: { type: 'string', maxLength: 200, expected: 'the secret of a key' } },
  },
  reply: KEY,
  async run(call) {
    const secret = call.body.key.trim()
    const key =
      operator.prefixOf(secret, call.office.config.keys.prefixes) !== undefined
        ? await call.office.keys.changes.record(secret)
        : undefined
    if (!key) throw new GatewayError('not_found', { message: 'There is no key with this secret.' })
    return keyView(call, key)
  },
})

/** All of them. They stand before those of single keys, whose paths match theirs. */
export const KEY_LISTS: readonly Operation[] = [list, totals, find]
