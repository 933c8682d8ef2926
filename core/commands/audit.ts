/** `tollgate audit`: compares every balance with the records. Exit status 1 if any differs. */
import type { Config } from '../config/config.ts'
import { audit } from '../ledger/audit.ts'
import { differenceOf } from '../ledger/opinions.ts'
import { type Correction, recount, wordsOf } from '../ledger/recovery/recount.ts'
import type { Environment } from '../lib/environment.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { find } from './subjects.ts'
import { auditEntry } from './audited.ts'
import { onLedger } from './on-ledger.ts'

/** The options of the command. */
export interface AuditOptions {
  readonly key?: string
  readonly json?: boolean
  readonly reprice?: boolean
  readonly repair?: boolean
}

/** Runs the audit and prints its findings. With `repair`, it first corrects the held sums. */
export async function runAudit(environment: Environment, config: Config, options: AuditOptions): Promise<void> {
  const { corrections, ...report } = await onLedger(environment, config, async (ledger, keys) => {
    const only = options.key === undefined ? undefined : (await find(keys, options.key)).account
    const corrected = options.repair ? await repair(ledger, environment, config, only) : undefined
    const found = await audit(ledger, only === undefined ? undefined : [only], options.reprice ? 'charges' : 'whole')
    return { ...found, corrections: corrected }
  })
  if (options.json) {
    environment.print(JSON.stringify({ ...report, ...(corrections && { corrections }) }))
  } else {
    for (const correction of corrections ?? []) environment.print(`corrected ${wordsOf(correction)}`)
    if (corrections?.length === 0) environment.print('nothing to repair: what is held agrees with the holds')
    for (const { account, findings } of report.drifts)
      for (const finding of findings) environment.complain(`${account}: ${finding}`)
    environment.print(`${report.accounts} accounts, ${report.entries} entries, ${report.drifts.length} with drift`)
    if (options.reprice) {
      environment.print(
        `${report.repriced} charges recomputed, ${report.unversioned} without a price version, which were not checked; the other entries charge nothing`,
      )
      const differences = report.opinions.map(differenceOf).filter(words => words !== undefined)
      for (const words of differences) environment.print(words)
      if (differences.length === 0) environment.print('all charges agree with the sums that upstreams report')
    }
  }
  if (report.drifts.length > 0) await environment.exit(1)
}

/** Corrects the held sums of accounts, and notes in the audit log what was changed. */
async function repair(
  { scripts, records }: Ledger,
  environment: Environment,
  config: Config,
  only: string | undefined,
): Promise<readonly Correction[]> {
  const corrections: Correction[] = []
  await recount(scripts, config.ledger.leaseMs, {
    only,
    corrected: async correction => {
      const { account, ...details } = correction
      corrections.push(correction)
      await orUnavailable(records.audit.add(auditEntry(environment, 'account.repair', account, details)))
    },
  })
  return corrections
}
