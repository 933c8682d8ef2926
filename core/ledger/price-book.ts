/**
 * The price book: the numbers of every price version that was ever in force. Entries of the history name versions and
 * are recomputed from them.
 */
import { LRUCache } from 'lru-cache'
import { priceFromText, writePrice } from '../money/price-text.ts'
import { factorIn, timesKeyFactor } from '../money/price-factor.ts'
import type { Price } from '../money/price.ts'
import type { Records } from '../records/records.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** Price versions and their numbers. */
export class PriceBook {
  readonly #records: Records
  /** The versions in force in this process that may not be recorded. */
  readonly #missing = new Map<string, string>()
  readonly #read = new LRUCache<string, Price>({ max: 1000 })

  constructor(records: Records) {
    this.#records = records
  }

  /** Adds prices that come into force. `keep` then records them. */
  add(prices: Iterable<Price>): void {
    for (const price of prices) {
      this.#missing.set(price.version, writePrice(price))
      this.#read.set(price.version, price)
    }
  }

  /** Records missing versions. @throws GatewayError unavailable; the next call tries again */
  async keep(): Promise<void> {
    if (this.#missing.size === 0) return
    const missing = new Map(this.#missing)
    await orUnavailable(this.#records.addPrices(missing))
    for (const version of missing.keys()) this.#missing.delete(version)
  }

  /** Returns the price of a version. Undefined if it was never recorded. @throws GatewayError unavailable */
  async get(version: string): Promise<Price | undefined> {
    const known = this.#read.get(version)
    if (known) return known
    const multiplied = factorIn(version)
    if (multiplied) {
      const price = await this.get(multiplied.of)
      return price && timesKeyFactor(price, multiplied.factor)
    }
    const numbers = await orUnavailable(this.#records.price(version))
    if (numbers === undefined) return undefined
    const price = priceFromText(numbers)
    this.#read.set(version, price)
    return price
  }
}
