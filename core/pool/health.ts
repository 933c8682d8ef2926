/**
 * The health of one account: whether it can be asked now. Failures in a row, or a large fraction of failures, take it out
 * for a time that grows, as long as another account can serve. Then one request tries it. A refusal takes it out at once,
 * and no request is sent to it until the time is over. A wait that the provider asks for is always kept; most waits
 * belong to one model.
 */
import type { HealthConfig } from '../config/config.ts'
import type { Failed, HealthState, Refused } from './health-state.ts'
import { ModelLimits, NOTABLE_MS } from './model-limits.ts'

/** How long an account is out after its first refusal, and the longest time, in milliseconds. */
const REFUSED_MS = 60_000
const REFUSED_MS_MAX = 3_600_000
/** Times between two suspected refusals that confirm each other, in milliseconds. */
const CONFIRMED_MS_MIN = 10_000
const CONFIRMED_MS_MAX = 600_000

/** What is counted of an account since the process began. */
export interface Counts {
  requests: number
  failures: number
}

/** A request that an account did not serve. */
export interface FailedRequest {
  /** Milliseconds since the epoch. */
  readonly now: number
  /** Identifies the request. */
  readonly request: object
  /** Why it failed, for the log and for operators. */
  readonly reason: string
  /** How long the provider asks to wait, if it does. */
  readonly waitMs?: number | undefined
}

/** The health of an account, as one process knows it. */
export class Health {
  readonly counts: Counts = { requests: 0, failures: 0 }
  /** The last failure, in words. */
  lastFailure: Failed | undefined
  /** Whether an operator has taken it out. Processes share that apart from what requests tell. */
  disabled = false
  #at = 0
  #backAt = 0
  #coolUntil = 0
  #waitUntil = 0
  #level = 0
  #refused: Refused | undefined
  /** The first key whose request met a suspected refusal, since the last success. */
  #suspect: { readonly key: string; readonly at: number } | undefined
  readonly #models = new ModelLimits()
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

  /**
   * Returns whether the account should be asked now. One that was taken out is tried by one request at a time.
   * @param model the name that is sent; undefined for no model
   */
  ready(now: number, model?: string): boolean {
    if (this.waitMs(now, model) > 0 || now < this.#coolUntil) return false
    if (model !== undefined && now < this.#models.outUntil(model)) return false
    return !this.wasTakenOut || this.#broughtBack !== undefined || !this.#trial
  }

  /** Whether it was taken out, and no reply has ended that. */
  get wasTakenOut(): boolean {
    return this.#level > 0 || this.#refused !== undefined
  }

  /**
   * Milliseconds until the account may be asked if no other can serve; Infinity if an operator has disabled it.
   * @param model the name that is sent; undefined for no model
   */
  waitMs(now: number, model?: string): number {
    if (this.disabled) return Infinity
    const limited = model === undefined ? 0 : this.#models.until(model)
    return Math.max(0, Math.max(this.#waitUntil, this.#refused?.until ?? 0, limited) - now)
  }

  /** Milliseconds until the account should be asked, for any model. */
  outMs(now: number): number {
    return Math.max(this.waitMs(now), this.#coolUntil - now)
  }

  /** Milliseconds until a model should be asked for at the account, as far as its own limits say. */
  modelOutMs(now: number, model: string): number {
    return Math.max(0, this.#models.outUntil(model) - now)
  }

  /** Whether the account is out, for operators: not asked now, or refused by its provider and not yet accepted again. */
  isOut(now: number): boolean {
    return this.#refused !== undefined || this.outMs(now) > 0
  }

  /**
   * Notes that a request goes to the account.
   * @param request stands for the request
   * @param lastResort whether no other account can serve
   * @param model the name that is sent
   * @returns false if it cannot be asked any more
   */
  begin(now: number, request: object, lastResort: boolean, model?: string): boolean {
    if (lastResort ? this.waitMs(now, model) > 0 : !this.ready(now, model)) return false
    if (this.wasTakenOut) {
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
    if (!this.wasTakenOut || this.#broughtBack || !this.#sentSince.has(request)) return false
    // If it only was refused, a reply ends that.
    if (this.#level > 0) this.#broughtBack = request
    this.#trial = undefined
    this.#coolUntil = this.#inARow = 0
    this.#accepted(now)
    return true
  }

  /** Notes a reply to a request that was sent since the account was taken out: its provider no longer refuses it. */
  #accepted(now: number): void {
    const at = this.#change(now)
    if (this.#refused) this.#backAt = at
    this.#refused = undefined
  }

  /**
   * Notes a success.
   * @param model the name that was sent
   * @returns whether it has brought the account back
   */
  succeeded(now: number, request: object, model?: string): boolean {
    this.#suspect = undefined
    if (model !== undefined) this.#models.served(model, () => this.#change(now))
    this.#count(now, 0)
    // What was under way when the provider refused the account tells nothing about that.
    const isRefused = this.#refused !== undefined && !this.#sentSince.has(request)
    const wasOut = this.wasTakenOut
    const isNew = wasOut && !this.#broughtBack
    this.#inARow = this.#level = 0
    // A request that was under way, or had no better account, may succeed before the time is over.
    this.#coolUntil = 0
    if (isRefused) {
      this.#takesTrial(request)
      this.#change(now)
      return false
    }
    this.#trial = this.#broughtBack = undefined
    if (wasOut) this.#accepted(now)
    return isNew
  }

  /**
   * Notes that the provider limits a model.
   * @param model the name that was sent
   * @returns whether the model is out for notably longer
   */
  limited(model: string, { now, request, reason, waitMs }: FailedRequest): boolean {
    this.#takesTrial(request)
    this.#note(now, reason)
    return this.#models.add(now, model, waitMs, () => this.#change(now))
  }

  /**
   * Notes a failure.
   * @returns whether the account has been taken out, or for notably longer
   */
  failed(config: HealthConfig, { now, request, reason, waitMs }: FailedRequest): boolean {
    const wasTrial = this.#takesTrial(request) || this.#broughtBack === request
    this.#note(now, reason)
    // Requests that were under way when it was taken out tell nothing new.
    const isNews = !this.wasTakenOut || this.#sentSince.has(request)
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

  /**
   * Notes that the provider refused the account. It is out for a minute, and twice as long after each trial that is
   * refused, up to an hour.
   * @returns whether an outage begins with it
   */
  refused(status: number, { now, request, reason, waitMs = 0 }: FailedRequest): boolean {
    this.#takesTrial(request)
    this.#note(now, reason)
    const { since = now, times = 0 } = this.#refused ?? {}
    // Requests that were under way tell nothing new.
    if (this.#refused && !this.#sentSince.has(request)) return false
    const outMs = Math.max(Math.min(REFUSED_MS * 2 ** times, REFUSED_MS_MAX), waitMs)
    this.#refused = { status, since, at: this.#change(now), until: now + outMs, times: times + 1 }
    this.#sentSince = new WeakSet()
    this.#trial = this.#broughtBack = this.#suspect = undefined
    return times === 0
  }

  /**
   * Notes a suspected refusal, which may be about the request. It counts as a refusal when requests of two keys meet it, at
   * least ten seconds and at most ten minutes apart, and none succeeds between them. Then the account is out for a minute.
   * @param key the key of the customer
   * @returns whether an outage begins with it
   */
  suspected(key: string, status: number, failed: FailedRequest): boolean {
    const { now, request, reason } = failed
    this.#takesTrial(request)
    if (this.#refused && !this.#sentSince.has(request)) return this.#note(now, reason)
    const suspect = this.#suspect
    const sinceMs = suspect ? now - suspect.at : Infinity
    if (suspect && suspect.key !== key && sinceMs >= CONFIRMED_MS_MIN && sinceMs < CONFIRMED_MS_MAX) {
      const times = this.#refused?.times
      const isNews = this.refused(status, { now, request, reason })
      // It does not double: two keys may belong to one customer.
      if (this.#refused && times !== undefined) this.#refused = { ...this.#refused, times, until: now + REFUSED_MS }
      return isNews
    }
    if (sinceMs >= CONFIRMED_MS_MAX) this.#suspect = { key, at: now }
    return this.#note(now, reason)
  }

  #note(now: number, reason: string): false {
    this.counts.failures++
    this.lastFailure = { at: now, reason }
    return false
  }

  /** Brings the account back, unless an operator has disabled it. */
  reset(now: number): void {
    this.#backAt = this.#change(now)
    this.#refused = undefined
    this.#models.reset(now)
    this.#coolUntil = this.#waitUntil = 0
    this.#level = 0
    this.#forgetFailures()
  }

  #forgetFailures(): void {
    this.#inARow = 0
    this.#window = { from: 0, requests: 0, failures: 0 }
    this.#trial = this.#broughtBack = this.#suspect = undefined
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
      refused: this.#refused,
      backAt: this.#backAt,
      models: this.#models.state,
      lastFailure: this.lastFailure,
    }
  }

  /**
   * Takes over what another process knows, if it is newer. A refusal is kept until the account is back, and the limit of a
   * model until a newer one is known: a process that does not know them yet may write later.
   */
  adopt({ at, coolUntil, waitUntil, level, refused, backAt, models, lastFailure }: HealthState): void {
    if (backAt > this.#backAt) this.#forgetFailures()
    this.#backAt = Math.max(this.#backAt, backAt)
    if (lastFailure && lastFailure.at > (this.lastFailure?.at ?? 0)) this.lastFailure = lastFailure
    const latest = (this.#refused?.at ?? 0) >= (refused?.at ?? 0) ? this.#refused : refused
    const known = latest && latest.at > this.#backAt ? latest : undefined
    if (known !== this.#refused) this.#restart()
    this.#refused = known
    this.#models.adopt(models)
    if (at <= this.#at) return
    if (coolUntil !== this.#coolUntil || level !== this.#level) this.#restart()
    this.#at = at
    this.#coolUntil = coolUntil
    this.#waitUntil = waitUntil
    this.#level = level
  }

  /** Forgets which requests were sent since another process took the account out or brought it back. */
  #restart(): void {
    this.#sentSince = new WeakSet()
    this.#broughtBack = undefined
  }

  #count(now: number, failures: number, windowMs = Infinity): void {
    if (now - this.#window.from >= windowMs) this.#window = { from: now, requests: 0, failures: 0 }
    this.#window.requests++
    this.#window.failures += failures
  }
}
