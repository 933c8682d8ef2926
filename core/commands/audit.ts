/** `tollgate audit`: recomputes every balance from its history; exit status 1 on any drift. */
import type { Config } from '../config/config.ts'
import { audit } from '../ledger/audit.ts'
import { find } from './keys.ts'
import { onLedger, type Shell } from './shell.ts'

export async function runAudit(shell: Shell, config: Config, options: { key?: string; json?: boolean; reprice?: boolean }): Promise<void> {
  const { key } = options
  const report = await onLedger(shell, config, async (ledger, keys) =>
    audit(ledger, key === undefined ? undefined : [(await find(keys, key)).id], options.reprice ? 'charges' : 'whole'),
  )
  if (options.json) {
    shell.print(JSON.stringify(report))
  } else {
    for (const { account, findings } of report.drifts) for (const finding of findings) shell.complain(`${account}: ${finding}`)
    const quotas = report.quotas > 0 ? ` (of them quotas of upstreams: ${report.quotas})` : ''
    shell.print(`${report.accounts} accounts${quotas}, ${report.entries} entries, ${report.drifts.length} with drift`)
    if (options.reprice)
      shell.print(`${report.repriced} charges recomputed, ${report.unversioned} from before prices had versions; the other entries charge nothing`)
  }
  if (report.drifts.length > 0) await shell.exit(1)
}
