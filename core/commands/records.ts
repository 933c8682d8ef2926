/** `tollgate records copy`: moves the records from SQLite to PostgreSQL, or back. */
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { audit } from '../ledger/audit.ts'
import { namesIn } from '../ledger/outbox-file.ts'
import type { Environment } from '../lib/environment.ts'
import { copyAll, type CopiedTable } from '../records/copy.ts'
import { LEFT, meta, migrate } from '../records/migrations.ts'
import { openDatabase, Records } from '../records/records.ts'
import { isTaken } from '../store/serving.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import type { Output } from './subjects.ts'

/** Options of `tollgate records copy`. */
export interface CopyOptions extends Output {
  readonly to: string
}

/** The time limit of one query of a copy, in milliseconds. */
const QUERY_MS = 600_000

/** Copies the records, compares both, audits the copy, and marks the old records as left. */
export async function copyRecords(environment: Environment, config: Config, { to, json }: CopyOptions): Promise<void> {
  const target = targetOf(config, to)
  if (isTaken(config.store.data)) throw new UsageError('a gateway uses these records; stop all gateways first')
  const outbox = join(config.store.data, 'outbox')
  if (namesIn(outbox, '.jsonl').length > 0)
    throw new UsageError(
      `${outbox} has settlements that the store lacks; start a gateway until they are sent, and stop it`,
    )
  const isLeft = await isLeftBehind(environment, config)
  // What ended and waits in the store is recorded first. Records that are left already have it.
  if (!isLeft)
    await onLedger(environment, config, async ledger => {
      if (await ledger.background.isTaken())
        throw new UsageError('a gateway uses this store; stop all gateways first, and wait for some seconds')
      await ledger.background.archiveAll()
      const { drifts } = await audit(ledger)
      if (drifts.length > 0) throw new UsageError('the audit finds drift; run npx tollgate audit, and mend it first')
    })
  const tables = await copied(environment, config, target)
  const rows = tables.reduce((sum, table) => sum + table.rows, 0)
  const { accounts, entries, drifts } = await onLedger(environment, target, ledger => audit(ledger))
  if (json) environment.print(JSON.stringify({ tables, rows, accounts, entries, drifts }))
  else
    environment.print(
      `Copied ${rows} rows of ${tables.length} tables, and compared them: ${accounts} accounts, ${entries} entries, ${drifts.length} with drift.`,
    )
  environment.complain(
    `Now set store.records (DATABASE_URL) to ${to === 'auto' ? 'auto' : 'the new address'}, and start the gateways. The old records are marked as left.`,
  )
  if (drifts.length > 0) await environment.exit(1)
}

/** Returns the configuration with the records that are copied to. @throws UsageError */
function targetOf(config: Config, to: string): Config {
  if (to !== 'auto' && !/^postgres(?:ql)?:\/\/./.test(to))
    throw new UsageError(
      '--to is the address of a PostgreSQL, such as postgres://host:5432/database, or auto for SQLite',
    )
  const records = to === 'auto' ? undefined : to
  if (records === config.store.records) throw new UsageError('these are the records that the file has now')
  return { ...config, store: { ...config.store, records } }
}

async function isLeftBehind(environment: Environment, config: Config): Promise<boolean> {
  const records = await Records.open(config.store, environment, 'even left')
  try {
    return (await meta(records.database, LEFT)) !== undefined
  } finally {
    await records.close()
  }
}

async function copied({ log, newId }: Environment, config: Config, target: Config): Promise<readonly CopiedTable[]> {
  const patient = { recordsTimeoutMs: QUERY_MS }
  const from = await openDatabase({ ...config.store, ...patient }, log)
  try {
    const to = await openDatabase({ ...target.store, ...patient }, log)
    try {
      await migrate(to, newId)
      return await copyAll(from, to)
    } finally {
      await to.close()
    }
  } finally {
    await from.close()
  }
}
