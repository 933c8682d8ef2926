/** `tollgate credit ENTRY --reason TEXT`: refunds what one history entry charged. */
import type { Config } from '../config/config.ts'
import { WindowsClosed } from '../ledger/accounts.ts'
import { formatCredits } from '../money/credits.ts'
import { isId } from '../lib/ids.ts'
import { refund, refundView } from '../operator/refund.ts'
import type { AuditEntry } from '../records/audit-log.ts'
import { auditEntry } from './audited.ts'
import { find } from './subjects.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import type { Environment } from '../lib/environment.ts'

/** Options of `tollgate credit`. */
export interface CreditOptions {
  readonly reason: string
  readonly as?: string
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
  { reason, as, key, json }: CreditOptions,
): Promise<void> {
  if (!isId(entry))
    throw new UsageError(`"${entry}" is not an entry id; use an id from the history, which is the id of a request`)
  if (reason.trim() === '' || reason.length > REASON_MAX)
    throw new UsageError(`a reason has 1 to ${REASON_MAX} characters`)
  if (as !== undefined && as !== 'credits') throw new UsageError('--as is credits, or is left out')
  const audit = (account: string, details: Readonly<Record<string, unknown>>): AuditEntry =>
    auditEntry(environment, 'key.refund', account, details)
  const result = await onLedger(environment, config, async (ledger, keys) => {
    const of = key === undefined ? undefined : (await find(keys, key)).id
    const done = await refunded(refund(ledger, entry, { reason, audit, of, asCredits: as === 'credits' }))
    if (done === undefined) throw new UsageError(`no key has an entry ${entry}`)
    if ('owner' in done) throw new UsageError(`the entry ${entry} belongs to ${done.owner}`)
    return done
  })
  if (!result.recorded) environment.complain(NOT_RECORDED)
  const { given, key: owner, account } = result
  const [view, balance] = [refundView(given), formatCredits(result.balance)]
  if (json) environment.print(JSON.stringify({ key: owner, balance_id: account, entry, ...view, balance }))
  else if (view.refunded === '0')
    environment.print(`Entry ${entry} of ${owner} was already refunded. Nothing was changed.`)
  else {
    const ofPlan = given.plan === 0n ? '' : `, ${view.plan} of them to the plan`
    environment.print(
      `Refunded ${view.refunded} credits of entry ${entry}${ofPlan}. ${account} now has ${balance} credits.`,
    )
  }
}

/** Reports as a mistake what cannot be refunded. */
function refunded<T>(refunding: Promise<T>): Promise<T> {
  return refunding.catch((thrown: unknown) => {
    const hint = thrown instanceof WindowsClosed ? ': add --as credits' : ''
    throw thrown instanceof RangeError ? new UsageError(`${thrown.message}${hint}`) : thrown
  })
}
