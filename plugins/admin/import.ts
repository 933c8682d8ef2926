/** Importing keys in the admin API. */
import * as operator from 'tollgate/plugin/operator'
import { invalidBody, BOOLEAN, setting } from 'tollgate/plugin/operator'
import { amountOf, noting, type Operation, operation } from './operation.ts'
import { COUNT, GIVEN_AMOUNT, shape } from './schemas.ts'

/** Most keys of one request. */
const ROWS_MAX = 1000

const AMOUNT = { type: ['string', 'null'], description: 'Credits.' } as const

const importKeys = operation({
  method: 'POST',
  path: '/keys/import',
  summary:
    'Import keys of another gateway: all of them or, if one is refused, none. Keys that were imported before stay as they are, so the request may be repeated.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['keys'],
    properties: {
      keys: {
        type: 'array',
        minItems: 1,
        maxItems: ROWS_MAX,
        items: {
          type: 'object',
          additionalProperties: false,
          properties: Object.fromEntries(
            operator.IMPORT_COLUMNS.map(name => [name, { type: 'string', maxLength: 200 }]),
          ),
          expected: `an object with the texts ${operator.IMPORT_COLUMNS.join(', ')}`,
        },
      },
      type: { type: 'string', maxLength: 64, description: 'The key type of keys without one.' },
      per_credit: {
        ...GIVEN_AMOUNT,
        default: '1',
        description: 'How many of the units that the amounts are given in make one credit.',
      },
      dry_run: setting(BOOLEAN, false, 'Find out what would be done, and change nothing.'),
    },
  },
  reply: shape('Import', {
    dry_run: { type: 'boolean' },
    imported: COUNT,
    to_import: COUNT,
    known: { ...COUNT, description: 'Keys that are here already. They stay as they are.' },
    left_out: { ...COUNT, description: 'Deleted keys.' },
    new_balances: COUNT,
    joined_balances: { ...COUNT, description: 'Balances that exist and get keys.' },
    plans: { ...COUNT, description: 'New balances with a plan.' },
    credits_before: AMOUNT,
    credits_after: AMOUNT,
    refused: {
      type: 'array',
      items: {
        type: 'object',
        properties: { line: { ...COUNT, description: 'The place in `keys`, from 1 on.' }, reason: { type: 'string' } },
      },
    },
    in_force: { type: 'boolean' },
  }),
  async run(call) {
    const { ledger, config, now } = call.office
    const { keys, type, dry_run: isTrial, per_credit: given } = call.body
    if (type !== undefined && !config.keyTypes.has(type)) throw invalidBody(`There is no key type "${type}".`, 'type')
    const also = (result: operator.Imported) =>
      noting(call, {}, { action: 'key.import', details: operator.importDetails(result) })
    const wish = { config, now: now(), firstLine: 1, type, perCredit: amountOf(given, 'per_credit'), isTrial }
    return operator.importView(await operator.importRows(ledger, keys as operator.ImportRow[], wish, also), isTrial)
  },
})

/** All of them. */
export const IMPORT_OPERATIONS: readonly Operation[] = [importKeys]
