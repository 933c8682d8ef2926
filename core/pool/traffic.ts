/** How requests for each model have ended in the last hours, added up over all processes. No customer is in it. */
import type { Scripts } from '../ledger/script/scripts.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** Requests that were answered, and those that failed for a reason that is not the client's. */
export interface Ended {
  answered: number
  failed: number
}

/** The time that one sum covers, in milliseconds. */
const SLOT_MS = 300_000
const HOUR_MS = 3_600_000
/** How long the sums are kept, in seconds: a day, and the hour that has begun. */
const KEPT_S = 26 * 3600

/** Counts in this process, and adds them to the sums of all. */
export class Traffic {
  readonly #scripts: Scripts
  readonly #now: () => number
  /** Not added to the sums yet, by hour and then by field. */
  #counted = new Map<number, Map<string, number>>()

  /** @param now milliseconds since the epoch */
  constructor(scripts: Scripts, now: () => number) {
    this.#scripts = scripts
    this.#now = now
  }

  /** Counts a request for a model. */
  add(model: string, end: keyof Ended): void {
    const slot = Math.floor(this.#now() / SLOT_MS)
    const hour = Math.floor((slot * SLOT_MS) / HOUR_MS)
    let counts = this.#counted.get(hour)
    if (!counts) this.#counted.set(hour, (counts = new Map()))
    const field = `${slot} ${end} ${model}`
    counts.set(field, (counts.get(field) ?? 0) + 1)
  }

  /** Adds what was counted to the sums of all processes. @throws GatewayError unavailable; the counts are kept then */
  async flush(): Promise<void> {
    const counted = this.#counted
    this.#counted = new Map()
    for (const [hour, counts] of counted) {
      const key = this.#keyOf(hour)
      for (const [field, count] of counts) {
        try {
          await this.#scripts.write('HINCRBY', key, field, count)
          counts.delete(field)
        } catch (thrown) {
          this.#keep(counted)
          throw thrown
        }
      }
      await this.#scripts.write('EXPIRE', key, KEPT_S)
      counted.delete(hour)
    }
  }

  #keep(counted: ReadonlyMap<number, ReadonlyMap<string, number>>): void {
    for (const [hour, counts] of counted) {
      const own = this.#counted.get(hour) ?? new Map<string, number>()
      for (const [field, count] of counts) own.set(field, (own.get(field) ?? 0) + count)
      this.#counted.set(hour, own)
    }
  }

  /**
   * Returns what is known of each model.
   * @returns by model: the last quarter of an hour, and the last 24 hours, the oldest first
   * @throws GatewayError unavailable
   */
  async read(): Promise<Map<string, { readonly recent: Ended; readonly hours: readonly Ended[] }>> {
    const { redis } = this.#scripts
    const now = this.#now()
    const last = Math.floor(now / HOUR_MS)
    const hours = Array.from({ length: 24 }, (_, at) => last - 23 + at)
    const sums = await Promise.all(hours.map(hour => orUnavailable(redis.hgetall(this.#keyOf(hour)))))
    const recentFrom = Math.floor(now / SLOT_MS) - 2
    const found = new Map<string, { recent: Ended; hours: Ended[] }>()
    sums.forEach((fields, at) => {
      for (const [field, text] of Object.entries(fields)) {
        const [, slot = '', end = '', model = ''] = /^(\d+) (answered|failed) (.*)$/.exec(field) ?? []
        let own = found.get(model)
        if (!own) found.set(model, (own = { recent: none(), hours: hours.map(none) }))
        const hour = own.hours[at]
        for (const sum of Number(slot) >= recentFrom ? [own.recent, hour] : [hour])
          if (sum) sum[end as keyof Ended] += Number(text)
      }
    })
    return found
  }

  #keyOf(hour: number): string {
    return this.#scripts.keys.shared(`traffic:${hour}`)
  }
}

function none(): Ended {
  return { answered: 0, failed: 0 }
}
