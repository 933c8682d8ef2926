/** Fills the windows of keys that are asked for first, so that a limit of the day counts the same whenever it is set. */
import { utcDay } from '../plans/limits.ts'
import { unavailable } from '../records/unavailable.ts'
import type { Reads } from './reads.ts'
import { operation } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'
import { ownerOf, type Spender } from './script/store-keys.ts'

/** How often a window is filled again because its account was charged meanwhile. */
const TRIES = 50

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
   * Writes to the store what a key has used of its day.
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
    const args = { name: account, owner: ownerOf(spender), holdPrefix: keys.hold(account, '') }
    for (let tries = 0; tries < TRIES; tries++) {
      const used = await this.#reads.usedToday(spender, utcDay(now))
      const fill = operation('fill', account, { account: own, record, leases }, { ...args, ...used })
      if ((await this.#scripts.run(fill))[0] === 'ok') return
    }
    throw unavailable(new Error('what a key has used today is unclear'))
  }
}
