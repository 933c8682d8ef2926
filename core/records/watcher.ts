/** Lets others see exchanges that are being recorded, and note what follows from them in the same transaction. */
import type { Spending } from './bookings.ts'
import type { EndedEntry } from './entry.ts'
import type { Notice } from './notices.ts'

/** Exchanges that are being recorded. */
export interface Recorded {
  /** Those that were not recorded before. */
  readonly entries: readonly EndedEntry[]
  /** What their accounts have spent. */
  readonly spending: readonly Spending[]
}

/** Sees what is being recorded. Returns notices that are recorded with it. */
export type Watcher = (recorded: Recorded) => Promise<readonly Notice[]>
