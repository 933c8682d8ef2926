/** The health of an account as processes share it. Times are in milliseconds since the epoch. */
import type { ModelLimit } from './model-limits.ts'

/** That the provider refuses the account: its key is wrong, unpaid or blocked. */
export interface Refused {
  /** The status of the last refusal. */
  readonly status: number
  readonly since: number
  /** When this was last changed. */
  readonly at: number
  /** Until when no request is sent. Then one request tries the account. */
  readonly until: number
  /** How often in a row the provider refused: the first request and each trial. */
  readonly times: number
}

/** A failure, in words. */
export interface Failed {
  /** Milliseconds since the epoch. */
  readonly at: number
  readonly reason: string
}

/** What processes know of an account. */
export interface HealthState {
  /** When this was last changed. The latest change counts. */
  readonly at: number
  /** Until when the account is not asked if another one can serve. */
  readonly coolUntil: number
  /** Until when the provider asks to wait. */
  readonly waitUntil: number
  /** How often in a row it was taken out. */
  readonly level: number
  readonly refused?: Refused | undefined
  /** When an operator, a changed key or a reply brought it back last. That ends the refusals before. */
  readonly backAt: number
  /** The limits of its models, by the names that are sent. */
  readonly models: Readonly<Record<string, ModelLimit>>
  readonly lastFailure?: Failed | undefined
}
