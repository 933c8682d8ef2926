/** Takes over accounts from a store of the first layout, whose histories were in the store. */
import { bytesOfId, idFromBytes } from '../lib/ids.ts'
import { type Database, insertAll, selectIn } from './database.ts'
import { type Grant, insertAccounts, type KeyRecord } from './key-records.ts'

/** What an account had before its oldest entry: sums of entries that were deleted. */
export interface OpeningTotals {
  readonly settled: bigint
  readonly requests: number
  readonly input: number
  readonly output: number
  readonly quarantined: number
}

/** Writes accounts that are taken over. Each step may be repeated. */
export class Openings {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Returns which accounts are complete. */
  async complete(accounts: readonly string[]): Promise<Set<string>> {
    const rows = await selectIn(this.#database, 'SELECT old FROM migrated WHERE old', accounts)
    return new Set(rows.map(row => String(row['old'])))
  }

  /** Adds a key with all its grants, unless it is there. */
  async add(key: KeyRecord, grants: readonly Omit<Grant, 'account' | 'n'>[]): Promise<void> {
    await this.#database.transaction(async sql => {
      const [known] = await sql.all('SELECT no FROM accounts WHERE id = ?', [key.id])
      if (known) return
      const granted = grants.reduce((sum, { amount }) => sum + amount, 0n)
      const row = { ...key, grants: grants.length, granted, pending: false, changed: key.createdAt }
      const no = await insertAccounts(sql, [row])
      await insertAll(
        sql,
        'INSERT INTO grants (account, n, id, amount, at, notes)',
        grants.map(({ id, amount, at, notes }, index) => [no, index + 1, id, amount, at, JSON.stringify(notes)]),
        '',
      )
    })
  }

  /**
   * Completes an account: adds what it had before its oldest entry, and notes the new ids of exchanges that may still be
   * settled.
   */
  async finish(account: string, opening: OpeningTotals, ids: ReadonlyMap<string, string>): Promise<void> {
    const { settled, requests, input, output, quarantined } = opening
    await this.#database.transaction(async sql => {
      const [done] = await sql.all('SELECT old FROM migrated WHERE old = ?', [account])
      if (done) return
      await sql.all(
        `INSERT INTO totals (account, ordinal, settled, folded, entries, requests, input, output, quarantined, changed)
         SELECT no, 0, ?, ?, 0, ?, ?, ?, ?, 0 FROM accounts WHERE id = ?
         ON CONFLICT (account) DO UPDATE SET settled = totals.settled + excluded.settled,
         folded = totals.folded + excluded.folded, requests = totals.requests + excluded.requests,
         input = totals.input + excluded.input, output = totals.output + excluded.output,
         quarantined = totals.quarantined + excluded.quarantined`,
        [settled, settled, requests, input, output, quarantined, account],
      )
      await insertAll(
        sql,
        'INSERT INTO migrated (old, id)',
        [[account, Buffer.alloc(16)], ...[...ids].map(([old, id]) => [old, bytesOfId(id)])],
        'ON CONFLICT (old) DO NOTHING',
      )
    })
  }

  /** Returns the id under which an exchange of the first layout is recorded. */
  async idOf(old: string): Promise<string | undefined> {
    const [row] = await this.#database.all('SELECT id FROM migrated WHERE old = ?', [old])
    return row && idFromBytes(row['id'] as Uint8Array)
  }
}
