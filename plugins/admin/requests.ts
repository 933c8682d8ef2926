/** Single requests in the admin API: their stories, why they failed, and refunds. */
import { formatCredits, GatewayError } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { isoTime } from 'tollgate/plugin/operator'
import { auditEntry, namesOf, type Operation, operation } from './operation.ts'
import { AMOUNT, COUNT, GIVEN_NAME, shape, TEXT, TIME } from './schemas.ts'

const TRY = { title: 'Try', type: 'object', required: ['account'], properties: { account: TEXT } } as const
const FAILURE = shape('Failure', {
  id: { type: 'string', description: 'The id of the request.' },
  at: TIME,
  key: TEXT,
  key_name: { type: 'string', description: "The operator's name of the key, or the end of its secret." },
  who: { type: 'string', description: 'The party that failed: client, key, gateway, account or provider.' },
  code: TEXT,
  status: { type: ['integer', 'null'], description: 'The status that the client got.' },
  model: TEXT,
  account: { type: 'string', description: 'The account of the upstream that was asked last.' },
  words: { type: ['string', 'null'], description: 'What the provider said, without what repeats the request.' },
  message: { type: ['string', 'null'], description: 'What the client read.' },
  alike: { ...COUNT, description: 'Requests that the row stands for.' },
})
const STORY = shape('Story', {
  id: TEXT,
  key: TEXT,
  ended_at: TIME,
  who: { type: ['string', 'null'] },
  code: { type: ['string', 'null'] },
  words: { type: ['string', 'null'] },
  attempts: { type: 'array', items: TRY },
  accounts: { type: 'array', items: shape('AccountState', { account: TEXT, state: TEXT }) },
  charge: { ...AMOUNT, description: 'What its customer paid, from credits or from a plan.' },
  paid_from: { enum: operator.PAID_FROM },
  cost: { type: ['string', 'null'], description: 'What it cost the operator.' },
  margin: { type: ['string', 'null'], description: 'What was paid less that cost.' },
  refunded: { type: ['string', 'null'], description: 'Credits that were given back.' },
  sentences: { type: 'array', items: TEXT },
})
const REFUND = shape('Refund', {
  id: { type: 'string', description: 'The refunded entry.' },
  key: TEXT,
  balance_id: { type: 'string', description: 'The balance that it went back to. Its key may have left it since.' },
  refunded: { type: 'string', description: 'Credits. 0 if the entry was refunded before.' },
  credits: { type: 'string', description: 'What of it went to the balance.' },
  plan: { type: 'string', description: 'What of it went back to windows of the plan.' },
  balance: AMOUNT,
})

const story = operation({
  method: 'GET',
  path: '/requests/{id}',
  summary: 'Tell the story of a request: what was decided and why, the accounts that were asked, and its charge.',
  scope: 'read',
  reply: STORY,
  async run({ office, params }) {
    const { config, ledger } = office
    const id = params['id'] ?? ''
    const found = operator.isId(id)
      ? await operator.orUnavailable(operator.requestStory(ledger.records, config, id))
      : undefined
    if (!found) throw new GatewayError('not_found', { message: operator.NO_STORY })
    return found
  },
})

function failureView({ at, status, words, story: told, ...rest }: operator.RecordedFailure) {
  return { ...rest, at: isoTime(at), status: status ?? null, words: words ?? null, message: told.message ?? null }
}

const failures = operation({
  method: 'GET',
  path: '/failures',
  summary: 'List why requests failed, newest first. Requests of one key that fail alike in one minute share rows.',
  scope: 'read',
  query: {
    type: 'object',
    properties: { key: { type: 'string', maxLength: 100 }, code: { type: 'string', maxLength: 50 } },
  },
  reply: FAILURE,
  columns: FAILURE.required,
  async page({ office, query }, cursor, limit) {
    if (cursor !== undefined && !operator.isId(cursor))
      throw new GatewayError('bad_request', { message: '"cursor" must be the next_cursor of a page.', param: 'cursor' })
    const filter = { before: cursor, key: query.key, code: query.code }
    const found = await operator.orUnavailable(office.ledger.records.failures.list(filter, limit + 1))
    const names = await namesOf(
      office.ledger,
      found.map(({ key }) => key),
    )
    const data = found.slice(0, limit).map(each => ({ ...failureView(each), key_name: names.get(each.key) ?? '' }))
    return { data, next: found.length > limit ? data.at(-1)?.id : undefined }
  },
})

const refund = operation({
  method: 'POST',
  path: '/entries/{id}/refund',
  summary: 'Refund an entry of a history to the purses that have paid it. A repeated refund gives nothing.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['reason'],
    properties: {
      reason: { ...GIVEN_NAME, minLength: 1, expected: 'a reason of 1 to 200 characters' },
      as: { enum: ['credits'], description: 'Gives back as credits what a plan has paid.' },
    },
  },
  reply: REFUND,
  async run(call) {
    const id = call.params['id'] ?? ''
    const { reason, as } = call.body
    const audit = (target: string, details: object): operator.AuditEntry =>
      auditEntry(call, { action: 'key.refund', target, details })
    const done = operator.isId(id)
      ? await operator.refund(call.office.ledger, id, { reason, audit, asCredits: as === 'credits' })
      : undefined
    if (!done || 'owner' in done) throw new GatewayError('not_found', { message: 'There is no entry with this id.' })
    return {
      id,
      key: done.key,
      balance_id: done.account,
      ...operator.refundView(done.given),
      balance: formatCredits(done.balance),
    }
  },
})

/** All of them. */
export const REQUEST_OPERATIONS: readonly Operation[] = [story, failures, refund]
