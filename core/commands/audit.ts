/** `tollgate audit`: compares every balance with the records. Exit status 1 if any differs. */
import type { Config } from '../config/config.ts'
import { audit } from '../ledger/audit.ts'
import { differenceOf } from '../ledger/opinions.ts'
import type { Environment } from '../lib/environment.ts'
import { find } from './keys.ts'
import { onLedger } from './shared.ts'

/** Runs the audit and prints its findings. */
export async function runAudit(
  environment: Environment,
  config: Config,
  options: { key?: string; json?: boolean; reprice?: boolean },
): Promise<void> {
  const { key } = options
  const report = await onLedger(environment, config, async (ledger, keys) =>
    audit(ledger, key === undefined ? undefined : [(await find(keys, key)).id], options.reprice ? 'charges' : 'whole'),
  )
  if (options.json) {
    environment.print(JSON.stringify(report))
  } else {
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
