/** Deletes old exchanges, whose sums remain, and old sums of days by account. */
import { type Database, selectIn, type Sql } from './database.ts'
import { boundOf, dropMonths } from './months.ts'

/** Exchanges that one transaction deletes, so that settlements are never delayed for long. */
const ROWS_AT_ONCE = 2000

/**
 * Adds the charges of the rows below an id to what their accounts have folded. Without the inner LIMIT, SQLite would read
 * all rows in the order of their accounts.
 */
export const FOLD = `UPDATE totals SET folded = folded + s.charge, entries = entries - s.count FROM
  (SELECT account, CAST(SUM(charge) AS BIGINT) AS charge, COUNT(*) AS count FROM
    (SELECT account, charge FROM exchanges WHERE id < ? ORDER BY id LIMIT ?) AS old
   GROUP BY account) AS s
  WHERE totals.account = s.account`

/**
 * Deletes the exchanges that began before a time, and in PostgreSQL the months that are empty then.
 * @returns the number of deleted exchanges
 */
export async function deleteBefore(database: Database, ms: number): Promise<number> {
  const bound = Buffer.from(boundOf(ms), 'hex')
  const deleted = await inParts(database, sql => deleteRows(sql, bound))
  await database.transaction(sql => sql.all('DELETE FROM replaced WHERE id < ?', [bound]))
  if (database.dialect === 'postgres') await dropMonths(database, ms)
  return deleted
}

/** Runs transactions until one finds fewer than `ROWS_AT_ONCE` rows. @returns how many all of them have found */
async function inParts(database: Database, run: (sql: Sql) => Promise<number>): Promise<number> {
  let [all, count] = [0, ROWS_AT_ONCE]
  while (count === ROWS_AT_ONCE) all += count = await database.transaction(run)
  return all
}

/** The sums of days by account and by key, and those that they have of each model. */
const DAYS = [
  { of: 'account', days: 'day_accounts', models: 'day_account_models' },
  { of: 'key', days: 'day_keys', models: 'day_key_models' },
] as const

/**
 * Deletes the sums of accounts and keys of the days before one, in days since the epoch.
 * @returns the number of deleted sums
 */
export async function deleteDays(database: Database, before: number): Promise<number> {
  let deleted = 0
  for (const table of DAYS) deleted += await deleteDaysOf(database, table, before)
  return deleted
}

async function deleteDaysOf(
  database: Database,
  { of, days, models }: (typeof DAYS)[number],
  before: number,
): Promise<number> {
  return inParts(database, async sql => {
    const found = await sql.all(`SELECT day, ${of} AS no FROM ${days} WHERE day < ? ORDER BY day, ${of} LIMIT ?`, [
      before,
      ROWS_AT_ONCE,
    ])
    for (const [day, rows] of Map.groupBy(found, row => Number(row['day']))) {
      const range = [day, Number(rows[0]?.['no']), Number(rows.at(-1)?.['no'])]
      await sql.all(`DELETE FROM ${days} WHERE day = ? AND ${of} >= ? AND ${of} <= ?`, range)
      const numbers = rows.map(row => Number(row['no']))
      await selectIn(sql, `DELETE FROM ${models} WHERE day = ${day} AND ${of}`, numbers)
    }
    return found.length
  })
}

/** Deletes what is known of the failures of requests that began before a time. @returns their number */
export async function deleteFailures(database: Database, ms: number): Promise<number> {
  const bound = Buffer.from(boundOf(ms), 'hex')
  return inParts(database, async sql => {
    const found = await sql.all('SELECT id FROM failures WHERE id < ? ORDER BY id LIMIT ?', [bound, ROWS_AT_ONCE])
    const last = found.at(-1)?.['id']
    if (last !== undefined) await sql.all('DELETE FROM failures WHERE id <= ?', [last])
    return found.length
  })
}

/** Deletes the oldest rows below an id. @returns their number; a smaller number than `ROWS_AT_ONCE` if none are left */
async function deleteRows(sql: Sql, bound: Uint8Array): Promise<number> {
  const [next] = await sql.all('SELECT id FROM exchanges WHERE id < ? ORDER BY id LIMIT 1 OFFSET ?', [
    bound,
    ROWS_AT_ONCE,
  ])
  const end = (next?.['id'] as Uint8Array | undefined) ?? bound
  await sql.all(FOLD, [end, ROWS_AT_ONCE])
  const [row] = await sql.all('SELECT COUNT(*) AS count FROM exchanges WHERE id < ?', [end])
  await sql.all('DELETE FROM exchanges WHERE id < ?', [end])
  return Number(row?.['count'])
}
