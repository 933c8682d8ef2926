/** Sessions and tokens in the admin API, the accounts of upstreams, key types, the configuration, the audit log. */
import { formatCredits, GatewayError, Reply } from 'tollgate/plugin'
import * as operator from 'tollgate/plugin/operator'
import { isoTime } from 'tollgate/plugin/operator'
import {
  auditEntry,
  type Call,
  noting,
  type Operation,
  operation,
  shownId,
  wholeList,
  wrongCursor,
} from './operation.ts'
import { ACCOUNT, AUDIT, GIVEN_NAME, KEY_TYPE, listOf, NEW_TOKEN, PROBED, SESSION, shape, TOKEN } from './schemas.ts'

function sessionView({ actor, office }: Call) {
  if (!actor.session)
    throw new GatewayError('not_found', { message: 'This request has a token, which needs no session.' })
  return {
    token: operator.tokenView(actor.token),
    csrf: actor.session.csrf,
    expires_at: isoTime(actor.session.expiresAt),
    prefixes: operator.prefixesOf(office.config.keys.prefixes),
  }
}

const session = operation({
  method: 'GET',
  path: '/session',
  summary: 'Show the session of the page.',
  scope: 'read',
  reply: SESSION,
  run: call => Promise.resolve(sessionView(call)),
})

const signOut = operation({
  method: 'DELETE',
  path: '/session',
  summary: 'End the session of the page.',
  scope: 'read',
  async answer(call) {
    return new Reply(204, '', { 'set-cookie': await call.office.access.signOut(call.x, call.actor) })
  },
})

const tokens = operation({
  method: 'GET',
  path: '/tokens',
  summary: 'List the tokens of operators, newest first.',
  scope: 'read',
  reply: listOf(TOKEN),
  async run(call) {
    const all = await operator.orUnavailable(call.office.ledger.records.tokens.list())
    return wholeList(all.map(operator.tokenView))
  },
})

const createToken = operation({
  method: 'POST',
  path: '/tokens',
  summary: 'Create a token. The reply has its secret, which is shown only once.',
  scope: 'all',
  status: 201,
  creates: 'secrets',
  body: {
    type: 'object',
    additionalProperties: false,
    required: ['name', 'scope'],
    properties: {
      name: { ...GIVEN_NAME, minLength: 1, expected: 'a name of 1 to 200 characters' },
      scope: { enum: operator.SCOPES },
    },
  },
  reply: NEW_TOKEN,
  async run(call) {
    const { name, scope } = call.body
    const { ledger, now } = call.office
    const { token, digest } = operator.newToken(name, scope, now(), call.once.secrets(operator.TOKEN_PREFIX)())
    const { id } = token
    const also = noting(call, token, { action: 'token.create', target: id, details: { name, scope } })
    await operator.orUnavailable(ledger.records.tokens.add(token, digest, also))
    return token
  },
  show: (token: operator.Token, { once }) =>
    Promise.resolve({ ...operator.tokenView(token), token: once.secrets(operator.TOKEN_PREFIX)().secret }),
})

const revokeToken = operation({
  method: 'DELETE',
  path: '/tokens/{id}',
  summary: 'Revoke a token, and end its sessions.',
  scope: 'all',
  reply: shape('Revoked', { id: { type: 'string' }, revoked: { type: 'boolean' } }),
  async run(call) {
    const id = call.params['id'] ?? ''
    const { ledger, now } = call.office
    const also = noting(call, {}, { action: 'token.revoke', target: id })
    const revoked = await operator.orUnavailable(ledger.records.tokens.revoke(id, now(), also))
    if (!revoked) throw new GatewayError('not_found', { message: `There is no valid token ${shownId(id)}.` })
    return { id, revoked }
  },
})

async function accountRows({ office }: Call) {
  const { config, ledger, pool, sharing, now } = office
  return operator.accountsView({ config, ledger, pool, sharing, now: now() })
}

const accounts = operation({
  method: 'GET',
  path: '/accounts',
  summary: 'List the accounts of the upstreams, with their health and their quotas.',
  scope: 'read',
  reply: listOf(ACCOUNT),
  run: async call => wholeList(await accountRows(call)),
})

/** Returns the account that a path names. @throws GatewayError not_found */
function accountOf({ office, params }: Call) {
  const name = `${params['upstream'] ?? ''}/${params['name'] ?? ''}`
  const found = operator.accountsOf(office.config).find(({ account }) => account.name === name)
  if (!found) throw new GatewayError('not_found', { message: 'There is no account with this name.' })
  return found
}

const ACTIONS = {
  disable: 'Ask an account no more.',
  enable: 'Ask a disabled account again.',
  reset: 'Ask an account again that failed or that its provider refused.',
} as const

const accountActions = Object.entries(ACTIONS).map(([action, summary]) =>
  operation({
    method: 'POST',
    path: `/accounts/{upstream}/{name}/${action}`,
    summary,
    scope: 'all',
    reply: ACCOUNT,
    async run(call) {
      const { ledger, pool, sharing, now } = call.office
      const found = accountOf(call)
      const { name } = found.account
      const audit = auditEntry(call, { action: `account.${action}`, target: name })
      if (action === 'reset') {
        await operator.orUnavailable(ledger.records.audit.add(audit))
        pool.health(found.account).reset(now())
        await sharing.write(name)
      } else {
        // The records come first: a store may lose it.
        const also: operator.Also = sql => operator.addAudit(sql, audit)
        await sharing.disable(await operator.recordDisabled(ledger.records, name, action === 'disable', also))
      }
      return (await accountRows(call)).find(({ account }) => account === name)
    },
  }),
)

const testing = operation({
  method: 'POST',
  path: '/accounts/{upstream}/{name}/test',
  summary: 'Send one small request by an account, which its provider bills.',
  scope: 'all',
  reply: PROBED,
  async run(call) {
    const { config, ledger } = call.office
    const { upstream, account } = accountOf(call)
    const model = operator.cheapestOf(config, upstream, account)
    if (model === undefined)
      throw new GatewayError('request_conflict', { message: 'No key type has a model that this account serves.' })
    const simulated = account.url === undefined
    const { ms, failure } = simulated ? { ms: 0 } : await operator.probe(upstream, account, model)
    const details = { model, ms, ...(failure !== undefined && { failure }) }
    const audit = auditEntry(call, { action: 'account.test', target: account.name, details })
    await operator.orUnavailable(ledger.records.audit.add(audit))
    return { account: account.name, model, ms, failure: failure ?? null, simulated }
  },
})

const keyTypes = operation({
  method: 'GET',
  path: '/key-types',
  summary: 'List the key types with their models and prices.',
  scope: 'read',
  reply: listOf(KEY_TYPE),
  async run({ office }) {
    const counts = await operator.orUnavailable(operator.countByType(office.ledger.records.database))
    const data = [...office.config.keyTypes.values()].map(type => ({
      name: type.name,
      keys: counts.get(type.name) ?? 0,
      plan: type.plan ?? null,
      default_model: type.default.id,
      formats: type.formats.map(({ name }) => name),
      upstreams: type.upstreams.map(({ name }) => name),
      models: [...type.models.values()].map(({ id, aliasOf, context, maxOutput, price }) => ({
        id,
        alias_of: aliasOf ?? null,
        context: context ?? null,
        max_output: maxOutput ?? null,
        input: formatCredits(price.input),
        cache_read: formatCredits(price.cacheRead),
        output: formatCredits(price.output),
      })),
    }))
    return wholeList(data)
  },
})

const configuration = operation({
  method: 'GET',
  path: '/config',
  summary: 'Show the configuration in force, with stars instead of credentials.',
  scope: 'read',
  reply: shape('Configuration', { file: { type: 'string' }, text: { type: 'string' } }),
  run: ({ office: { config } }) => Promise.resolve({ file: config.file, text: operator.maskedText(config) }),
})

const audit = operation({
  method: 'GET',
  path: '/audit',
  summary: 'List who changed what, newest first.',
  scope: 'read',
  query: {
    type: 'object',
    properties: {
      target: { type: 'string', maxLength: 200 },
      action: { type: 'string', maxLength: 50 },
      actor: { type: 'string', maxLength: 200, description: 'Part of the actor.' },
    },
  },
  reply: AUDIT,
  columns: ['no', 'at', 'actor', 'address', 'action', 'target', 'details'],
  async page(call, cursor, limit) {
    const before = cursor === undefined ? undefined : Number(cursor)
    if (before !== undefined && !/^\d{1,9}$/.test(cursor ?? '')) throw wrongCursor()
    const { target, action, actor } = call.query
    const range = { target, action, actor, before, count: limit + 1 }
    const found = await operator.orUnavailable(call.office.ledger.records.audit.list(range))
    const data = found.slice(0, limit).map(entry => ({ ...entry, at: isoTime(entry.at) }))
    return { data, next: found.length > limit ? String(data.at(-1)?.no) : undefined }
  },
})

const openapi = operation({
  method: 'GET',
  path: '/openapi.json',
  summary: 'Show this description.',
  scope: 'read',
  run: ({ office }) => Promise.resolve(office.openapi()),
})

/** All of them. */
export const OFFICE_OPERATIONS: readonly Operation[] = [
  session,
  signOut,
  tokens,
  createToken,
  revokeToken,
  accounts,
  ...accountActions,
  testing,
  keyTypes,
  configuration,
  audit,
  openapi,
]
