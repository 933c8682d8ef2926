/** The limits of the models at one account: rate limits belong to a model, so that others can be asked meanwhile. */

/** A limit of one model at an account. Times are in milliseconds since the epoch. */
export interface ModelLimit {
  /** When this was last changed. */
  readonly at: number
  /** Until when the provider asks to wait. */
  readonly until: number
  /** Until when the model is not asked for if another account can serve, as the provider did not say how long. */
  readonly coolUntil: number
  /** How often in a row the provider limited it without saying for how long. */
  readonly level: number
}

/** The first wait of a model whose provider does not say how long, and the longest one, in milliseconds. */
const WAIT_MS = 1000
const WAIT_MS_MAX = 60_000

/** By how much a wait must change for other processes, and the log, to hear of it, in milliseconds. */
export const NOTABLE_MS = 1000

/** The limits of one account, by the names of the models that are sent. */
export class ModelLimits {
  readonly #limits = new Map<string, ModelLimit>()

  /** Until when the provider asks to wait for a model, in milliseconds since the epoch. */
  until(model: string): number {
    return this.#limits.get(model)?.until ?? 0
  }

  /** Until when a model should not be asked for, in milliseconds since the epoch. */
  outUntil(model: string): number {
    const { until = 0, coolUntil = 0 } = this.#limits.get(model) ?? {}
    return Math.max(until, coolUntil)
  }

  get state(): Readonly<Record<string, ModelLimit>> {
    return Object.fromEntries(this.#limits)
  }

  /**
   * Notes that the provider limits a model. Without a time, other accounts are preferred for a second, and for twice as
   * long each time in a row.
   * @param waitMs how long the provider asks to wait, if it does
   * @param change notes a notable change, and returns its time
   * @returns whether the model is out for notably longer
   */
  add(now: number, model: string, waitMs: number | undefined, change: () => number): boolean {
    const limit = this.#limits.get(model) ?? { at: 0, until: 0, coolUntil: 0, level: 0 }
    if (waitMs === undefined) {
      // Requests that were under way, or had no better account, tell nothing new.
      if (now < this.outUntil(model)) return false
      const coolUntil = now + Math.min(WAIT_MS * 2 ** limit.level, WAIT_MS_MAX)
      this.#limits.set(model, { ...limit, at: change(), coolUntil, level: limit.level + 1 })
      return true
    }
    const until = Math.max(limit.until, now + waitMs)
    const isNotable = until > limit.until + NOTABLE_MS
    if (isNotable) this.#forgetOld(now)
    this.#limits.set(model, { ...limit, at: isNotable ? change() : limit.at, until })
    return isNotable
  }

  /** Names of models may come and go with the file. */
  #forgetOld(now: number): void {
    for (const model of this.#limits.keys()) if (this.outUntil(model) + WAIT_MS_MAX < now) this.#limits.delete(model)
  }

  /** Notes a reply of a model. A wait that the provider named is kept. */
  served(model: string, change: () => number): void {
    const limit = this.#limits.get(model)
    if (limit && limit.level > 0) this.#limits.set(model, { ...limit, coolUntil: 0, level: 0, at: change() })
  }

  /** Ends all limits. */
  reset(now: number): void {
    for (const [model, { at }] of this.#limits)
      this.#limits.set(model, { at: Math.max(now, at + 1), until: 0, coolUntil: 0, level: 0 })
  }

  /** Takes over the limits that another process knows, where they are newer. */
  adopt(limits: Readonly<Record<string, ModelLimit>>): void {
    for (const [model, limit] of Object.entries(limits))
      if (limit.at > (this.#limits.get(model)?.at ?? 0)) this.#limits.set(model, limit)
  }
}
