/**
 * The health of one account: whether it can be asked now. Failures in a row, or a large share of failures, take it out
 * for a time that grows, as long as another account can serve. Then one request tries it. A wait that the provider asks
 * for is always kept.
 */
import type { HealthConfig } from '../config/config.ts'

/** Why an account cannot be asked until an operator, or a changed key, brings it back. */
export interface Barred {
  readonly status: number
  /** Milliseconds since the epoch. */
  readonly at: number
}

/** A failure, in words. */
export interface Failed {
  /** Milliseconds since the epoch. */
  readonly at: number
  readonly reason: string
}

/** The health of an account as processes share it. Times are in milliseconds since the epoch. */
export interface HealthState {
  /** When this was last changed. The latest change counts. */
  readonly at: number
  /** Until when the account is not asked if another one can serve. */
  readonly coolUntil: number
  /** Until when the provider asks to wait. */
  readonly waitUntil: number
  /** How often in a row it was taken out. */
  readonly level: number
  readonly barred?: Barred | undefined
  /** Whether an operator has taken it out. */
  readonly disabled: boolean
  readonly lastFailure?: Failed | undefined
}

/** What is counted of an account since the process began. */
export interface Counts {
  requests: number
  failures: number
}

/** The health of an account, as one process knows it. */
export class Health {
  readonly counts: Counts = { requests: 0, failures: 0 }
  /** The last failure, in words. */
  lastFailure: Failed | undefined
  #at = 0
  #disabled = false
  #coolUntil = 0
  #waitUntil = 0
  #level = 0
  #barred: Barred | undefined
  /** Failures since the last success. */
  #inARow = 0
  /** Results of the current window and of the one before. */
  #window = { from: 0, requests: 0, failures: 0 }
  #trying = false

  /** Returns whether the account should be asked now. One that was taken out is tried by one request at a time. */
  ready(now: number): boolean {
    if (this.waitMs(now) > 0 || now < this.#coolUntil) return false
    return this.#level === 0 || !this.#trying
  }

  /** Milliseconds until the account may be asked if no other can serve; Infinity if somebody must bring it back. */
  waitMs(now: number): number {
    return this.#barred || this.#disabled ? Infinity : Math.max(0, this.#waitUntil - now)
  }

  /** Milliseconds until the account should be asked. */
  outMs(now: number): number {
    return Math.max(this.waitMs(now), this.#coolUntil - now)
  }

  /**
   * Notes that a request goes to the account.
   * @param lastResort whether no other account can serve
   * @returns false if it cannot be asked any more
   */
  begin(now: number, lastResort: boolean): boolean {
    if (lastResort ? this.waitMs(now) > 0 : !this.ready(now)) return false
    if (this.#level > 0) this.#trying = true
    this.counts.requests++
    return true
  }

  /** Notes that a request ended without telling anything about the account, such as one whose client left. */
  ended(): void {
    this.#trying = false
  }

  /** Notes a success. @returns whether it has brought the account back */
  succeeded(now: number): boolean {
    const back = this.#level > 0
    this.#trying = false
    this.#inARow = 0
    this.#level = 0
    this.#count(now, 0)
    if (back) this.#at = now
    return back
  }

  /**
   * Notes a failure.
   * @param waitMs how long the provider asks to wait, if it does
   * @returns whether the account has been taken out
   */
  failed(now: number, config: HealthConfig, reason: string, waitMs?: number): boolean {
    const wasTrial = this.#trying
    this.#trying = false
    this.counts.failures++
    this.lastFailure = { at: now, reason }
    this.#inARow++
    this.#count(now, 1, config.windowMs)
    const { requests, failures } = this.#window
    const often = requests >= config.least && failures / requests >= config.rate
    if (waitMs === undefined && !wasTrial && this.#inARow < config.failures && !often) return false
    // Requests that were under way when it was taken out tell nothing new.
    if (waitMs === undefined && now < this.#coolUntil) return false
    this.#level++
    if (waitMs === undefined)
      this.#coolUntil = now + Math.min(config.cooldownMs * 2 ** (this.#level - 1), config.cooldownMaxMs)
    else this.#waitUntil = Math.max(this.#waitUntil, now + waitMs)
    this.#at = now
    this.#inARow = 0
    this.#window = { from: now, requests: 0, failures: 0 }
    return true
  }

  /** Takes the account out until somebody brings it back. @returns whether that is new */
  bar(now: number, status: number, reason: string): boolean {
    this.#trying = false
    this.counts.failures++
    this.lastFailure = { at: now, reason }
    if (this.#barred) return false
    this.#barred = { status, at: now }
    this.#at = now
    return true
  }

  /** Brings the account back, unless an operator has disabled it. */
  reset(now: number): void {
    this.#at = now
    this.#barred = undefined
    this.#coolUntil = this.#waitUntil = 0
    this.#level = 0
    this.#inARow = 0
    this.#trying = false
  }

  /** Takes the account out on behalf of an operator, or ends that. */
  disable(now: number, disabled: boolean): void {
    this.#at = now
    this.#disabled = disabled
  }

  get state(): HealthState {
    return {
      at: this.#at,
      coolUntil: this.#coolUntil,
      waitUntil: this.#waitUntil,
      level: this.#level,
      barred: this.#barred,
      disabled: this.#disabled,
      lastFailure: this.lastFailure,
    }
  }

  /** Takes over what another process knows, if it is newer. */
  adopt({ at, coolUntil, waitUntil, level, barred, disabled, lastFailure }: HealthState): void {
    if (at <= this.#at) return
    this.#at = at
    this.#coolUntil = coolUntil
    this.#waitUntil = waitUntil
    this.#level = level
    this.#barred = barred
    this.#disabled = disabled
    if (lastFailure && lastFailure.at > (this.lastFailure?.at ?? 0)) this.lastFailure = lastFailure
  }

  #count(now: number, failures: number, windowMs = Infinity): void {
    if (now - this.#window.from >= windowMs) this.#window = { from: now, requests: 0, failures: 0 }
    this.#window.requests++
    this.#window.failures += failures
  }
}
