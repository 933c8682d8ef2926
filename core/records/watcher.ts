/** Lets others see exchanges that are being recorded, and note what follows from them in the same transaction. */
import type { Spending } from './bookings.ts'
import type { EndedEntry } from './entry.ts'
import type { Plan } from '../plans/plan.ts'
import type { WindowView } from '../plans/state.ts'
import type { Notice } from './notices.ts'

/** What has happened to the plan of an account. */
export interface PlanEvent {
  /** `low` if a window is nearly used up. */
  readonly event: 'renewed' | 'low'
  readonly account: string
  readonly plan: Plan
  /** The window that is nearly used up, and the credits of the account, in nano-credits. */
  readonly window?: WindowView
  readonly balance?: bigint
}

/** Exchanges that are being recorded, and what has happened to plans. */
export interface Recorded {
  /** Those that were not recorded before. */
  readonly entries: readonly EndedEntry[]
  /** What their accounts have spent. */
  readonly spending: readonly Spending[]
  readonly plans: readonly PlanEvent[]
}

/** Sees what is being recorded. Returns notices that are recorded with it. */
export type Watcher = (recorded: Recorded) => Promise<readonly Notice[]>
