/** `tollgate tokens …`: the tokens by which operators and their programs use the admin API. */
import type { Config } from '../config/config.ts'
import { suggestion } from '../lib/suggest.ts'
import type { Environment } from '../lib/environment.ts'
import { newToken, tokenView } from '../operator/token-view.ts'
import { addAudit } from '../records/audit-log.ts'
import { SCOPES } from '../records/tokens.ts'
import { auditEntry } from './audited.ts'
import type { Output } from './subjects.ts'
import { inOneLine } from '../lib/printable.ts'
import { UsageError } from './program.ts'
import { onRecords } from './on-ledger.ts'
import { checkName } from './shared.ts'

/** Options of `tollgate tokens create`. */
export interface TokenOptions extends Output {
  readonly name: string
  readonly scope: string
}

/** Maximum characters of a token's name. */
const NAME_MAX = 200

/** Creates a token and prints its secret, which is shown only once. */
export async function createToken(environment: Environment, config: Config, options: TokenOptions): Promise<void> {
  const { name } = options
  const scope = SCOPES.find(each => each === options.scope)
  if (!scope) throw new UsageError(`--scope is one of ${SCOPES.join(', ')}${suggestion(options.scope, SCOPES)}`)
  if (name === '' || name.length > NAME_MAX) throw new UsageError(`--name has 1 to ${NAME_MAX} characters`)
  checkName('--name', name)
  const { token, secret, digest } = newToken(name, scope, environment.now())
  const { id } = token
  const audit = auditEntry(environment, 'token.create', id, { name, scope })
  await onRecords(environment, config, records => records.tokens.add(token, digest, sql => addAudit(sql, audit)))
  environment.print(
    options.json
      ? JSON.stringify({ id, token: secret, name, scope })
      : `${secret}\n\nThe token is shown only this once. Its id is ${id}; its scope is ${scope}.`,
  )
}

/** Prints all tokens, the latest first. */
export async function listTokens(environment: Environment, config: Config, options: Output): Promise<void> {
  const tokens = await onRecords(environment, config, records => records.tokens.list())
  for (const token of tokens.map(tokenView)) {
    const { id, name, scope, hint, used_at: used, revoked_at: revoked } = token
    const state = revoked === null ? `last used ${used ?? 'never'}` : `revoked ${revoked}`
    environment.print(
      options.json ? JSON.stringify(token) : [id, hint, scope.padEnd(4), state, inOneLine(name)].join('  '),
    )
  }
}

/** Revokes a token, and ends its sessions. */
export async function revokeToken(environment: Environment, config: Config, id: string): Promise<void> {
  const audit = auditEntry(environment, 'token.revoke', id)
  const revoked = await onRecords(environment, config, records =>
    records.tokens.revoke(id, environment.now(), sql => addAudit(sql, audit)),
  )
  if (!revoked) throw new UsageError(`there is no valid token ${inOneLine(id)}`)
  environment.print(`${id} is revoked. Its sessions are over.`)
}
