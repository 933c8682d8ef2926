/** The numbers of every price that was ever in force, by version: entries name versions, and are recomputed from them. */
import { LRUCache } from 'lru-cache'
import { priceFromText, writePrice } from '../money/price-text.ts'
import type { Price } from '../money/price.ts'
import { type Scripts, stored } from './scripts.ts'

/** The key that all versions are kept under. */
const KEPT = 'prices'

export class PriceBook {
  readonly #scripts: Scripts
  /** Versions that are in force here, and those of them that the store is known to have. */
  readonly #current = new Map<string, string>()
  readonly #kept = new Set<string>()
  readonly #read = new LRUCache<string, Price>({ max: 1000 })

  constructor(scripts: Scripts) {
    this.#scripts = scripts
  }

  /** Notes prices that come into force. `keep` sees to it that the store has them. */
  add(prices: Iterable<Price>): void {
    for (const price of prices) {
      this.#current.set(price.version, writePrice(price))
      this.#read.set(price.version, price)
    }
  }

  /**
   * Puts into the store what it does not have yet.
   * @param again also what it had before, in case it was lost
   * @throws GatewayError unavailable; the next call tries again
   */
  async keep(again = false): Promise<void> {
    const { redis } = this.#scripts
    for (const [version, numbers] of this.#current) {
      if (!again && this.#kept.has(version)) continue
      await stored(redis.hsetnx(this.#scripts.shared(KEPT), version, numbers))
      this.#kept.add(version)
    }
  }

  /** The price that a version stands for; undefined for one that was never kept. @throws GatewayError unavailable */
  async get(version: string): Promise<Price | undefined> {
    const known = this.#read.get(version)
    if (known) return known
    const numbers = await stored(this.#scripts.redis.hget(this.#scripts.shared(KEPT), version))
    if (numbers === null) return undefined
    const price = priceFromText(numbers)
    this.#read.set(version, price)
    return price
  }

  /** Every version that is kept, with its numbers as they are kept. @throws GatewayError unavailable */
  async all(): Promise<Readonly<Record<string, string>>> {
    return stored(this.#scripts.redis.hgetall(this.#scripts.shared(KEPT)))
  }

  /** Puts a version back that an export has told of. @throws GatewayError unavailable */
  async restore(version: string, numbers: string): Promise<void> {
    await stored(this.#scripts.redis.hset(this.#scripts.shared(KEPT), version, numbers))
  }
}
