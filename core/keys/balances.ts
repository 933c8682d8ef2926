/** Creates and changes balances, as operators do. Each change goes to the records first, then to the store. */
import { randomBytes } from 'node:crypto'
import type { Ledger } from '../ledger/ledger.ts'
import { type AccountEdit } from '../records/account-records.ts'
import { ACCOUNT_PREFIX, type RecordedAccount } from '../records/account-rows.ts'
import type { Also } from '../records/database.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** The properties of a new balance. */
export interface NewBalance {
  /** The operator's own name for it, and what a shop calls it; both may be empty. */
  readonly name: string
  readonly externalId: string
  readonly metadata: RecordedAccount['metadata']
  /** In nano-credits; 0 for none. */
  readonly credits: bigint
}

/** Changes balances. Credits are added and taken back by `Ledger.accounts`. */
export class Balances {
  readonly #ledger: Ledger
  readonly #now: () => number

  /** @param now milliseconds since the epoch */
  constructor(ledger: Ledger, now: () => number) {
    this.#ledger = ledger
    this.#now = now
  }

  /**
   * Creates a balance without a key.
   * @param also written in the transaction that records it, given its id
   * @returns its id
   * @throws GatewayError unavailable if it may not be recorded; what `also` throws
   */
  async create(wish: NewBalance, also?: (id: string) => Also): Promise<string> {
    const { records, continuity } = this.#ledger
    const id = `${ACCOUNT_PREFIX}${randomBytes(9).toString('hex')}`
    const { credits, ...more } = wish
    const account = { ...more, id, createdAt: this.#now(), shared: true }
    await orUnavailable(records.accounts.add(account, credits, continuity.now(), also?.(id)))
    await this.bringUp(id)
    return id
  }

  /**
   * Changes what an operator notes of a balance. Members that are undefined stay.
   * @returns whether there is such a balance
   * @throws GatewayError unavailable; what `also` throws
   */
  edit(id: string, edit: AccountEdit, also?: Also): Promise<boolean> {
    return orUnavailable(this.#ledger.records.accounts.edit(id, edit, also))
  }

  /** Writes a balance to the store now instead of in the background, if that is possible. */
  async bringUp(id: string): Promise<void> {
    const { records, restorer, continuity } = this.#ledger
    try {
      const account = await records.accounts.get(id)
      if (!account) return
      await restorer.restoreAccount(account)
      await records.accounts.applied([account], continuity.now())
    } catch {
      // It is recorded, and pending.
    }
  }
}
