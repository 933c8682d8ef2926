/** Accounts and their grants in the records. */
import {
  type Also,
  bigintOf,
  type Database,
  insertAll,
  RecordsError,
  type Row,
  selectIn,
  type Sql,
  type SqlValue,
} from './database.ts'
import { DAY_COLUMNS } from './day-sums.ts'

/** Prefix of the ids of accounts that were not made with a key. */
export const ACCOUNT_PREFIX = 'bal_'

/** What an operator notes of a key or of a balance. */
export type Metadata = Readonly<Record<string, string>>

/** An account with the sums that the records know of it. */
export interface RecordedAccount {
  readonly id: string
  /** The operator's own name for it, and what a shop calls it; both may be empty. */
  readonly name: string
  readonly externalId: string
  readonly metadata: Metadata
  readonly createdAt: number
  /** Whether several keys may spend from it. */
  readonly shared: boolean
  /** The number of its grants, and their sum in nano-credits. */
  readonly grants: number
  readonly granted: bigint
  /** What its recorded exchanges were charged, and the number of the latest of its recorded entries. */
  readonly settled: bigint
  readonly ordinal: number
  /** When its latest recorded exchange ended, in milliseconds since the epoch. */
  readonly endedAt: number
  /** True until the store has all its grants. */
  readonly pending: boolean
}

/** The sums of an account, as far as they are recorded. */
export type AccountSums = Pick<
  RecordedAccount,
  'id' | 'shared' | 'grants' | 'granted' | 'settled' | 'ordinal' | 'endedAt'
>

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

/** The columns of an account `a` with its totals `t`. */
export const SUMS = `a.name AS account_name, a.external, a.metadata AS account_metadata, a.created AS account_created,
  a.shared, a.grants, a.granted, COALESCE(t.settled, 0) AS settled, COALESCE(t.ordinal, 0) AS ordinal,
  COALESCE(t.changed, 0) AS ended_at`
const SELECT = `SELECT a.no, a.id, a.pending, ${SUMS} FROM accounts a LEFT JOIN totals t ON t.account = a.no`

/** What is written of an account and of a key that the records only have. */
export interface Changed {
  readonly pending: boolean
  /** When it was changed last, in milliseconds since the epoch. */
  readonly changed: number
}

/** An account as it is inserted. */
export interface NewAccount
  extends
    Changed,
    Pick<RecordedAccount, 'id' | 'grants' | 'granted' | 'createdAt' | 'shared' | 'name' | 'externalId' | 'metadata'> {}

/** Inserts accounts under consecutive numbers, from one on. */
export async function insertRows(sql: Sql, first: number, accounts: readonly NewAccount[]): Promise<void> {
  await insertAll(
    sql,
    'INSERT INTO accounts (no, id, name, external, metadata, shared, created, grants, granted, pending, changed)',
    accounts.map((account, index): SqlValue[] => [
      first + index,
      account.id,
      account.name,
      account.externalId || null,
      JSON.stringify(account.metadata),
      account.shared ? 1 : 0,
      account.createdAt,
      account.grants,
      account.granted,
      account.pending ? 1 : 0,
      account.changed,
    ]),
    '',
  )
}

/** The tables that have sums by key, with what is copied to them when an account is shared. */
const SUMS_BY_KEY = [
  `INSERT INTO key_totals (account, key, settled, requests, input, output, quarantined)
   SELECT account, account, settled, requests, input, output, quarantined FROM totals WHERE account = ?`,
  `INSERT INTO day_keys (key, account, {COLUMNS}) SELECT account, account, {COLUMNS} FROM day_accounts WHERE account = ?`,
  `INSERT INTO key_models (key, account, model, requests, input, output, charge)
   SELECT account, account, model, requests, input, output, charge FROM account_models WHERE account = ?`,
  `INSERT INTO day_key_models (key, account, day, model, requests, input, output, charge)
   SELECT account, account, day, model, requests, input, output, charge FROM day_account_models WHERE account = ?`,
] as const

/**
 * Lets several keys spend from an account. What was charged until now, was charged by the key that it was made with.
 * @param at the time by the store's clock, in milliseconds since the epoch
 * @returns the number of the account; undefined if there is none
 */
export async function share(sql: Sql, account: string, at: number): Promise<number | undefined> {
  const [row] = await sql.all('SELECT no, shared FROM accounts WHERE id = ?', [account])
  if (!row) return undefined
  const no = Number(row['no'])
  if (Number(row['shared']) === 1) return no
  for (const copy of SUMS_BY_KEY) await sql.all(copy.replaceAll('{COLUMNS}', DAY_COLUMNS), [no])
  await sql.all('UPDATE accounts SET shared = 1, pending = 1, changed = ? WHERE no = ?', [at, no])
  return no
}

/** Notes that the store knows the grants of an account as they were read. */
export async function noteApplied(
  sql: Sql,
  { id, grants }: Pick<RecordedAccount, 'id' | 'grants'>,
  at: number,
): Promise<void> {
  await sql.all(
    `UPDATE accounts SET pending = 0, changed = CASE WHEN changed > ? THEN changed ELSE ? END
     WHERE id = ? AND grants = ? AND pending = 1`,
    [at, at, id, grants],
  )
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

  /** Finds accounts by their ids. */
  async withIds(ids: readonly string[]): Promise<RecordedAccount[]> {
    return (await selectIn(this.#database, `${SELECT} WHERE a.id`, ids)).map(accountOf)
  }

  /** Returns an account with what its keys were charged there, as of one moment. @throws RecordsError if there is none */
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

  async *#pages(condition: string, values: readonly SqlValue[], size: number): AsyncGenerator<RecordedAccount[]> {
    for (let after = 0; ;) {
      const text = `${SELECT} WHERE ${condition} AND a.no > ? ORDER BY a.no LIMIT ?`
      const rows = await this.#database.all(text, [...values, after, size])
      if (rows.length > 0) yield rows.map(accountOf)
      if (rows.length < size) return
      after = Number(rows.at(-1)?.['no'])
    }
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

  /** Returns what the keys of a shared account were charged there, in nano-credits, as far as it is recorded. */
  async parts(id: string): Promise<ReadonlyMap<string, bigint>> {
    const rows = await this.#database.all(
      `SELECT k.id, p.settled FROM key_totals p JOIN keys k ON k.no = p.key
       WHERE p.account = (SELECT no FROM accounts WHERE id = ?)`,
      [id],
    )
    return new Map(rows.map(row => [String(row['id']), bigintOf(row, 'settled')]))
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
      await insertAll(sql, 'INSERT INTO grants (account, n, id, amount, at, notes, balance, booking)', [values], '')
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

/** Reads the sums of an account from a row with SUMS. */
export function accountOf(row: Row): RecordedAccount {
  return {
    id: String(row['id']),
    name: String(row['account_name']),
    externalId: String(row['external'] ?? ''),
    metadata: JSON.parse(String(row['account_metadata'])) as Metadata,
    createdAt: Number(row['account_created']),
    shared: Number(row['shared']) === 1,
    grants: Number(row['grants']),
    granted: bigintOf(row, 'granted'),
    settled: bigintOf(row, 'settled'),
    ordinal: Number(row['ordinal']),
    endedAt: Number(row['ended_at']),
    pending: Number(row['pending']) === 1,
  }
}
