/** Keys in the admin API: creating, finding, changing and crediting them. */
import { formatCredits, GatewayError } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { duration, isoTime, invalidBody } from 'tollgate/plugin/operator'
import {
  amountOf,
  auditEntry,
  type Call,
  futureOf,
  keyOf,
  mapInTurns,
  noting,
  type Operation,
  operation,
} from './operation.ts'
import {
  CHANGED_KEY,
  GIVEN_AMOUNT,
  GIVEN_DURATION,
  GIVEN_EXTERNAL_ID,
  GIVEN_METADATA,
  GIVEN_NAME,
  GIVEN_TIME,
  KEY,
  NEW_KEY,
  shape,
} from './schemas.ts'

/** What `manage` means. */
const MANAGE =
  'Whether its owner may create other keys for the balance. Such a key has no cap and no limits of its own.'

/** Most keys of one batch. */
const BATCH_MAX = 10_000

/** Returns a key with its balance. */
export function keyView(call: Call, key: operator.RecordedKey) {
  const { ledger, config, now } = call.office
  return operator.keyView(ledger, key, config, now())
}

/** Returns a key after a change. */
async function changed(call: Call, reached: operator.Reached | 'unrecorded') {
  if (reached === 'unknown')
    throw new GatewayError('unavailable', {
      message: 'The database failed while this was recorded, so it may or may not have been done. Look at the key.',
    })
  return { ...(await keyView(call, await keyOf(call))), in_force: reached === 'store' || reached === 'unrecorded' }
}

interface CreatedKeys {
  readonly ids: readonly string[]
  readonly type: string
  readonly name: string
  readonly label: string
  readonly batch: string
  readonly credits: string
  readonly account: string | undefined
  readonly expiresAt: number | undefined
}

const create = operation({
  method: 'POST',
  path: '/keys',
  summary: 'Create a key, or a batch of keys: all or none. The reply has their secrets, which are shown only once.',
  scope: 'keys',
  status: 201,
  creates: 'secrets',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['type'],
    properties: {
      type: { type: 'string', maxLength: 64, expected: 'the name of a key type' },
      credits: {
        ...GIVEN_AMOUNT,
        description: 'Credits of a balance of its own. May be left out if the key type has a plan.',
      },
      balance_id: {
        type: 'string',
        maxLength: 64,
        expected: 'the id of a balance',
        description: 'The balance that the keys spend from, instead of `credits`.',
      },
      cap: { ...GIVEN_AMOUNT, description: 'The most that each key may use in its life, in credits.' },
      limits: operator.GIVEN_LIMITS,
      name: { ...GIVEN_NAME, default: '' },
      label: { ...GIVEN_NAME, default: '' },
      batch: { ...GIVEN_NAME, default: '' },
      expires_at: { ...GIVEN_TIME, default: null },
      expires_in: { ...GIVEN_DURATION, description: 'For how long they are valid, instead of `expires_at`.' },
      expires_from: {
        enum: ['creation', 'first_use'],
        default: 'creation',
        description: 'When `expires_in` begins.',
      },
      external_id: { ...GIVEN_EXTERNAL_ID, description: 'What the shop calls the new balances.' },
      metadata: { ...GIVEN_METADATA, default: {} },
      manage: { type: 'boolean', default: false, description: MANAGE },
      count: { type: 'integer', minimum: 1, maximum: BATCH_MAX, default: 1 },
    },
  },
  reply: shape('NewKeys', { keys: { type: 'array', items: NEW_KEY } }),
  async run(call): Promise<CreatedKeys> {
    const { type, name, label, batch, count, credits, balance_id: account, external_id: externalId, manage } = call.body
    const metadata = call.body.metadata as Record<string, string>
    const { config, keys, now } = call.office
    if (!config.keyTypes.has(type)) throw invalidBody(`There is no key type "${type}".`, 'type')
    const hasPlan = config.keyTypes.get(type)?.plan !== undefined
    if (!operator.isFunded({ credits, balance: account }, hasPlan))
      throw invalidBody('Send either "credits" or "balance_id".', 'credits')
    const given = call.body.cap === undefined ? undefined : amountOf(call.body.cap)
    const own = operator.limitsGiven(call.body.limits as operator.GivenLimits | undefined, given, config)
    const [limits, cap] = [own.limits ?? undefined, own.cap ?? undefined]
    const amount = credits === undefined ? 0n : amountOf(credits)
    if (account !== undefined && externalId !== undefined)
      throw invalidBody('"external_id" is for a new balance; the balance of "balance_id" has its own.', 'external_id')
    const validity = validityOf(call.body, now())
    const { expiresAt } = validity
    let done: CreatedKeys | undefined
    const properties = { type, name, label, batch, metadata, manage, limits, cap }
    const wish = { ...properties, credits: amount, account, externalId, ...validity }
    const [first] = await keys.changes.createMany(wish, count, {
      secrets: call.once.secrets('sk-'),
      also: async (sql, created) => {
        const ids = created.map(({ id }) => id)
        done = { ids, type, name, label, batch, credits: formatCredits(amount), account, expiresAt }
        const from = account === undefined ? { credits: done.credits } : { balance_id: account }
        const details = {
          count,
          type,
          ...from,
          ...(cap !== undefined && { cap: formatCredits(cap) }),
          ...(limits !== undefined && { limits: call.body.limits }),
          ...(batch !== '' && { batch }),
          ...(name && { name }),
          ...(manage && { manage }),
        }
        const target = count === 1 ? (ids[0] ?? '') : ''
        await noting(call, done, { action: 'key.create', target, details })(sql)
      },
    })
    if (!done || first?.reached === 'unknown')
      throw new GatewayError('unavailable', {
        message: 'The database failed while the keys were recorded. Repeat the request with the same idempotency key.',
      })
    return done
  },
  async show({ ids, type, name, label, batch, credits: amount, account, expiresAt }: CreatedKeys, { office, once }) {
    await office.keys.changes.bringUp(ids)
    const secrets = once.secrets('sk-')
    const rows = await mapInTurns(ids, id => {
      const { secret, hint } = secrets()
      const own = { id, key: secret, type, name, label: label || hint, hint, batch }
      return { ...own, balance_id: account ?? id, credits: amount, expires_at: isoTime(expiresAt) }
    })
    return { keys: rows }
  },
})

/** Returns until when new keys are valid, or for how long from their first use. @throws GatewayError invalid_body */
function validityOf(
  body: {
    readonly expires_at: string | null
    readonly expires_in?: string | undefined
    readonly expires_from: string
  },
  now: number,
): { readonly expiresAt: number | undefined; readonly lifetimeMs: number | undefined } {
  const { expires_at: at, expires_in: given, expires_from: from } = body
  if (given === undefined) {
    if (from === 'first_use') throw invalidBody('"expires_in" is missing: it begins with the first use.', 'expires_in')
    return { expiresAt: at === null ? undefined : futureOf(at, now), lifetimeMs: undefined }
  }
  if (at !== null) throw invalidBody('Send either "expires_at" or "expires_in".', 'expires_in')
  const ms = duration(given)
  return from === 'first_use'
    ? { expiresAt: undefined, lifetimeMs: ms }
    : { expiresAt: now + ms, lifetimeMs: undefined }
}

const show = operation({
  method: 'GET',
  path: '/keys/{id}',
  summary: 'Show a key.',
  scope: 'read',
  reply: KEY,
  run: async call => keyView(call, await keyOf(call)),
})

const edit = operation({
  method: 'PATCH',
  path: '/keys/{id}',
  summary:
    'Change the name, the label, the type, the expiry, the cap, the limits or the metadata of a key, or whether it manages others. Members that are absent stay as they are.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    minProperties: 1,
    expected: 'an object with name, label, type, expires_at, expires_in, cap, limits, manage or metadata',
    properties: {
      name: GIVEN_NAME,
      label: GIVEN_NAME,
      type: { type: 'string', maxLength: 64, expected: 'the name of a key type' },
      expires_at: GIVEN_TIME,
      expires_in: { ...GIVEN_DURATION, description: 'For how long it is valid from now on, instead of `expires_at`.' },
      metadata: GIVEN_METADATA,
      manage: { type: 'boolean', description: MANAGE },
      cap: {
        ...GIVEN_AMOUNT,
        type: ['string', 'number', 'null'],
        description: 'The most that it may use in its life; null for no limit.',
      },
      limits: operator.GIVEN_LIMITS,
    },
  } as const,
  reply: CHANGED_KEY,
  async run(call) {
    const {
      name,
      label,
      expires_at: expires,
      expires_in: expiresIn,
    } = call.body as Record<'name' | 'label' | 'expires_at' | 'expires_in', string | undefined>
    const {
      cap: given,
      limits: sent,
      type,
      metadata,
      manage,
    } = call.body as {
      readonly cap?: string | number | null
      readonly limits?: operator.GivenLimits | null
      readonly type?: string
      readonly metadata?: Record<string, string>
      readonly manage?: boolean
    }
    if (type !== undefined && !call.office.config.keyTypes.has(type))
      throw invalidBody(`There is no key type "${type}".`, 'type')
    const cap = given === undefined || given === null ? given : amountOf(given)
    const own = operator.limitsGiven(sent, cap, call.office.config)
    const { keys, now } = call.office
    const before = await keyOf(call)
    if (expires !== undefined && expiresIn !== undefined)
      throw invalidBody('Send either "expires_at" or "expires_in".', 'expires_in')
    const fixed = typeof expires === 'string' ? futureOf(expires, now()) : expires
    const expiresAt = expiresIn === undefined ? fixed : now() + duration(expiresIn)
    const was = {
      name: before.name,
      label: before.label,
      expires_at: isoTime(before.expiresAt),
      cap: before.cap === undefined ? null : formatCredits(before.cap),
      limits: before.limits === undefined ? null : (JSON.parse(before.limits) as operator.LimitTerms),
      type: before.type,
      metadata: before.metadata,
      manage: before.manage,
    }
    const details = { before: was, after: call.body }
    const also = noting(call, {}, { action: 'key.edit', target: before.id, details })
    const edited = { name, label, type, expiresAt, ...own, metadata, manage }
    return changed(call, await keys.changes.edit(before.id, edited, { also }))
  },
})

const remove = operation({
  method: 'DELETE',
  path: '/keys/{id}',
  summary: 'Delete a key for good. Its history stays.',
  scope: 'keys',
  reply: CHANGED_KEY,
  async run(call) {
    const { id } = await keyOf(call)
    const also = noting(call, {}, { action: 'key.delete', target: id })
    return changed(call, await call.office.keys.changes.remove(id, { also }))
  },
})

const disable = operation({
  method: 'POST',
  path: '/keys/{id}/disable',
  summary: 'Disable a key.',
  scope: 'keys',
  reply: CHANGED_KEY,
  async run(call) {
    const { id, status } = await keyOf(call)
    if (status === 'deleted') throw new RangeError(`the key ${id} is deleted`)
    const reached = await call.office.keys.changes.disable(id)
    // The key is disabled in any case.
    const noted = call.office.ledger.records.audit.add(auditEntry(call, { action: 'key.disable', target: id }))
    await noted.catch((cause: unknown) => call.office.log.warn({ err: cause, key: id }, 'the audit log lacks a change'))
    return changed(call, reached)
  },
})

const enable = operation({
  method: 'POST',
  path: '/keys/{id}/enable',
  summary: 'Enable a disabled key.',
  scope: 'keys',
  reply: CHANGED_KEY,
  async run(call) {
    const { id } = await keyOf(call)
    const also = noting(call, {}, { action: 'key.enable', target: id })
    return changed(call, await call.office.keys.changes.enable(id, { also }))
  },
})

const rotate = operation({
  method: 'POST',
  path: '/keys/{id}/rotate',
  summary: 'Give a key a new secret, which is shown only once. The old one stops working.',
  scope: 'keys',
  creates: 'secrets',
  reply: NEW_KEY,
  async run(call) {
    const { id } = await keyOf(call)
    const done = { id }
    const also = noting(call, done, { action: 'key.rotate', target: id })
    const { reached } = await call.office.keys.changes.rotate(id, { also, secrets: call.once.secrets('sk-') })
    if (reached === 'unknown') await changed(call, reached)
    return done
  },
  async show({ id }: { id: string }, call) {
    await call.office.keys.changes.bringUp([id])
    const key = await keyOf(call, id)
    const { secret, hint } = call.once.secrets('sk-')()
    const { type, account, name, label, batch, granted, expiresAt } = key
    return {
      id,
      balance_id: account,
      key: secret,
      type,
      name,
      label,
      hint,
      batch,
      credits: formatCredits(granted),
      expires_at: isoTime(expiresAt),
    }
  },
})

const move = operation({
  method: 'POST',
  path: '/keys/{id}/move',
  summary:
    'Let a key spend from another balance. Requests that run end on the balance before; their history stays there.',
  scope: 'keys',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['balance_id'],
    properties: { balance_id: { type: 'string', maxLength: 64, expected: 'the id of a balance' } },
  },
  reply: CHANGED_KEY,
  async run(call) {
    const { id, account } = await keyOf(call)
    const { balance_id: to } = call.body
    const also = noting(call, {}, { action: 'key.move', target: id, details: { from: account, to } })
    return changed(call, await call.office.keys.changes.move(id, to, { also }))
  },
})

/** The operations on single keys, and the one that creates them. */
export const KEY_OPERATIONS: readonly Operation[] = [create, show, edit, remove, disable, enable, rotate, move]
