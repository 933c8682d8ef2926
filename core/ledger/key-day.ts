/** Fills the windows of keys that are asked for first, so that a limit of the day counts the same whenever it is set. */
import { utcDay } from '../plans/limits.ts'
import type { Reads } from './reads.ts'
import { operation } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'
import { ownerOf, type Spender } from './script/store-keys.ts'

/** Fills the windows of keys. */
export class KeyDays {
  readonly #scripts: Scripts
  readonly #reads: Reads
  /** What runs, by the record of the key: all requests of a key wait for one. */
  readonly #running = new Map<string, Promise<void>>()

  constructor(scripts: Scripts, reads: Reads) {
    this.#scripts = scripts
    this.#reads = reads
  }

  /**
   * Writes to the store what a key has used of its day, unless its account is charged meanwhile.
   * @param now by the store's clock
   * @throws GatewayError unavailable
   */
  fill(spender: Spender, now: number): Promise<void> {
    const record = this.#scripts.keys.record(spender)
    let running = this.#running.get(record)
    if (!running) {
      running = this.#fill(spender, record, now).finally(() => this.#running.delete(record))
      this.#running.set(record, running)
    }
    return running
  }

  async #fill(spender: Spender, record: string, now: number): Promise<void> {
    const { account } = spender
    const { keys } = this.#scripts
    const { account: own, leases } = keys.of(account)
    const used = await this.#reads.usedToday(spender, utcDay(now))
    const args = { name: account, owner: ownerOf(spender), holdPrefix: keys.hold(account, ''), ...used }
    await this.#scripts.run(operation('fill', account, { account: own, record, leases }, args))
  }
}
