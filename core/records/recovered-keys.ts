/** Writes to the records what the store knows of accounts and keys, after the database fell back. */
import { insertGrants, insertRows, planIn, type RecordedAccount, share, writePlan } from './account-rows.ts'
import { bigintOf, type Database, type Row, selectIn, type Sql } from './database.ts'
import { insertKeys, type KeyRecord } from './key-rows.ts'
import { numbered, numbersFor } from './numbers.ts'

/** What the store knows of an account. */
export type AccountInStore = Pick<RecordedAccount, 'id' | 'shared' | 'grants' | 'granted' | 'plan'>

/** What the store knows of a key. */
export interface KeyInStore extends Omit<KeyRecord, 'name' | 'batch' | 'hint' | 'status' | 'metadata'> {
  readonly status: 'active' | 'disabled'
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
 * Records accounts, keys, versions of keys and grants that the records lack. The store knows neither the names of keys nor the
 * ids of grants, so these are lost.
 * @param at the time by the store's clock, in milliseconds since the epoch
 */
export function recoverKeys(
  database: Database,
  { accounts, keys }: { readonly accounts: readonly AccountInStore[]; readonly keys: readonly KeyInStore[] },
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<RecoveredKeys> {
  return database.transaction(async sql => {
    const knownKeys = await rowsOf(sql, 'SELECT no, id, version FROM keys WHERE id', keys)
    const missing = keys.filter(({ id }) => !knownKeys.has(id))
    await addMissing(sql, accounts, missing, at)
    const done: RecoveredKeys = { added: missing.length, changed: 0, grants: 0, granted: 0n }
    for (const key of keys) if (await updateOlder(sql, key, knownKeys.get(key.id), at)) done.changed++
    const rows = await rowsOf(sql, ACCOUNTS, accounts)
    for (const account of accounts) {
      const { grants, granted } = await addGrants(sql, account, rows.get(account.id), { at, newId })
      done.grants += grants
      done.granted += granted
      if (account.plan !== undefined) await recoverPlan(sql, account.id, account.plan)
    }
    return done
  })
}

/**
 * Records which accounts keys were moved away from. Several moves leave several records in the store; the latest has the
 * version of the key.
 */
export function recoverMoves(
  database: Database,
  moved: readonly { readonly place: string; readonly key: KeyInStore }[],
): Promise<void> {
  return database.transaction(async sql => {
    for (const { place, key } of moved) {
      // Requests may run there.
      await sql.all(
        `INSERT INTO key_totals (account, key, settled, requests, input, output, quarantined)
         SELECT a.no, k.no, 0, 0, 0, 0, 0 FROM accounts a, keys k WHERE a.id = ? AND k.id = ? AND a.shared = 1
         ON CONFLICT (account, key) DO NOTHING`,
        [place, key.id],
      )
      await sql.all(
        'UPDATE keys SET before = (SELECT no FROM accounts WHERE id = ?) WHERE id = ? AND version = ? AND before IS NULL',
        [place, key.id, key.version],
      )
    }
  })
}

const ACCOUNTS = `SELECT a.no, a.id, a.grants, a.granted, COALESCE(t.settled, 0) AS settled, COALESCE(t.booked, 0) AS booked
  FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id`

/** Reads rows by their ids. */
async function rowsOf(
  sql: Sql,
  select: string,
  all: readonly { readonly id: string }[],
): Promise<ReadonlyMap<string, Row>> {
  const ids = all.map(({ id }) => id)
  return new Map((await selectIn(sql, select, ids)).map(row => [String(row['id']), row]))
}

/** Inserts the accounts that the records lack, and keys. */
async function addMissing(
  sql: Sql,
  accounts: readonly AccountInStore[],
  keys: readonly KeyInStore[],
  at: number,
): Promise<void> {
  const ids = [...accounts, ...keys].map(({ id }) => id)
  const recorded = await numbered(sql, ids)
  const numberOf = await numbersFor(sql, ids, recorded)
  const created = new Map(keys.map(({ id, createdAt }) => [id, createdAt]))
  const newAccounts = accounts.filter(({ id }) => !recorded.accounts.has(id))
  const unknown = { name: '', externalId: '', metadata: {}, shared: false, grants: 0, granted: 0n }
  const changed = { pending: false, changed: at }
  await insertRows(
    sql,
    newAccounts.map(({ id }) => ({
      ...unknown,
      ...changed,
      no: numberOf(id),
      id,
      createdAt: created.get(id) ?? at,
    })),
  )
  for (const { id, shared } of accounts) if (shared) await share(sql, id, at)
  const homes = await numbered(
    sql,
    keys.map(({ account }) => account),
  )
  await insertKeys(
    sql,
    keys.flatMap(({ account, ...key }) => {
      const home = homes.accounts.get(account)
      if (home === undefined) return []
      const noted = { name: '', batch: '', hint: key.label, metadata: {} }
      return [{ ...key, ...noted, ...changed, no: numberOf(key.id), account: home }]
    }),
  )
}

/** Writes the record of a key over an older one. @returns whether there is an older one */
async function updateOlder(sql: Sql, key: KeyInStore, row: Row | undefined, at: number): Promise<boolean> {
  if (!row || Number(row['version']) >= key.version) return false
  const {
    account,
    type,
    createdAt,
    status,
    label,
    expiresAt = null,
    version,
    digest,
    rotation,
    cap = null,
    limits = null,
    lifetimeMs = null,
  } = key
  await sql.all(
    `UPDATE keys SET before = CASE WHEN account = (SELECT no FROM accounts WHERE id = ?) THEN before END,
     account = (SELECT no FROM accounts WHERE id = ?), type = ?, created = ?, status = ?, label = ?,
     expires = ?, version = ?, digest = ?, rotation = ?, cap = ?, limits = ?, lifetime = ?, changed = ? WHERE no = ?`,
    [
      account,
      account,
      type,
      createdAt,
      status,
      label,
      expiresAt,
      version,
      digest,
      rotation,
      cap,
      limits,
      lifetimeMs,
      at,
      row['no'] ?? null,
    ],
  )
  return true
}

function versionOf(plan: string): number {
  return (JSON.parse(plan) as { readonly version: number }).version
}

/** Writes the plan of an account, unless the records have a later version. */
async function recoverPlan(sql: Sql, account: string, plan: string): Promise<void> {
  const recorded = await planIn(sql, account)
  if (recorded === undefined || versionOf(recorded) < versionOf(plan)) await writePlan(sql, account, plan)
}

/** Adds the grants of an account that the records lack. Only their sum is known. @returns their number, and their sum */
async function addGrants(
  sql: Sql,
  inStore: AccountInStore,
  row: Row | undefined,
  { at, newId }: { readonly at: number; readonly newId: () => string },
): Promise<Pick<RecoveredKeys, 'grants' | 'granted'>> {
  const before = Number(row?.['grants'])
  if (!row || before >= inStore.grants) return { grants: 0, granted: 0n }
  const account = row['no'] ?? null
  const amount = inStore.granted - bigintOf(row, 'granted')
  const balance = inStore.granted - bigintOf(row, 'settled')
  const notes = JSON.stringify({ reason: 'recorded again after the database fell back' })
  const numbers = Array.from({ length: inStore.grants - before }, (_, index) => before + index + 1)
  await insertGrants(
    sql,
    numbers.map((n, index) => {
      const booking = n + Number(row['booked'])
      return [account, n, newId(), index === 0 ? amount : 0n, at, notes, balance, booking]
    }),
  )
  await sql.all('UPDATE accounts SET grants = ?, granted = ?, changed = ? WHERE no = ?', [
    inStore.grants,
    inStore.granted,
    at,
    account,
  ])
  return { grants: numbers.length, granted: amount }
}
