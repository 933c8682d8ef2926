/**
 * The price book: the numbers of every price version that was ever in force. History entries name versions and are
 * recomputed from them.
 */
import { LRUCache } from 'lru-cache'
import { priceFromText, writePrice } from '../money/price-text.ts'
import type { Price } from '../money/price.ts'
import { type Scripts, stored } from './scripts.ts'

/** The store key of all versions. */
const KEPT = 'prices'

/** Price versions and their numbers. */
export class PriceBook {
  readonly #scripts: Scripts
  /** The versions in force in this process, and those that the store is known to have. */
  readonly #current = new Map<string, string>()
  readonly #kept = new Set<string>()
  readonly #read = new LRUCache<string, Price>({ max: 1000 })

  constructor(scripts: Scripts) {
    this.#scripts = scripts
  }

  /** Adds prices that come into force. `keep` then writes them to the store. */
  add(prices: Iterable<Price>): void {
    for (const price of prices) {
      this.#current.set(price.version, writePrice(price))
      this.#read.set(price.version, price)
    }
  }

  /**
   * Writes missing versions to the store.
   * @param again whether to write known versions again, in case the store lost them
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

  /** Returns the price of a version. Undefined if it was never stored. @throws GatewayError unavailable */
  async get(version: string): Promise<Price | undefined> {
    const known = this.#read.get(version)
    if (known) return known
    const numbers = await stored(this.#scripts.redis.hget(this.#scripts.shared(KEPT), version))
    if (numbers === null) return undefined
    const price = priceFromText(numbers)
    this.#read.set(version, price)
    return price
  }

  /** Returns all stored versions with their numbers as stored. @throws GatewayError unavailable */
  async all(): Promise<Readonly<Record<string, string>>> {
    return stored(this.#scripts.redis.hgetall(this.#scripts.shared(KEPT)))
  }

  /** Restores a version from an export. @throws GatewayError unavailable */
  async restore(version: string, numbers: string): Promise<void> {
    await stored(this.#scripts.redis.hset(this.#scripts.shared(KEPT), version, numbers))
  }
}
