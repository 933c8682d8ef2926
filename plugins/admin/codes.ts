/** Redeem codes in the admin API. */
import { formatCredits, GatewayError } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { invalidBody, isoTime } from 'tollgate/plugin/operator'
import {
  amountOf,
  type Call,
  futureOf,
  mapInTurns,
  noting,
  type Operation,
  operation,
  shownId,
  wrongCursor,
} from './operation.ts'
import { CODE, GIVEN_AMOUNT, GIVEN_NAME, GIVEN_TIME, NEW_CODE, shape } from './schemas.ts'

/** Most codes of one batch. */
const BATCH_MAX = 10_000
const DAY_MS = 86_400_000

function view(code: operator.Code, now: number) {
  return {
    id: code.id,
    hint: code.hint,
    kind: code.kind,
    type: code.type,
    batch: code.batch,
    credits: formatCredits(code.amount),
    key_days: code.lifetimeMs === undefined ? null : code.lifetimeMs / DAY_MS,
    status: operator.codeState(code, now),
    created_at: isoTime(code.createdAt),
    expires_at: isoTime(code.expiresAt),
    used_at: isoTime(code.usedAt),
    used_by: code.key ?? null,
  }
}

const create = operation({
  method: 'POST',
  path: '/codes',
  summary: 'Create a batch of redeem codes: all or none. The reply has the codes, which are shown only once.',
  scope: 'keys',
  status: 201,
  creates: 'secrets',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['kind'],
    properties: {
      kind: {
        enum: operator.CODE_KINDS,
        description: '`credits` or a `plan` for a key that exists, or a new `key`.',
      },
      type: {
        type: 'string',
        maxLength: 64,
        default: '',
        expected: 'the name of a key type',
        description: 'Of the new key, of the keys that may redeem it, or whose plan it gives to keys of this type.',
      },
      credits: { ...GIVEN_AMOUNT, description: 'May be left out for a new key of a type with a plan.' },
      count: { type: 'integer', minimum: 1, maximum: BATCH_MAX, default: 1 },
      batch: { ...GIVEN_NAME, default: '' },
      expires_at: { ...GIVEN_TIME, default: null },
      key_days: {
        type: ['integer', 'null'],
        minimum: 1,
        maximum: 36_500,
        default: null,
        description: 'Days for which a new key is valid, from when it is redeemed.',
      },
    },
  },
  reply: shape('NewCodes', { codes: { type: 'array', items: NEW_CODE } }),
  async run(call) {
    const { kind, type, count, batch, expires_at: expires, key_days: days } = call.body
    const { config, codes, now } = call.office
    if (type !== '' && !config.keyTypes.has(type)) throw invalidBody(`There is no key type "${type}".`, 'type')
    const hasPlan = config.keyTypes.get(type)?.plan !== undefined
    if (kind !== 'credits' && type === '')
      throw invalidBody(`"type" is missing: a code for a ${kind} needs one.`, 'type')
    if (kind === 'plan' && config.keyTypes.get(type)?.plan?.until === undefined)
      throw invalidBody(`The key type "${type}" has no plan that ends, which a code could extend.`, 'type')
    const { credits } = call.body
    if (kind === 'plan' && credits !== undefined) throw invalidBody('A code for a plan has no "credits".', 'credits')
    if (kind !== 'plan' && credits === undefined && !(kind === 'key' && hasPlan))
      throw invalidBody('"credits" is missing.', 'credits')
    if (kind !== 'key' && days !== null) throw invalidBody('Only a new key has "key_days".', 'key_days')
    const amount = credits === undefined ? 0n : amountOf(credits)
    const wish = {
      kind,
      type,
      batch,
      amount,
      lifetimeMs: days === null ? undefined : days * DAY_MS,
      expiresAt: expires === null ? undefined : futureOf(expires, now()),
    }
    const bytes = call.once.bytes()
    const details = { kind, count, credits: formatCredits(amount), ...(type && { type }), ...(batch && { batch }) }
    let ids: string[] = []
    await codes.create(
      wish,
      count,
      (sql, created) => {
        ids = created.map(({ id }) => id)
        return noting(call, { ids }, { action: 'codes.create', details })(sql)
      },
      () => operator.newCodeText(bytes),
    )
    return { ids }
  },
  async show({ ids }: { ids: string[] }, call) {
    const { ledger, now } = call.office
    const bytes = call.once.bytes()
    const found = await operator.orUnavailable(ledger.records.codes.withIds(ids))
    const rows = await mapInTurns(ids, id => {
      const code = operator.newCodeText(bytes)
      return { ...view(found.get(id) as operator.Code, now()), code }
    })
    return { codes: rows }
  },
})

const list = operation({
  method: 'GET',
  path: '/codes',
  summary: 'List redeem codes, newest first.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      search: { type: 'string', maxLength: 200, description: 'Part of the id, the batch, the hint, or of the key.' },
      batch: { type: 'string', maxLength: 200 },
      status: { enum: operator.CODE_STATES },
    },
  },
  reply: CODE,
  columns: Object.keys(CODE.properties),
  async page(call, cursor, limit) {
    const { ledger, now } = call.office
    const { search, batch, status } = call.query
    if (cursor !== undefined && !(await operator.orUnavailable(ledger.records.codes.get(cursor)))) throw wrongCursor()
    const wish = { text: search || undefined, batch, state: status, now: now(), after: cursor, count: limit + 1 }
    const found = await operator.orUnavailable(ledger.records.codes.list(wish))
    const data = found.slice(0, limit).map(code => view(code, now()))
    return { data, next: found.length > limit ? data.at(-1)?.id : undefined }
  },
})

async function cancelled(call: Call, which: { id: string } | { batch: string }): Promise<object> {
  const { ledger, now } = call.office
  const [target, details] = 'id' in which ? [which.id, {}] : ['', which]
  const also = noting(call, {}, { action: 'codes.cancel', target, details })
  return { cancelled: await operator.orUnavailable(ledger.records.codes.cancel(which, now(), also)) }
}

const CANCELLED = shape('Cancelled', { cancelled: { type: 'integer', description: 'The number of codes.' } })

const cancel = operation({
  method: 'POST',
  path: '/codes/{id}/cancel',
  summary: 'Cancel a code that is not used.',
  scope: 'keys',
  reply: CANCELLED,
  async run(call) {
    const id = call.params['id'] ?? ''
    const code = await operator.orUnavailable(call.office.ledger.records.codes.get(id))
    if (!code) throw new GatewayError('not_found', { message: `There is no code ${shownId(id)}.` })
    return cancelled(call, { id })
  },
})

const cancelBatch = operation({
  method: 'POST',
  path: '/codes/cancel',
  summary: 'Cancel all codes of a batch that are not used.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['batch'],
    properties: { batch: { ...GIVEN_NAME, minLength: 1, expected: 'the name of a batch' } },
  },
  reply: CANCELLED,
  run: call => cancelled(call, { batch: call.body.batch }),
})

/** All of them. */
export const CODE_OPERATIONS: readonly Operation[] = [create, list, cancelBatch, cancel]
