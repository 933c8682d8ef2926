/** Keys in the records. */
import {
  accountOf,
  insertNew,
  type Metadata,
  nextNumber,
  noteApplied,
  type RecordedAccount,
  share,
  SUMS,
} from './account-rows.ts'
import { type Also, bigintOf, type Database, inPages, type Row, selectIn, type Sql, type SqlValue } from './database.ts'
import type { Whose } from './entry.ts'
import { changeKey, type ChangedRecord, type ChangeOfKey, insertKeys, type KeyRecord } from './key-rows.ts'
import { ELSEWHERE, KEYS, type KeySearch, searchOf, USED } from './key-search.ts'

export type { KeyRecord } from './key-rows.ts'

/** A key with the sums of its account. */
export interface RecordedKey
  extends
    KeyRecord,
    Pick<RecordedAccount, 'plan' | 'shared' | 'grants' | 'granted' | 'settled' | 'ordinal' | 'endedAt' | 'externalId'> {
  /** What it was charged itself, in nano-credits: in its life, and on accounts that it was moved away from. */
  readonly used: bigint
  readonly elsewhere: bigint
  /** True until the store has this record and all grants of the account. */
  readonly pending: boolean
}

const SELECT = `SELECT k.no, k.id, a.id AS account, b.id AS before, k.type, k.name, k.batch, k.status, k.expires, k.created, k.version, k.digest, k.label,
  k.hint, k.rotation, k.cap, k.limits, k.lifetime, k.manage, k.metadata, CASE WHEN k.pending = 1 OR a.pending = 1 THEN 1 ELSE 0 END AS pending, ${USED} AS used, ${ELSEWHERE} AS elsewhere,
  ${SUMS} FROM ${KEYS} LEFT JOIN accounts b ON b.no = k.before`

/** Returns whose history and usage those of a key are: its own, or all of its account if no other key shares that. */
export function whoseOf({ id, account, shared }: Pick<RecordedKey, 'id' | 'account' | 'shared'>): Whose {
  return shared ? { account, key: id } : { account }
}

/** Reads and writes keys. */
export class KeyRecords {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /**
   * Adds keys, each with an account of its name and its first grant: all of them or, if anything fails, none. They are
   * pending until `applied`.
   * @param keys with what a shop calls their accounts, if it does, and the plans of these
   * @param grants the first grant of each key in nano-credits; 0 for none
   * @param at the time by the store's clock, in milliseconds since the epoch
   */
  async add(
    keys: readonly (KeyRecord & { readonly externalId?: string; readonly plan?: string | undefined })[],
    grants: bigint,
    at: number,
    also?: Also,
  ): Promise<void> {
    await this.#database.transaction(async sql => {
      const changed = { pending: true, changed: at }
      const first = await nextNumber(sql)
      await insertNew(
        sql,
        keys.map(({ id, createdAt, externalId = '', plan }, index) => ({
          ...changed,
          plan,
          no: first + index,
          id,
          createdAt,
          name: '',
          externalId,
          metadata: {},
          shared: false,
          granted: grants,
        })),
        { at },
      )
      await insertKeys(
        sql,
        keys.map((key, index) => ({ ...key, no: first + index, account: first + index, ...changed })),
      )
      await also?.(sql)
    })
  }

  /**
   * Adds keys to an account. It is shared from now on.
   * @returns whether there is such an account
   */
  join(account: string, keys: readonly KeyRecord[], at: number, also?: Also): Promise<boolean> {
    return this.#database.transaction(async sql => {
      const no = await share(sql, account, at)
      if (no === undefined) return false
      const first = await nextNumber(sql)
      await insertKeys(
        sql,
        keys.map((key, index) => ({ ...key, no: first + index, account: no, pending: true, changed: at })),
      )
      await also?.(sql)
      return true
    })
  }

  /**
   * Lets a key spend from another account. Both are shared from now on. The key is pending until `applied`.
   * @param key as it is then, with the version that the change is made from
   * @returns whether it had that version; undefined if there is no such account
   */
  move(
    key: KeyRecord,
    to: string,
    { version, at }: { readonly version: number; readonly at: number },
    also?: Also,
  ): Promise<boolean | undefined> {
    return this.#database.transaction(async sql => {
      const account = await share(sql, to, at)
      if (account === undefined) return undefined
      const before = (await share(sql, key.account, at)) ?? 0
      const rows = await sql.all(
        `UPDATE keys SET account = ?, before = ?, version = ?, changed = ?, pending = 1
         WHERE id = ? AND version = ? AND account = ? RETURNING no`,
        [account, before, version, at, key.id, key.version, before],
      )
      if (rows.length === 0) return false
      // Requests may run there that have not been charged yet.
      await sql.all(
        `INSERT INTO key_totals (account, key, settled, requests, input, output, quarantined)
         VALUES (?, ?, 0, 0, 0, 0, 0) ON CONFLICT (account, key) DO NOTHING`,
        [before, rows[0]?.['no'] ?? null],
      )
      await also?.(sql)
      return true
    })
  }

  /** Finds a key by its id. */
  async get(id: string, sql: Sql = this.#database): Promise<RecordedKey | undefined> {
    const [row] = await sql.all(`${SELECT} WHERE k.id = ?`, [id])
    return row && keyOf(row)
  }

  /**
   * Returns what the requests of a key were worth on a day, in nano-credits, and the last recorded ordinal of each of some accounts.
   * One statement reads both, so that they belong together.
   */
  async usedOn(
    { id, shared, before }: Pick<RecordedKey, 'id' | 'shared' | 'before'>,
    accounts: readonly string[],
    day: number,
  ): Promise<{ used: bigint; ordinals: ReadonlyMap<string, number> }> {
    const [table, of] = shared || before !== undefined ? ['day_keys', 'key'] : ['day_accounts', 'account']
    const rows = await this.#database.all(
      `SELECT a.id, t.ordinal, (SELECT CAST(COALESCE(SUM(charge), 0) AS BIGINT) FROM ${table}
         WHERE ${of} = (SELECT no FROM keys WHERE id = ?) AND day = ?) AS used
       FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id IN (${accounts.map(() => '?').join(', ')})`,
      [id, day, ...accounts],
    )
    return {
      used: bigintOf(rows[0], 'used'),
      ordinals: new Map(rows.map(row => [String(row['id']), Number(row['ordinal'] ?? 0)])),
    }
  }

  /** Finds keys by their ids. */
  async withIds(ids: readonly string[]): Promise<RecordedKey[]> {
    return (await selectIn(this.#database, `${SELECT} WHERE k.id`, ids)).map(keyOf)
  }

  /** Like `get`, after all transactions that run now, also those of other connections. */
  getInTurn(id: string): Promise<RecordedKey | undefined> {
    return this.#database.transaction(sql => this.get(id, sql))
  }

  /** Finds a key by one of the hashes that its secret may have. */
  async find(digests: readonly string[]): Promise<RecordedKey | undefined> {
    const [row] = await selectIn(this.#database, `${SELECT} WHERE k.digest`, digests)
    return row && keyOf(row)
  }

  /** Has what a key was charged elsewhere written to the store again, if it was charged on another account than its own. */
  async chargedElsewhere(id: string, account: string): Promise<void> {
    await this.#database.transaction(sql =>
      sql.all('UPDATE keys SET pending = 1 WHERE id = ? AND account <> (SELECT no FROM accounts WHERE id = ?)', [
        id,
        account,
      ]),
    )
  }

  /** Returns the keys that spend from an account, in the order in which they came. */
  async ofAccount(account: string): Promise<RecordedKey[]> {
    return (await this.#database.all(`${SELECT} WHERE a.id = ? ORDER BY k.no`, [account])).map(keyOf)
  }

  /** Whether there are any keys. */
  async any(): Promise<boolean> {
    return (await this.#database.all('SELECT no FROM keys LIMIT 1')).length > 0
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

  /** Iterates over the pending keys, and those whose record changed since a time, in pages. */
  changedSince(ms: number, size: number): AsyncGenerator<RecordedKey[]> {
    return this.#pages('(k.changed >= ? OR k.pending = 1)', [ms], size)
  }

  #pages(condition: string, values: readonly SqlValue[], size: number): AsyncGenerator<RecordedKey[]> {
    return inPages(this.#database, { select: `${SELECT} WHERE ${condition}`, no: 'k.no', values }, size, keyOf)
  }

  /**
   * Changes the record of a key if it still has the version that the change is made from. It is pending until `applied`,
   * unless the store knows it.
   * @param from the version that the change is made from
   * @returns whether it had
   */
  change(id: string, record: ChangedRecord, how: ChangeOfKey, also?: Also): Promise<boolean> {
    return this.#database.transaction(async sql => {
      const isChanged = await changeKey(sql, id, record, how)
      if (isChanged) await also?.(sql)
      return isChanged
    })
  }

  /** Iterates over the keys whose record the store may not know, in pages. */
  pending(size: number): AsyncGenerator<RecordedKey[]> {
    return this.#pages('k.pending = 1', [], size)
  }

  /**
   * Notes that the store knows the records of keys, and the grants of their accounts, as they were read.
   * @param at the time by the store's clock: what it loses afterwards may be these
   */
  async applied(
    keys: readonly Pick<RecordedKey, 'id' | 'account' | 'version' | 'grants'>[],
    at: number,
  ): Promise<void> {
    await this.#database.transaction(async sql => {
      for (const { id, account, version, grants } of keys) {
        await sql.all(
          `UPDATE keys SET pending = 0, changed = CASE WHEN changed > ? THEN changed ELSE ? END
           WHERE id = ? AND version = ?`,
          [at, at, id, version],
        )
        await noteApplied(sql, { id: account, grants }, at)
      }
    })
  }
}

function keyOf(row: Row): RecordedKey {
  const { id, account, type, name, batch, status, expires, digest, label, hint, cap } = row
  return {
    ...accountOf(row),
    used: bigintOf(row, 'used'),
    elsewhere: bigintOf(row, 'elsewhere'),
    id: String(id),
    account: String(account),
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
    cap: cap === null || cap === undefined ? undefined : BigInt(cap as bigint | number),
    limits: row['limits'] === null ? undefined : String(row['limits']),
    lifetimeMs: row['lifetime'] === null ? undefined : Number(row['lifetime']),
    manage: Number(row['manage']) === 1,
    metadata: JSON.parse(String(row['metadata'])) as Metadata,
    before: row['before'] === null ? undefined : String(row['before']),
  }
}
