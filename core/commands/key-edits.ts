/** `tollgate keys edit`, `move` and `delete`. */
import type { Config } from '../config/config.ts'
import type { Reached } from '../keys/recorded.ts'
import type { Keys } from '../keys/keys.ts'
import type { Environment } from '../lib/environment.ts'
import { suggestion } from '../lib/suggest.ts'
import { keyView } from '../operator/key-view.ts'
import { addAudit } from '../records/audit-log.ts'
import type { Sql } from '../records/database.ts'
import type { RecordedKey } from '../records/key-records.ts'
import { checkerOf } from '../operator/check-input.ts'
import { GIVEN_LIMITS, type GivenLimits, limitsGiven, type OwnLimits } from '../operator/limits-given.ts'
import { auditEntry } from './audited.ts'
import { asMistake, yamlOption } from './plans.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import { checkName } from './shared.ts'
import { amount, expiry, find, type Output, report } from './subjects.ts'

/** Options of `tollgate keys edit`. */
export interface EditOptions extends Output {
  readonly name?: string
  readonly label?: string
  readonly type?: string
  /** A time, or `never`. */
  readonly expires?: string
  /** An amount, or `none`. */
  readonly cap?: string
  /** YAML, or `none`. */
  readonly limits?: string
  /** `yes` or `no`. */
  readonly manage?: string | true
}

/** Changes what an operator chooses of a key, and prints the key. */
export async function editKey(
  environment: Environment,
  config: Config,
  id: string,
  options: EditOptions,
): Promise<void> {
  const { name, label, type, expires, cap, limits } = options
  const manage = options.manage === true ? 'yes' : options.manage
  if ([name, label, type, expires, cap, limits, manage].every(given => given === undefined))
    throw new UsageError('give what to change: --name, --label, --type, --expires, --cap, --limits or --manage')
  if (manage !== undefined && manage !== 'yes' && manage !== 'no') throw new UsageError('--manage takes yes or no')
  checkName('--name', name ?? '')
  checkName('--label', label ?? '')
  if (type !== undefined && !config.keyTypes.has(type))
    throw new UsageError(`there is no key type "${type}"${suggestion(type, config.keyTypes.keys())}`)
  const edit = {
    name,
    label,
    type,
    expiresAt: expires === 'never' ? null : expiry(expires, environment.now()),
    ...limitsOption(limits, capOf(cap), config),
    manage: manage === undefined ? undefined : manage === 'yes',
  }
  await change(
    environment,
    config,
    { id, action: 'key.edit', details: { name, label, type, expires, cap, limits, manage }, options },
    (keys, key, also) => keys.changes.edit(key.id, edit, { also }),
  )
}

/** Reads the limits of a key, in YAML or `none`, beside its cap. @throws UsageError */
export function limitsOption(text: string | undefined, cap: bigint | null | undefined, config: Config): OwnLimits {
  if (text === undefined) return { limits: undefined, cap }
  const limits = text === 'none' ? null : yamlOption('--limits', text)
  const fault = checkLimits({ limits })
  if (fault) throw new UsageError(fault.message)
  try {
    return limitsGiven(limits as GivenLimits | null, cap, config)
  } catch (thrown) {
    return asMistake(thrown)
  }
}

const checkLimits = checkerOf({ type: 'object', properties: { limits: GIVEN_LIMITS } })

function capOf(given: string | undefined): bigint | null | undefined {
  if (given === 'none') return null
  return given === undefined ? undefined : amount(given)
}

/** Lets a key spend from another balance, and prints the key. */
export async function moveKey(
  environment: Environment,
  config: Config,
  { id, balance }: { readonly id: string; readonly balance: string },
  options: Output,
): Promise<void> {
  await change(environment, config, { id, action: 'key.move', details: { to: balance }, options }, (keys, key, also) =>
    keys.changes.move(key.id, balance, { also }),
  )
}

/** Deletes a key for good, and prints it. */
export async function deleteKey(environment: Environment, config: Config, id: string, options: Output): Promise<void> {
  await change(environment, config, { id, action: 'key.delete', details: {}, options }, (keys, key, also) =>
    keys.changes.remove(key.id, { also }),
  )
}

/** Makes a change of a key, notes it in the audit log, and prints the key. */
async function change(
  environment: Environment,
  config: Config,
  wish: { readonly id: string; readonly action: string; readonly details: object; readonly options: Output },
  make: (keys: Keys, key: RecordedKey, also: (sql: Sql) => Promise<void>) => Promise<Reached>,
): Promise<void> {
  const { reached, shown } = await onLedger(environment, config, async (ledger, keys) => {
    const key = await find(keys, wish.id)
    const audit = auditEntry(environment, wish.action, key.id, { ...wish.details })
    const done = await make(keys, key, sql => addAudit(sql, audit))
    const after = await find(keys, key.id)
    return { reached: done, shown: await keyView(ledger, after, config, environment.now()) }
  })
  report(environment, reached)
  const { id, status, type, name, balance_id: balance } = shown
  environment.print(
    wish.options.json
      ? JSON.stringify(shown)
      : `${id} is ${status}, has the type ${type}${name === '' ? '' : ` and the name ${name}`}, and spends from ${balance}.`,
  )
}
