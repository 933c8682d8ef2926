/** `tollgate credit ENTRY --reason TEXT`: refunds what one history entry charged. */
import type { Config } from '../config/config.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits } from '../money/credits.ts'
import type { HistoryEntry } from '../ledger/records.ts'
import { find } from './keys.ts'
import { onLedger, UsageError } from './shared.ts'
import type { Environment } from '../lib/environment.ts'

/** Options of `tollgate credit`. */
export interface CreditOptions {
  readonly reason: string
  readonly key?: string
  readonly json?: boolean
}

/** Maximum characters of a reason. */
const REASON_MAX = 500

/** Refunds a history entry and prints the refund. */
export async function creditEntry(
  environment: Environment,
  config: Config,
  entry: string,
  { reason, key, json }: CreditOptions,
): Promise<void> {
  if (!/^\d{1,15}-\d{1,15}$/.test(entry))
    throw new UsageError(`"${entry}" is not an entry id; use an id from the history, such as 1790000000000-0`)
  if (reason.trim() === '' || reason.length > REASON_MAX)
    throw new UsageError(`a reason has 1 to ${REASON_MAX} characters`)
  const result = await onLedger(environment, config, async (ledger, keys) => {
    const accounts = key === undefined ? await ledger.accounts() : [(await find(keys, key)).id]
    const [found, other] = await holders(ledger, accounts, entry)
    if (!found) throw new UsageError(`no key has an entry ${entry}`)
    if (other) throw new UsageError(`several keys have an entry ${entry}; add --key, such as --key ${found.account}`)
    const given = await credited(ledger, found, reason)
    return { key: found.account, entry, given, balance: (await ledger.balance(found.account)).balance }
  })
  const { given, balance } = result
  if (json)
    environment.print(JSON.stringify({ ...result, given: formatCredits(given), balance: formatCredits(balance) }))
  else if (given === 0n) environment.print(`Entry ${entry} of ${result.key} was already refunded. Nothing was changed.`)
  else
    environment.print(
      `Refunded ${formatCredits(given)} credits of entry ${entry}. ${result.key} now has ${formatCredits(balance)} credits.`,
    )
}

interface Found {
  readonly account: string
  readonly entry: HistoryEntry
}

/** Returns the accounts that have the entry. Entry ids are unique only within one account. */
async function holders(ledger: Ledger, accounts: readonly string[], id: string): Promise<Found[]> {
  const found: Found[] = []
  for (const account of accounts.filter(account => !account.startsWith('quota:'))) {
    const [entry] = await ledger.history(account, { from: id, to: id, count: 1 })
    if (entry) found.push({ account, entry })
  }
  return found
}

async function credited(ledger: Ledger, { account, entry }: Found, reason: string): Promise<bigint> {
  try {
    return await ledger.credit(account, entry, reason)
  } catch (thrown) {
    throw thrown instanceof RangeError ? new UsageError(thrown.message) : thrown
  }
}
