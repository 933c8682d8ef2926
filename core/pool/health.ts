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
  /** When somebody brought it back last. That ends what barred it before. */
  readonly resetAt: number
  readonly lastFailure?: Failed | undefined
}

/** By how much a wait must change for other processes, and the log, to hear of it, in milliseconds. */
const NOTABLE_MS = 1000

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
  /** Whether an operator has taken it out. Processes share that apart from what requests tell. */
  disabled = false
  #at = 0
  #resetAt = 0
  #coolUntil = 0
  #waitUntil = 0
  #level = 0
  #barred: Barred | undefined
  /** Failures since the last reply that was complete, or since the account was taken out. */
  #inARow = 0
  /** Results of the current window and of the one before. */
  #window = { from: 0, requests: 0, failures: 0 }
  /** The request that tries the account, after it was taken out. */
  #trial: object | undefined
  /** Requests that were sent to the account since it was taken out. */
  #sentSince = new WeakSet<object>()
  /** The request whose reply has begun and brought the account back, until a reply is complete. */
  #broughtBack: object | undefined

  /** Returns whether the account should be asked now. One that was taken out is tried by one request at a time. */
  ready(now: number): boolean {
    if (this.waitMs(now) > 0 || now < this.#coolUntil) return false
    return this.#level === 0 || this.#broughtBack !== undefined || !this.#trial
  }

  /** Milliseconds until the account may be asked if no other can serve; Infinity if somebody must bring it back. */
  waitMs(now: number): number {
    return this.#barred || this.disabled ? Infinity : Math.max(0, this.#waitUntil - now)
  }

  /** Milliseconds until the account should be asked. */
  outMs(now: number): number {
    return Math.max(this.waitMs(now), this.#coolUntil - now)
  }

  /**
   * Notes that a request goes to the account.
   * @param request stands for the request
   * @param lastResort whether no other account can serve
   * @returns false if it cannot be asked any more
   */
  begin(now: number, request: object, lastResort: boolean): boolean {
    if (lastResort ? this.waitMs(now) > 0 : !this.ready(now)) return false
    if (this.#level > 0) {
      this.#sentSince.add(request)
      if (!this.#broughtBack) this.#trial ??= request
    }
    this.counts.requests++
    return true
  }

  /** Notes that a request ended without telling anything about the account, such as one whose client left. */
  ended(request: object): void {
    this.#takesTrial(request)
  }

  /** Ends the trial if this request is the one that tries the account. @returns whether it was */
  #takesTrial(request: object): boolean {
    if (this.#trial !== request) return false
    this.#trial = undefined
    return true
  }

  /**
   * Notes that the reply to a request has begun well. It may run for long, so it brings an account back that was out when
   * the request was sent. It may still break off, so only a complete reply ends the failures in a row and the doubling.
   * @returns whether that has brought the account back
   */
  answers(now: number, request: object): boolean {
    if (this.#broughtBack || !this.#sentSince.has(request)) return false
    this.#broughtBack = request
    this.#trial = undefined
    this.#coolUntil = this.#inARow = 0
    this.#change(now)
    return true
  }

  /** Notes a success. @returns whether it has brought the account back */
  succeeded(now: number): boolean {
    const wasOut = this.#level > 0
    const isNew = wasOut && !this.#broughtBack
    this.#count(now, 0)
    this.#inARow = this.#level = 0
    this.#trial = this.#broughtBack = undefined
    // A request that was under way, or had no better account, may succeed before the time is over.
    this.#coolUntil = 0
    if (wasOut) this.#change(now)
    return isNew
  }

  /**
   * Notes a failure.
   * @param request the one that failed
   * @param waitMs how long the provider asks to wait, if it does
   * @returns whether the account has been taken out, or for notably longer
   */
  failed(now: number, request: object, config: HealthConfig, reason: string, waitMs?: number): boolean {
    const wasTrial = this.#takesTrial(request) || this.#broughtBack === request
    this.#note(now, reason)
    // Requests that were under way when it was taken out tell nothing new.
    const isNews = this.#level === 0 || this.#sentSince.has(request)
    if (isNews) {
      this.#inARow++
      this.#count(now, 1, config.windowMs)
    }
    if (waitMs !== undefined) {
      const notably = now + waitMs > this.#waitUntil + NOTABLE_MS
      this.#waitUntil = Math.max(this.#waitUntil, now + waitMs)
      if (notably) this.#change(now)
      return notably
    }
    if (!isNews || now < this.#coolUntil) return false
    const { requests, failures } = this.#window
    const often = requests >= config.least && failures / requests >= config.rate
    if (!wasTrial && this.#inARow < config.failures && !often) return false
    this.#level++
    this.#sentSince = new WeakSet()
    this.#trial = this.#broughtBack = undefined
    this.#coolUntil = now + Math.min(config.cooldownMs * 2 ** (this.#level - 1), config.cooldownMaxMs)
    this.#change(now)
    this.#inARow = 0
    this.#window = { from: now, requests: 0, failures: 0 }
    return true
  }

  /** Notes that the provider refused the account. @returns whether that has taken it out */
  refused(now: number, request: object, status: number, reason: string): boolean {
    this.#takesTrial(request)
    this.#note(now, reason)
    return this.bar(now, status)
  }

  #note(now: number, reason: string): void {
    this.counts.failures++
    this.lastFailure = { at: now, reason }
  }

  /** Takes the account out until somebody brings it back. @returns whether that is new */
  bar(now: number, status: number): boolean {
    if (this.#barred) return false
    this.#barred = { status, at: this.#change(now) }
    return true
  }

  /** Brings the account back, unless an operator has disabled it. */
  reset(now: number): void {
    this.#resetAt = this.#change(now)
    this.#barred = undefined
    this.#coolUntil = this.#waitUntil = 0
    this.#level = 0
    this.#forgetFailures()
  }

  #forgetFailures(): void {
    this.#inARow = 0
    this.#window = { from: 0, requests: 0, failures: 0 }
    this.#trial = this.#broughtBack = undefined
  }

  /** Notes a change. The clocks of processes differ, so it is always later than the last one that is known. */
  #change(now: number): number {
    return (this.#at = Math.max(now, this.#at + 1))
  }

  get state(): HealthState {
    return {
      at: this.#at,
      coolUntil: this.#coolUntil,
      waitUntil: this.#waitUntil,
      level: this.#level,
      barred: this.#barred,
      resetAt: this.#resetAt,
      lastFailure: this.lastFailure,
    }
  }

  /**
   * Takes over what another process knows, if it is newer. That an account is barred is kept until it is brought back:
   * a process that does not know it yet may write later.
   */
  adopt({ at, coolUntil, waitUntil, level, barred, resetAt, lastFailure }: HealthState): void {
    if (resetAt > this.#resetAt) this.#forgetFailures()
    this.#resetAt = Math.max(this.#resetAt, resetAt)
    if (lastFailure && lastFailure.at > (this.lastFailure?.at ?? 0)) this.lastFailure = lastFailure
    const latest = (this.#barred?.at ?? 0) >= (barred?.at ?? 0) ? this.#barred : barred
    this.#barred = latest && latest.at > this.#resetAt ? latest : undefined
    if (at <= this.#at) return
    if (coolUntil !== this.#coolUntil || level !== this.#level) {
      this.#sentSince = new WeakSet()
      this.#broughtBack = undefined
    }
    this.#at = at
    this.#coolUntil = coolUntil
    this.#waitUntil = waitUntil
    this.#level = level
  }

  #count(now: number, failures: number, windowMs = Infinity): void {
    if (now - this.#window.from >= windowMs) this.#window = { from: now, requests: 0, failures: 0 }
    this.#window.requests++
    this.#window.failures += failures
  }
}
