/** The limits of the models at one account: rate limits belong to a model, so that others can be asked meanwhile. */

/** A limit of one model at an account. Times are in milliseconds since the epoch. */
export interface ModelLimit {
  /** When this was last changed. */
  readonly at: number
  /** Until when the model is not asked for at this account. */
  readonly until: number
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

  /** Until when a model is not asked for, in milliseconds since the epoch. */
  until(model: string): number {
    return this.#limits.get(model)?.until ?? 0
  }

  get state(): Readonly<Record<string, ModelLimit>> {
    return Object.fromEntries(this.#limits)
  }

  /**
   * Notes that the provider limits a model. Without a time it waits for a second, and twice as long each time in a row.
   * @param waitMs how long the provider asks to wait, if it does
   * @param change notes a notable change, and returns its time
   * @returns whether the model must wait for notably longer
   */
  add(now: number, model: string, waitMs: number | undefined, change: () => number): boolean {
    const { at = 0, until = 0, level = 0 } = this.#limits.get(model) ?? {}
    // Requests that were under way tell nothing new.
    if (waitMs === undefined && now < until) return false
    const next = Math.max(until, now + (waitMs ?? Math.min(WAIT_MS * 2 ** level, WAIT_MS_MAX)))
    const isNotable = waitMs === undefined || next > until + NOTABLE_MS
    if (isNotable) this.#forgetOld(now)
    this.#limits.set(model, {
      at: isNotable ? change() : at,
      level: waitMs === undefined ? level + 1 : level,
      until: next,
    })
    return isNotable
  }

  /** Names of models may come and go with the file. */
  #forgetOld(now: number): void {
    for (const [model, { until }] of this.#limits) if (until + WAIT_MS_MAX < now) this.#limits.delete(model)
  }

  /** Notes a reply of a model: it ends the doubling. A wait that the provider named is kept. */
  served(model: string, change: () => number): void {
    const limit = this.#limits.get(model)
    if (limit && limit.level > 0) this.#limits.set(model, { ...limit, level: 0, at: change() })
  }

  /** Ends all limits. */
  reset(now: number): void {
    for (const [model, { at }] of this.#limits)
      this.#limits.set(model, { at: Math.max(now, at + 1), until: 0, level: 0 })
  }

  /** Takes over the limits that another process knows, where they are newer. */
  adopt(limits: Readonly<Record<string, ModelLimit>>): void {
    for (const [model, limit] of Object.entries(limits))
      if (limit.at > (this.#limits.get(model)?.at ?? 0)) this.#limits.set(model, limit)
  }
}
