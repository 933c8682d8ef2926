/** Keys and their grants in the records. */
import {
  type Also,
  bigintOf,
  type Database,
  insertAll,
  type Row,
  selectIn,
  type Sql,
  type SqlValue,
  nextNo,
} from './database.ts'
import { type KeySearch, searchOf } from './key-search.ts'

/** What is recorded of a key. */
export interface KeyRecord {
  /** The public id, and the name of the key's account in the ledger. */
  readonly id: string
  readonly type: string
  /** The operator's own name for the key, and for the batch that it was created in. */
  readonly name: string
  readonly batch: string
  /** A deleted key stays as the owner of its history. It can never be used again. */
  readonly status: 'active' | 'disabled' | 'deleted'
  /** Milliseconds since the epoch. Undefined if the key never expires. */
  readonly expiresAt: number | undefined
  readonly createdAt: number
  /** Counts the changes of the record. */
  readonly version: number
  /** The hash of the secret. */
  readonly digest: string
  /** What its owner sees instead of the secret: the hint, unless an operator has chosen something else. */
  readonly label: string
  /** `sk-...` and the last four characters of the secret. */
  readonly hint: string
  /** Counts the changes of the secret. */
  readonly rotation: number
}

/** A key with the sums that the records know of its account. */
export interface RecordedKey extends KeyRecord {
  /** The number of its grants, and their sum in nano-credits. */
  readonly grants: number
  readonly granted: bigint
  /** What its recorded exchanges were charged, and the number of the latest of its recorded entries. */
  readonly settled: bigint
  readonly ordinal: number
  /** When its latest recorded exchange ended, in milliseconds since the epoch. */
  readonly endedAt: number
  /** True until the store has this record and all its grants. */
  readonly pending: boolean
}

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

const COLUMNS = `a.no, a.id, a.type, a.name, a.batch, a.status, a.expires, a.created, a.version, a.digest, a.label, a.hint, a.rotation,
  a.grants, a.granted, a.pending, COALESCE(t.settled, 0) AS settled, COALESCE(t.ordinal, 0) AS ordinal,
  COALESCE(t.changed, 0) AS ended_at`
const SELECT = `SELECT ${COLUMNS} FROM accounts a LEFT JOIN totals t ON t.account = a.no`

/** A key with the columns of its row that only the records use. */
export interface AccountRow extends KeyRecord, Pick<RecordedKey, 'grants' | 'granted'> {
  readonly pending: boolean
  /** When it was changed last, in milliseconds since the epoch. */
  readonly changed: number
}

/** Inserts accounts under consecutive numbers. @returns the first of them */
export async function insertAccounts(sql: Sql, accounts: readonly AccountRow[]): Promise<number> {
  const first = await nextNo(sql, 'accounts')
  await insertAll(
    sql,
    `INSERT INTO accounts (no, id, type, name, batch, status, expires, created, version, digest, label, hint, rotation,
     grants, granted, pending, changed)`,
    accounts.map((key, index): SqlValue[] => [
      first + index,
      key.id,
      key.type,
      key.name,
      key.batch,
      key.status,
      key.expiresAt ?? null,
      key.createdAt,
      key.version,
      key.digest,
      key.label,
      key.hint,
      key.rotation,
      key.grants,
      key.granted,
      key.pending ? 1 : 0,
      key.changed,
    ]),
    '',
  )
  return first
}

/** Reads and writes keys. */
export class KeyRecords {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /**
   * Adds keys with their first grants: all of them or, if anything fails, none. They are pending until `applied`.
   * @param grants the first grant of each key in nano-credits; 0 for none
   * @param at the time by the store's clock, in milliseconds since the epoch
   */
  async add(keys: readonly KeyRecord[], grants: bigint, at: number, also?: Also): Promise<void> {
    await this.#database.transaction(async sql => {
      const sums = { grants: grants > 0n ? 1 : 0, granted: grants, pending: true, changed: at }
      const first = await insertAccounts(
        sql,
        keys.map(key => ({ ...key, ...sums })),
      )
      await also?.(sql)
      if (grants === 0n) return
      const notes = JSON.stringify({ reason: 'created' })
      await insertAll(
        sql,
        'INSERT INTO grants (account, n, id, amount, at, notes, balance, booking)',
        keys.map(({ id }, index) => [first + index, 1, `${id}-first`, grants, at, notes, grants, 1]),
        '',
      )
    })
  }

  /** Finds a key by its id. */
  async get(id: string, sql: Sql = this.#database): Promise<RecordedKey | undefined> {
    const [row] = await sql.all(`${SELECT} WHERE a.id = ?`, [id])
    return row && keyOf(row)
  }

  /** Finds keys by their ids. */
  async withIds(ids: readonly string[]): Promise<RecordedKey[]> {
    return (await selectIn(this.#database, `${SELECT} WHERE a.id`, ids)).map(keyOf)
  }

  /** Like `get`, after all transactions that run now, also those of other connections. */
  getInTurn(id: string): Promise<RecordedKey | undefined> {
    return this.#database.transaction(sql => this.get(id, sql))
  }

  /** Finds a key by the hash of its secret. */
  async find(digest: string): Promise<RecordedKey | undefined> {
    const [row] = await this.#database.all(`${SELECT} WHERE a.digest = ?`, [digest])
    return row && keyOf(row)
  }

  /** Whether there are any keys. */
  async any(): Promise<boolean> {
    return (await this.#database.all('SELECT no FROM accounts LIMIT 1')).length > 0
  }

  /** Lists keys, one page at a time. Without another order, they come in the order in which they were created. */
  async list(search: KeySearch): Promise<RecordedKey[]> {
    const { where, order, values } = searchOf(this.#database.dialect, search)
    return (await this.#database.all(`${SELECT} ${where} ${order} LIMIT ?`, [...values, search.count])).map(keyOf)
  }

  /** Iterates over all keys, in pages. */
  pages(size: number): AsyncGenerator<RecordedKey[]> {
    return this.#pages('TRUE', [], size)
  }

  /** Iterates over the pending keys, and those whose record, grants or exchanges changed since a time, in pages. */
  changedSince(ms: number, size: number): AsyncGenerator<RecordedKey[]> {
    return this.#pages('(a.changed >= ? OR t.changed >= ? OR a.pending = 1)', [ms, ms], size)
  }

  async *#pages(condition: string, values: readonly SqlValue[], size: number): AsyncGenerator<RecordedKey[]> {
    for (let after = 0; ;) {
      const rows = await this.#database.all(`${SELECT} WHERE ${condition} AND a.no > ? ORDER BY a.no LIMIT ?`, [
        ...values,
        after,
        size,
      ])
      if (rows.length > 0) yield rows.map(keyOf)
      if (rows.length < size) return
      after = Number(rows.at(-1)?.['no'])
    }
  }

  /**
   * Changes the record of a key if it still has the version that the change is made from. It is pending until `applied`,
   * unless the store knows it.
   * @param from the version that the change is made from
   * @returns whether it had
   */
  async change(
    id: string,
    record: Omit<KeyRecord, 'id' | 'type' | 'batch' | 'createdAt'>,
    { from, at, pending }: { readonly from: number; readonly at: number; readonly pending: boolean },
    also?: Also,
  ): Promise<boolean> {
    const { status, name, label, hint, expiresAt, version, digest, rotation } = record
    return this.#database.transaction(async sql => {
      const rows = await sql.all(
        `UPDATE accounts SET status = ?, name = ?, label = ?, hint = ?, expires = ?, version = ?, digest = ?,
         rotation = ?, changed = ?, pending = CASE WHEN ? = 1 THEN 1 ELSE pending END
         WHERE id = ? AND version = ? RETURNING no`,
        [status, name, label, hint, expiresAt ?? null, version, digest, rotation, at, pending ? 1 : 0, id, from],
      )
      if (rows.length > 0) await also?.(sql)
      return rows.length > 0
    })
  }

  /**
   * Adds a grant. It is pending until `applied`.
   * @param most the largest balance that it may lead to, as far as exchanges are recorded
   * @returns the grant with this id, and whether this call added it; undefined if there is no such account; otherwise why
   * it was not added: the balance would be too large or below zero, or the key is deleted
   */
  async grant(
    account: string,
    { id, amount, at, notes }: Omit<Grant, 'account' | 'n'>,
    most: bigint,
    also?: Also,
  ): Promise<{ grant: Grant; added: boolean } | 'over' | 'under' | 'deleted' | undefined> {
    return this.#database.transaction(async sql => {
      const [row] = await sql.all(
        `SELECT a.no, a.status, a.grants, a.granted - COALESCE(t.settled, 0) AS balance,
         COALESCE(t.booked, 0) AS booked
         FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id = ?`,
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

  /** Returns keys whose record or grants the store may not know. */
  async pending(count: number): Promise<RecordedKey[]> {
    return (await this.#database.all(`${SELECT} WHERE a.pending = 1 ORDER BY a.no LIMIT ?`, [count])).map(keyOf)
  }

  /**
   * Notes that the store knows the records and grants of keys as they were read.
   * @param at the time by the store's clock: what it loses afterwards may be these
   */
  async applied(keys: readonly Pick<RecordedKey, 'id' | 'version' | 'grants'>[], at: number): Promise<void> {
    await this.#database.transaction(async sql => {
      for (const { id, version, grants } of keys)
        await sql.all(
          `UPDATE accounts SET pending = 0, changed = CASE WHEN changed > ? THEN changed ELSE ? END
           WHERE id = ? AND version = ? AND grants = ?`,
          [at, at, id, version, grants],
        )
    })
  }
}

function keyOf(row: Row): RecordedKey {
  const { id, type, name, batch, status, expires, digest, label, hint } = row
  return {
    id: String(id),
    type: String(type),
    name: String(name),
    batch: String(batch),
    status: status === 'active' || status === 'deleted' ? status : 'disabled',
    expiresAt: expires === null ? undefined : Number(expires),
    createdAt: Number(row['created']),
    version: Number(row['version']),
    digest: String(digest),
    label: String(label),
    hint: String(hint),
    rotation: Number(row['rotation']),
    grants: Number(row['grants']),
    granted: bigintOf(row, 'granted'),
    settled: bigintOf(row, 'settled'),
    ordinal: Number(row['ordinal']),
    endedAt: Number(row['ended_at']),
    pending: Number(row['pending']) === 1,
  }
}
