/** `tollgate credit ENTRY --reason TEXT`: refunds what one history entry charged. */
import type { Config } from '../config/config.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits } from '../money/credits.ts'
import { isId } from '../lib/ids.ts'
import { causeOf } from '../ledger/scripts.ts'
import { RecordsError } from '../records/database.ts'
import type { HistoryEntry } from '../records/entry.ts'
import { auditEntry } from './audited.ts'
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

const NOT_RECORDED =
  'The refund is in the store. The records do not answer; a running gateway records it as soon as they do.'

/** Refunds a history entry and prints the refund. */
export async function creditEntry(
  environment: Environment,
  config: Config,
  entry: string,
  { reason, key, json }: CreditOptions,
): Promise<void> {
  if (!isId(entry))
    throw new UsageError(`"${entry}" is not an entry id; use an id from the history, which is the id of a request`)
  if (reason.trim() === '' || reason.length > REASON_MAX)
    throw new UsageError(`a reason has 1 to ${REASON_MAX} characters`)
  const result = await onLedger(environment, config, async (ledger, keys) => {
    // What has just ended is recorded first, so that it is found without its key.
    await ledger.background.archiveAll()
    const found = await ledger.entry(entry)
    if (!found) throw new UsageError(`no key has an entry ${entry}`)
    if (key !== undefined && (await find(keys, key)).id !== found.account)
      throw new UsageError(`the entry ${entry} belongs to ${found.account}`)
    const given = await credited(ledger, found.account, found, reason)
    const details = { entry, credits: formatCredits(given), reason }
    if (given > 0n)
      await ledger.records.audit.add(auditEntry(environment, 'key.refund', found.account, details)).catch(() => {})
    // A refund is reported when no failure of the store can undo it.
    await ledger.background.archiveAll().catch((thrown: unknown) => {
      if (!(causeOf(thrown) instanceof RecordsError)) throw thrown
      environment.complain(NOT_RECORDED)
    })
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

async function credited(ledger: Ledger, account: string, entry: HistoryEntry, reason: string): Promise<bigint> {
  try {
    return await ledger.credit(account, entry, reason)
  } catch (thrown) {
    throw thrown instanceof RangeError ? new UsageError(thrown.message) : thrown
  }
}
