/** Counts how often each of many names does something in a minute. */
import { GatewayError } from '../errors.ts'
import { lru } from '../lib/lru.ts'

const MINUTE_MS = 60_000
/** Names that are remembered. The names that were counted longest ago are forgotten first. */
const NAMES_MAX = 100_000

interface Seen {
  count: number
  readonly since: number
}

/** Counts by name, each over a minute of its own. */
export class PerMinute {
  readonly #seen = lru<string, Seen>(NAMES_MAX)
  readonly #now: () => number

  /** @param now milliseconds since the epoch */
  constructor(now: () => number) {
    this.#now = now
  }

  /** Counts once for a name. Its minute begins with the first count. */
  add(name: string): void {
    const now = this.#now()
    const seen = this.#seen.get(name)
    if (seen && now - seen.since < MINUTE_MS) seen.count++
    else this.#seen.set(name, { count: 1, since: now })
  }

  /**
   * Counts once for a name, unless it was counted `most` times in its minute.
   * @returns milliseconds to wait; 0 if it was counted
   */
  take(name: string, most: number): number {
    const waitMs = this.waitMs(name, most)
    if (waitMs === 0) this.add(name)
    return waitMs
  }

  /** Does what `take` does. @throws GatewayError rate_limited, with the message, when the name has to wait */
  limit(name: string, most: number, message: string): void {
    const retryAfterMs = this.take(name, most)
    if (retryAfterMs > 0) throw new GatewayError('rate_limited', { message, retryAfterMs })
  }

  /** Takes back what `take` counted: it was nothing that is limited. */
  giveBack(name: string): void {
    const seen = this.#seen.get(name)
    if (seen && seen.count > 0) seen.count--
  }

  /** Milliseconds until the minute of a name is over that was counted `most` times; 0 if it may go on. */
  waitMs(name: string, most: number): number {
    const seen = this.#seen.get(name)
    if (!seen || seen.count < most) return 0
    return Math.max(0, seen.since + MINUTE_MS - this.#now())
  }
}
