/** Counts what each of many does in a minute. */
import { LRUCache } from 'lru-cache'

const MINUTE_MS = 60_000
/** How many are remembered at a time: those that were counted longest ago are forgotten first. */
const NAMES_MAX = 100_000

interface Seen {
  count: number
  readonly since: number
}

export class PerMinute {
  readonly #seen = new LRUCache<string, Seen>({ max: NAMES_MAX })
  readonly #now: () => number

  /** @param now milliseconds since the epoch */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Counts once for a name. The minute of a name begins with the first count in it. */
  add(name: string): void {
    const now = this.#now()
    const seen = this.#seen.get(name)
    if (seen && now - seen.since < MINUTE_MS) seen.count++
    else this.#seen.set(name, { count: 1, since: now })
  }

  /** Counts once for a name that may be counted `most` times in a minute. @returns milliseconds to wait where it may not; 0 where it was counted */
  take(name: string, most: number): number {
    const waitMs = this.waitMs(name, most)
    if (waitMs === 0) this.add(name)
    return waitMs
  }

  /** Milliseconds until the minute of a name that has been counted `most` times is over; 0 when it may go on. */
  waitMs(name: string, most: number): number {
    const seen = this.#seen.get(name)
    if (!seen || seen.count < most) return 0
    return Math.max(0, seen.since + MINUTE_MS - this.#now())
  }
}
