/** Periodic work of the ledger: ending expired holds, and folding old history entries into sums. */

import type { Config, LedgerConfig } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import type { Log } from '../lib/log.ts'
import type { Store } from '../store/store.ts'
import { Accounts } from './accounts.ts'
import { stored } from './scripts.ts'

/** Maximum entries per call of the trim script, which blocks the store. */
const TRIM_PAGE = 200
/** Maximum holds per call of the reap script, likewise. */
const REAP_PAGE = 1000
/** Seconds for which an account stays on the reaper's list after its last hold. */
const OPEN_FOR = 7200

/** A ledger with periodic maintenance. */
export class Maintenance extends Accounts {
  protected readonly log: Log
  readonly #config: LedgerConfig
  /** When each account was put on the reaper's list, in seconds. It is put there again after half of `OPEN_FOR`. */
  readonly #noted = new Map<string, number>()

  constructor(
    store: Store,
    place: Config['store'],
    config: LedgerConfig,
    { log, now }: Pick<Environment, 'log' | 'now'>,
  ) {
    super(store, place, config, now)
    this.log = log
    this.#config = config
  }

  /** Ends the expired holds of all accounts on the reaper's list. @returns the number of holds */
  async reapAll(): Promise<number> {
    const { redis } = this.scripts
    const open = this.scripts.shared('open')
    const accounts = await stored(redis.zrange(open, '0', '-1', 'WITHSCORES'))
    const old = this.now() / 1000 - OPEN_FOR
    let ended = 0
    for (let at = 0; at < accounts.length; at += 2) {
      const [account = '', noted = '0'] = [accounts[at], accounts[at + 1]]
      let live = '0'
      for (let page = REAP_PAGE; page === REAP_PAGE; ended += page) {
        const [, reaped = '0', left = '0'] = (await this.scripts.run('reap', account, '', [
          String(REAP_PAGE),
        ])) as string[]
        page = Number(reaped)
        live = left
      }
      if (live === '0' && Number(noted) < old) await stored(redis.zrem(open, account))
    }
    if (ended > 0) this.log.warn({ holds: ended }, 'ended expired holds and charged what was delivered')
    return ended
  }

  /** Folds history entries older than the retention time into sums. @returns the number of entries */
  async trimAll(): Promise<number> {
    const { historyMs, rememberMs } = this.#config
    const args = [String(this.now() - historyMs), String(TRIM_PAGE), String(rememberMs)]
    let trimmed = 0
    for (const account of await this.accounts()) {
      for (let more = TRIM_PAGE; more === TRIM_PAGE; trimmed += more) {
        const [, count = '0'] = (await this.scripts.run('trim', account, '', args)) as string[]
        more = Number(count)
      }
    }
    return trimmed
  }

  /** Puts an account on the reaper's list. */
  protected noteOpen(account: string): void {
    const now = Math.floor(this.now() / 1000)
    if ((this.#noted.get(account) ?? 0) > now - OPEN_FOR / 2) return
    this.#noted.set(account, now)
    this.scripts.redis.zadd(this.scripts.shared('open'), now, account).catch(() => this.#noted.delete(account))
  }
}
