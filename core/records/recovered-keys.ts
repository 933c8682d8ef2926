/** Writes to the records what the store knows of keys, after the database fell back. */
import { bigintOf, type Database, insertAll, selectIn, type Sql } from './database.ts'
import { insertAccounts, type KeyRecord } from './key-records.ts'

/** What the store knows of a key. */
export interface KeyInStore extends Pick<
  KeyRecord,
  'id' | 'type' | 'expiresAt' | 'createdAt' | 'version' | 'digest' | 'label' | 'rotation'
> {
  readonly status: 'active' | 'disabled'
  /** The number of its grants, and their sum in nano-credits. */
  readonly grants: number
  readonly granted: bigint
}

/** What was recorded again. */
export interface RecoveredKeys {
  /** Keys that the records did not have, and keys of which they had an older version. */
  added: number
  changed: number
  /** Grants that they did not have, and their sum in nano-credits. */
  grants: number
  granted: bigint
}

/**
 * Records keys, versions of keys and grants that the records lack. The store knows neither the names of keys nor the ids
 * of grants, so these are lost.
 * @param at the time by the store's clock, in milliseconds since the epoch
 */
export function recoverKeys(
  database: Database,
  keys: readonly KeyInStore[],
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<RecoveredKeys> {
  return database.transaction(async sql => {
    const done: RecoveredKeys = { added: 0, changed: 0, grants: 0, granted: 0n }
    const ids = keys.map(({ id }) => id)
    const read = (): Promise<Map<string, Awaited<ReturnType<Sql['all']>>[number]>> =>
      selectIn(
        sql,
        `SELECT a.no, a.id, a.version, a.grants, a.granted, COALESCE(t.settled, 0) AS settled, COALESCE(t.booked, 0) AS booked
         FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id`,
        ids,
      ).then(rows => new Map(rows.map(row => [String(row['id']), row])))
    const known = await read()
    const missing = keys.filter(({ id }) => !known.has(id))
    await insertAccounts(
      sql,
      missing.map(key => ({
        ...key,
        name: '',
        batch: '',
        hint: key.label,
        grants: 0,
        granted: 0n,
        pending: false,
        changed: at,
      })),
    )
    done.added = missing.length
    for (const key of keys) {
      const row = known.get(key.id)
      if (!row || Number(row['version']) >= key.version) continue
      const { type, createdAt, status, label, expiresAt = null, version, digest, rotation } = key
      await sql.all(
        `UPDATE accounts SET type = ?, created = ?, status = ?, label = ?, expires = ?, version = ?, digest = ?,
         rotation = ?, changed = ? WHERE no = ?`,
        [type, createdAt, status, label, expiresAt, version, digest, rotation, at, row['no'] ?? null],
      )
      done.changed++
    }
    const rows = missing.length > 0 ? await read() : known
    for (const key of keys) {
      const row = rows.get(key.id)
      const [before, granted] = [Number(row?.['grants']), bigintOf(row, 'granted')]
      if (!row || before >= key.grants) continue
      // Only the sum of the lost grants is known.
      const amount = key.granted - granted
      const notes = JSON.stringify({ reason: 'recorded again after the database fell back' })
      const numbers = Array.from({ length: key.grants - before }, (_, index) => before + index + 1)
      await insertAll(
        sql,
        'INSERT INTO grants (account, n, id, amount, at, notes, balance, booking)',
        numbers.map((n, index) => [
          row['no'] ?? null,
          n,
          newId(),
          index === 0 ? amount : 0n,
          at,
          notes,
          key.granted - bigintOf(row, 'settled'),
          n + Number(row['booked']),
        ]),
        '',
      )
      await sql.all('UPDATE accounts SET grants = ?, granted = ?, changed = ? WHERE no = ?', [
        key.grants,
        key.granted,
        at,
        row['no'] ?? null,
      ])
      done.grants += numbers.length
      done.granted += amount
    }
    return done
  })
}
