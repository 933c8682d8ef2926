/** `tollgate balances …`: creates and shows balances, from which several keys may spend. */
import type { Config } from '../config/config.ts'
import { Balances } from '../keys/balances.ts'
import type { Environment } from '../lib/environment.ts'
import { inOneLine } from '../lib/printable.ts'
import { formatCredits } from '../money/credits.ts'
import { type BalanceView, balanceViews } from '../operator/balance-view.ts'
import { addAudit } from '../records/audit-log.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { auditEntry } from './audited.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import { checkName, wholeOption } from './shared.ts'
import { amount, findBalance, type Output, textOf } from './subjects.ts'

/** Options of `tollgate balances create` and `edit`. */
export interface BalanceOptions extends Output {
  readonly name?: string
  readonly externalId?: string
  readonly credits?: string
}

/** Creates a balance without a key, and prints it. */
export async function createBalance(environment: Environment, config: Config, options: BalanceOptions): Promise<void> {
  const { name = '', externalId = '' } = options
  checkName('--name', name)
  checkName('--external-id', externalId)
  const credits = options.credits === undefined ? 0n : amount(options.credits)
  const details = { name, external_id: externalId, credits: formatCredits(credits) }
  const view = await onLedger(environment, config, async ledger => {
    const also = (id: string) => (sql: Parameters<typeof addAudit>[0]) =>
      addAudit(sql, auditEntry(environment, 'balance.create', id, details))
    const wish = { name, externalId, metadata: {}, credits }
    const id = await new Balances(ledger, environment.now).create(wish, also)
    return (await balanceViews(ledger, [await findBalance(ledger, id)]))[0]
  })
  print(environment, view, options, ({ id, balance }) => `The balance ${id} has ${balance} credits.`)
}

/** Changes the name or the external id of a balance, and prints it. */
export async function editBalance(
  environment: Environment,
  config: Config,
  id: string,
  options: BalanceOptions,
): Promise<void> {
  const { name, externalId } = options
  if (name === undefined && externalId === undefined)
    throw new UsageError('give what to change: --name or --external-id')
  checkName('--name', name ?? '')
  checkName('--external-id', externalId ?? '')
  const view = await onLedger(environment, config, async ledger => {
    const before = await findBalance(ledger, id)
    const audit = auditEntry(environment, 'balance.edit', before.id, { name, external_id: externalId })
    const also = (sql: Parameters<typeof addAudit>[0]) => addAudit(sql, audit)
    await new Balances(ledger, environment.now).edit(before.id, { name, externalId }, also)
    return (await balanceViews(ledger, [await findBalance(ledger, before.id)]))[0]
  })
  print(environment, view, options, lineOf)
}

/** Options of `tollgate balances list`. */
export interface ListBalancesOptions extends Output {
  readonly search?: string
  readonly externalId?: string
  readonly limit: string
  readonly cursor?: string
}

/** Most balances of one page. */
const LISTED_MAX = 10_000

/** Prints balances, the newest first. */
export async function listBalances(
  environment: Environment,
  config: Config,
  options: ListBalancesOptions,
): Promise<void> {
  const { search: text, externalId, cursor: after } = options
  const count = wholeOption(options.limit, '--limit', LISTED_MAX)
  const views = await onLedger(environment, config, async ledger => {
    if (after !== undefined) await findBalance(ledger, after)
    const accounts = await orUnavailable(ledger.records.accounts.list({ text, externalId, after, count }))
    return balanceViews(ledger, accounts)
  })
  for (const view of views) print(environment, view, options, lineOf)
  if (!options.json && views.length === count)
    environment.print(`More balances may follow: --cursor ${views.at(-1)?.id}`)
}

/** Prints one balance with the ids of its keys. */
export async function showBalance(
  environment: Environment,
  config: Config,
  id: string,
  options: Output,
): Promise<void> {
  const shown = await onLedger(environment, config, async ledger => {
    const account = await findBalance(ledger, id)
    const [view] = await balanceViews(ledger, [account])
    const keys = await orUnavailable(ledger.records.keys.ofAccount(account.id))
    return { ...view, keys: keys.filter(({ status }) => status !== 'deleted').map(key => key.id) }
  })
  if (options.json) return environment.print(JSON.stringify(shown))
  for (const [name, value] of Object.entries(shown)) environment.print(`${name.padEnd(12)} ${inOneLine(textOf(value))}`)
}

function print(
  environment: Environment,
  view: BalanceView | undefined,
  { json }: Output,
  line: (view: BalanceView) => string,
): void {
  if (view) environment.print(json ? JSON.stringify(view) : line(view))
}

function lineOf({ id, keys, balance, external_id: externalId, name }: BalanceView): string {
  return [id, `${keys} keys`, `${balance} credits`, inOneLine(externalId), inOneLine(name)].join('  ').trimEnd()
}
