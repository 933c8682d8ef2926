/** Writes to the records what the store knows of keys, after the database fell back. */
import { bigintOf, type Database, insertAll, selectIn, type Sql, type Row } from './database.ts'
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
    const known = await accountsOf(sql, keys)
    const missing = keys.filter(({ id }) => !known.has(id))
    const account = { name: '', batch: '', grants: 0, granted: 0n, pending: false, changed: at }
    await insertAccounts(
      sql,
      missing.map(key => ({ ...key, ...account, hint: key.label })),
    )
    const done: RecoveredKeys = { added: missing.length, changed: 0, grants: 0, granted: 0n }
    for (const key of keys) if (await updateOlder(sql, key, known.get(key.id), at)) done.changed++
    const rows = missing.length > 0 ? await accountsOf(sql, keys) : known
    for (const key of keys) {
      const { grants, granted } = await addGrants(sql, key, rows.get(key.id), { at, newId })
      done.grants += grants
      done.granted += granted
    }
    return done
  })
}

/** Reads the accounts of keys, by id. */
async function accountsOf(sql: Sql, keys: readonly KeyInStore[]): Promise<ReadonlyMap<string, Row>> {
  const rows = await selectIn(
    sql,
    `SELECT a.no, a.id, a.version, a.grants, a.granted, COALESCE(t.settled, 0) AS settled, COALESCE(t.booked, 0) AS booked
     FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id`,
    keys.map(({ id }) => id),
  )
  return new Map(rows.map(row => [String(row['id']), row]))
}

/** Writes the record of a key over an older one. @returns whether there is an older one */
async function updateOlder(sql: Sql, key: KeyInStore, row: Row | undefined, at: number): Promise<boolean> {
  if (!row || Number(row['version']) >= key.version) return false
  const { type, createdAt, status, label, expiresAt = null, version, digest, rotation } = key
  await sql.all(
    `UPDATE accounts SET type = ?, created = ?, status = ?, label = ?, expires = ?, version = ?, digest = ?,
     rotation = ?, changed = ? WHERE no = ?`,
    [type, createdAt, status, label, expiresAt, version, digest, rotation, at, row['no'] ?? null],
  )
  return true
}

/** Adds the grants of a key that the records lack. Only their sum is known. @returns their number, and their sum */
async function addGrants(
  sql: Sql,
  key: KeyInStore,
  row: Row | undefined,
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<Pick<RecoveredKeys, 'grants' | 'granted'>> {
  const before = Number(row?.['grants'])
  if (!row || before >= key.grants) return { grants: 0, granted: 0n }
  const account = row['no'] ?? null
  const amount = key.granted - bigintOf(row, 'granted')
  const balance = key.granted - bigintOf(row, 'settled')
  const notes = JSON.stringify({ reason: 'recorded again after the database fell back' })
  const numbers = Array.from({ length: key.grants - before }, (_, index) => before + index + 1)
  await insertAll(
    sql,
    'INSERT INTO grants (account, n, id, amount, at, notes, balance, booking)',
    numbers.map((n, index) => {
      const booking = n + Number(row['booked'])
      return [account, n, newId(), index === 0 ? amount : 0n, at, notes, balance, booking]
    }),
    '',
  )
  await sql.all('UPDATE accounts SET grants = ?, granted = ?, changed = ? WHERE no = ?', [
    key.grants,
    key.granted,
    at,
    account,
  ])
  return { grants: numbers.length, granted: amount }
}
