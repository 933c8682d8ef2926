/** `tollgate audit`: compares every balance with the records. Exit status 1 if any differs. */
import type { Config } from '../config/config.ts'
import { audit, SIDE_BY_SIDE } from '../ledger/audit.ts'
import { pagesOf } from '../ledger/audited-accounts.ts'
import { differenceOf } from '../ledger/opinions.ts'
import { type Correction, recount, wordsOf } from '../ledger/recovery/recount.ts'
import type { Environment } from '../lib/environment.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { compareWindows } from '../ledger/windows-audit.ts'
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

/** Runs the audit and prints its findings. With `repair`, it first corrects held sums and windows. */
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
    for (const correction of corrections ?? []) environment.print(`corrected ${wordsFor(correction)}`)
    if (corrections?.length === 0) environment.print('nothing to repair: holds and windows agree')
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

/** What was corrected of one account: what it holds, or the windows of its plan. */
type Repair = Correction | { readonly account: string; readonly windows: readonly string[] }

/** Corrects the held sums of accounts and the windows of their plans, and notes in the audit log what was changed. */
async function repair(
  ledger: Ledger,
  environment: Environment,
  config: Config,
  only: string | undefined,
): Promise<readonly Repair[]> {
  const corrections: Repair[] = []
  const corrected = async (correction: Repair): Promise<void> => {
    const { account, ...details } = correction
    corrections.push(correction)
    await orUnavailable(ledger.records.audit.add(auditEntry(environment, 'account.repair', account, details)))
  }
  await recount(ledger.scripts, config.ledger.leaseMs, { only, corrected })
  for await (const page of pagesOf(ledger.records, only === undefined ? undefined : [only]))
    await sideBySide(page, SIDE_BY_SIDE, async ({ id: account }) => {
      const windows = await compareWindows(ledger, account, true)
      if (windows.length > 0) await corrected({ account, windows })
    })
  return corrections
}

function wordsFor(correction: Repair): string {
  return 'windows' in correction ? `${correction.account}: ${correction.windows.join('; ')}` : wordsOf(correction)
}
