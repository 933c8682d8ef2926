/** Accounts and their grants in the records. */
import {
  accountOf,
  insertGrants,
  insertNew,
  type Metadata,
  type NewAccount,
  nextNumber,
  noteApplied,
  type RecordedAccount,
  SUMS,
} from './account-rows.ts'
import {
  type Also,
  bigintOf,
  containing,
  type Database,
  inPages,
  RecordsError,
  selectIn,
  type SqlValue,
  Where,
} from './database.ts'

/** One grant. What an operator takes back is a grant with a negative amount. */
export interface Grant {
  readonly account: string
  /** Counts the grants of the account from 1 on. */
  readonly n: number
  /** Chosen by the caller: repeating it adds nothing. */
  readonly id: string
  readonly amount: bigint
  readonly at: number
  readonly notes: Readonly<Record<string, string>>
}

const SELECT = `SELECT a.no, a.id, a.pending, ${SUMS} FROM accounts a LEFT JOIN totals t ON t.account = a.no`

/** What an operator may change of an account. Undefined stays as it is. */
export interface AccountEdit {
  readonly name?: string | undefined
  readonly externalId?: string | undefined
  readonly metadata?: Metadata | undefined
}

/** Which accounts to list, the newest first. */
export interface AccountSearch {
  /** Part of the id, the name or the external id, also of a key that spends from it. */
  readonly text?: string | undefined
  readonly externalId?: string | undefined
  /** The id of the last account of the page before. */
  readonly after?: string | undefined
  readonly count: number
}

/** Reads and writes accounts. */
export class AccountRecords {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Finds an account by its id. */
  async get(id: string): Promise<RecordedAccount | undefined> {
    const [row] = await this.#database.all(`${SELECT} WHERE a.id = ?`, [id])
    return row && accountOf(row)
  }

  /**
   * Adds an account without a key, with its first grant in nano-credits, 0 for none. It is pending until `applied`.
   * @param at the time by the store's clock, in milliseconds since the epoch
   */
  async add(
    account: Omit<NewAccount, 'no' | 'grants' | 'granted' | 'pending' | 'changed'>,
    granted: bigint,
    at: number,
    also?: Also,
  ): Promise<void> {
    await this.#database.transaction(async sql => {
      const no = await nextNumber(sql)
      await insertNew(sql, [{ ...account, no, granted, pending: true, changed: at }], { at })
      await also?.(sql)
    })
  }

  /** Changes what an operator notes of an account. @returns whether there is one */
  edit(id: string, { name, externalId, metadata }: AccountEdit, also?: Also): Promise<boolean> {
    return this.#database.transaction(async sql => {
      const rows = await sql.all(
        `UPDATE accounts SET name = COALESCE(?, name), metadata = COALESCE(?, metadata),
         external = CASE WHEN ? = 1 THEN ? ELSE external END WHERE id = ? RETURNING no`,
        [
          name ?? null,
          metadata === undefined ? null : JSON.stringify(metadata),
          externalId === undefined ? 0 : 1,
          externalId || null,
          id,
        ],
      )
      if (rows.length > 0) await also?.(sql)
      return rows.length > 0
    })
  }

  /** Lists accounts, one page at a time, the newest first. */
  async list({ text, externalId, after, count }: AccountSearch): Promise<RecordedAccount[]> {
    const where = new Where()
      .addIf('a.external = ?', externalId)
      .addIf('a.no < (SELECT no FROM accounts WHERE id = ?)', after)
    if (text !== undefined) {
      const { dialect } = this.#database
      const own = containing(dialect, text, ['a.id', 'a.name', 'a.external'])
      const ofKeys = containing(dialect, text, ['o.id', 'o.name', 'o.label', 'o.hint'])
      where.add(
        `(${own.condition} OR EXISTS (SELECT 1 FROM keys o WHERE o.account = a.no AND (${ofKeys.condition})))`,
        ...own.values,
        ...ofKeys.values,
      )
    }
    const rows = await this.#database.all(`${SELECT} ${where.text} ORDER BY a.no DESC LIMIT ?`, [
      ...where.values,
      count,
    ])
    return rows.map(accountOf)
  }

  /** Returns the number of keys that spend from each of some accounts, and are not deleted, by account. */
  async countKeys(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const rows = await selectIn(
      this.#database,
      `SELECT a.id, (SELECT COUNT(*) FROM keys k WHERE k.account = a.no AND k.status <> 'deleted') AS keys FROM accounts a
       WHERE a.id`,
      ids,
    )
    return new Map(rows.map(row => [String(row['id']), Number(row['keys'])]))
  }

  /** Finds accounts by their ids. */
  async withIds(ids: readonly string[]): Promise<RecordedAccount[]> {
    return (await selectIn(this.#database, `${SELECT} WHERE a.id`, ids)).map(accountOf)
  }

  /** Returns an account with what its keys were charged there, all read at one moment. @throws RecordsError for an unknown account */
  async withParts(
    id: string,
  ): Promise<{ readonly sums: RecordedAccount; readonly parts: ReadonlyMap<string, bigint> }> {
    const rows = await this.#database.all(
      `SELECT a.no, a.id, a.pending, ${SUMS}, k.id AS key, p.settled AS part FROM accounts a
       LEFT JOIN totals t ON t.account = a.no LEFT JOIN key_totals p ON p.account = a.no LEFT JOIN keys k ON k.no = p.key
       WHERE a.id = ?`,
      [id],
    )
    const [first] = rows
    if (!first) throw new RecordsError(`the records have no balance ${id}`)
    const parts = rows
      .filter(({ key }) => key !== null)
      .map(row => [String(row['key']), bigintOf(row, 'part')] as const)
    return { sums: accountOf(first), parts: new Map(parts) }
  }

  /** Returns what a key was charged on each account, in nano-credits, as far as it is recorded, by account. */
  async ofKey(key: string): Promise<ReadonlyMap<string, bigint>> {
    const rows = await this.#database.all(
      `SELECT a.id, p.settled FROM key_totals p JOIN accounts a ON a.no = p.account
       WHERE p.key = (SELECT no FROM keys WHERE id = ?)`,
      [key],
    )
    return new Map(rows.map(row => [String(row['id']), bigintOf(row, 'settled')]))
  }

  /** Iterates over all accounts, in pages. */
  pages(size: number): AsyncGenerator<RecordedAccount[]> {
    return this.#pages('TRUE', [], size)
  }

  /** Iterates over the pending accounts, and those whose grants or exchanges changed since a time, in pages. */
  changedSince(ms: number, size: number): AsyncGenerator<RecordedAccount[]> {
    return this.#pages('(a.changed >= ? OR t.changed >= ? OR a.pending = 1)', [ms, ms], size)
  }

  #pages(condition: string, values: readonly SqlValue[], size: number): AsyncGenerator<RecordedAccount[]> {
    return inPages(this.#database, { select: `${SELECT} WHERE ${condition}`, no: 'a.no', values }, size, accountOf)
  }

  /** Returns accounts whose grants the store may not know. */
  async pending(count: number): Promise<RecordedAccount[]> {
    return (await this.#database.all(`${SELECT} WHERE a.pending = 1 ORDER BY a.no LIMIT ?`, [count])).map(accountOf)
  }

  /**
   * Notes that the store knows the grants of accounts as they were read.
   * @param at the time by the store's clock: what it loses afterwards may be these
   */
  async applied(accounts: readonly Pick<RecordedAccount, 'id' | 'grants'>[], at: number): Promise<void> {
    await this.#database.transaction(async sql => {
      for (const account of accounts) await noteApplied(sql, account, at)
    })
  }

  /**
   * Adds a grant. It is pending until `applied`.
   * @param most the largest balance that it may lead to, as far as exchanges are recorded
   * @returns the grant with this id, and whether this call added it; undefined if there is no such account; otherwise why
   * it was not added: the balance would be too large or below zero, or its only key is deleted
   */
  async grant(
    account: string,
    { id, amount, at, notes }: Omit<Grant, 'account' | 'n'>,
    most: bigint,
    also?: Also,
  ): Promise<{ grant: Grant; added: boolean } | 'over' | 'under' | 'deleted' | undefined> {
    return this.#database.transaction(async sql => {
      const [row] = await sql.all(
        `SELECT a.no, k.status, a.grants, a.granted - COALESCE(t.settled, 0) AS balance,
         COALESCE(t.booked, 0) AS booked
         FROM accounts a LEFT JOIN totals t ON t.account = a.no LEFT JOIN keys k ON k.no = a.no AND a.shared = 0
         WHERE a.id = ?`,
        [account],
      )
      if (!row) return undefined
      const no = Number(row['no'])
      const [known] = await sql.all('SELECT n, amount, at FROM grants WHERE account = ? AND id = ?', [no, id])
      if (known) {
        const amountThen = bigintOf(known, 'amount')
        const grant = { account, id, notes, n: Number(known['n']), amount: amountThen, at: Number(known['at']) }
        return { grant, added: false }
      }
      if (row['status'] === 'deleted') return 'deleted'
      const balance = bigintOf(row, 'balance') + amount
      if (balance > most) return 'over'
      if (amount < 0n && balance < 0n) return 'under'
      await also?.(sql)
      const n = Number(row['grants']) + 1
      const values = [no, n, id, amount, at, JSON.stringify(notes), balance, n + Number(row['booked'])]
      await insertGrants(sql, [values])
      await sql.all('UPDATE accounts SET grants = ?, granted = granted + ?, pending = 1, changed = ? WHERE no = ?', [
        n,
        amount,
        at,
        no,
      ])
      return { grant: { account, id, amount, at, notes, n }, added: true }
    })
  }

  /** Returns the grants of an account from a number on, in their order. */
  async grants(account: string, from: number): Promise<Grant[]> {
    const rows = await this.#database.all(
      `SELECT g.n, g.id, g.amount, g.at, g.notes FROM grants g JOIN accounts a ON a.no = g.account
       WHERE a.id = ? AND g.n >= ? ORDER BY g.n`,
      [account, from],
    )
    return rows.map(row => ({
      account,
      n: Number(row['n']),
      id: String(row['id']),
      amount: bigintOf(row, 'amount'),
      at: Number(row['at']),
      notes: JSON.parse(String(row['notes'])) as Record<string, string>,
    }))
  }
}
