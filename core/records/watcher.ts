/** Lets others see exchanges in the transaction that records them. */
import type { Sql } from './database.ts'
import type { EndedEntry, HistoryEntry } from './entry.ts'

/** Exchanges that have just been recorded. */
export interface Recorded {
  /** Those that were not recorded before. */
  readonly entries: readonly EndedEntry[]
  /** What each account was charged, in nano-credits. */
  readonly charges: ReadonlyMap<string, bigint>
}

/** Sees what was recorded, and may write more in the same transaction. */
export type Watcher = (sql: Sql, recorded: Recorded) => Promise<void>

/** The watcher failed. Exchanges are recorded without it. */
export class WatcherFailed extends Error {}

/**
 * Shows the watcher what a transaction records.
 * @param last the last end of each exchange by id
 * @param before what was recorded of them before
 * @throws WatcherFailed
 */
export async function watched(
  watcher: Watcher,
  sql: Sql,
  last: ReadonlyMap<string, EndedEntry>,
  before: ReadonlyMap<string, HistoryEntry>,
): Promise<void> {
  const charges = new Map<string, bigint>()
  for (const [id, { account, charge }] of last)
    charges.set(account, (charges.get(account) ?? 0n) + charge - (before.get(id)?.charge ?? 0n))
  const entries = [...last.values()].filter(({ id }) => !before.has(id))
  try {
    await watcher(sql, { entries, charges })
  } catch (cause) {
    throw new WatcherFailed('the watcher of recorded exchanges failed', { cause })
  }
}
