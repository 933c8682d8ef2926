/** Deletes old exchanges. The sums of their accounts keep what they were charged. */
import type { Database, Sql } from './database.ts'
import { boundOf, partitionOf } from './recorder.ts'

/** Exchanges that one transaction deletes from SQLite, so that settlements are never delayed for long. */
const ROWS_AT_ONCE = 2000

/**
 * Deletes the exchanges that began before a time. PostgreSQL drops whole months.
 * @returns the number of deleted exchanges
 */
export async function deleteBefore(database: Database, ms: number): Promise<number> {
  return database.dialect === 'postgres' ? dropMonths(database, ms) : deleteRows(database, ms)
}

async function deleteRows(database: Database, ms: number): Promise<number> {
  const bound = Buffer.from(boundOf(ms), 'hex')
  for (let deleted = 0; ;) {
    const count = await database.transaction(async sql => {
      const last = await sql.all('SELECT id FROM exchanges WHERE id < ? ORDER BY id LIMIT 1 OFFSET ?', [
        bound,
        ROWS_AT_ONCE,
      ])
      const end = (last[0]?.['id'] as Uint8Array | undefined) ?? bound
      await fold(sql, 'exchanges WHERE id < ?', [end])
      const [row] = await sql.all('SELECT COUNT(*) AS count FROM exchanges WHERE id < ?', [end])
      await sql.all('DELETE FROM exchanges WHERE id < ?', [end])
      await sql.all('DELETE FROM replaced WHERE id < ?', [end])
      return Number(row?.['count'])
    })
    deleted += count
    if (count < ROWS_AT_ONCE) return deleted
  }
}

async function dropMonths(database: Database, ms: number): Promise<number> {
  const rows = await database.all(
    "SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = 'exchanges'",
  )
  const oldest = partitionOf(ms)
  let deleted = 0
  for (const name of rows.map(row => String(row['name'])).filter(each => each < oldest)) {
    deleted += await database.transaction(async sql => {
      await fold(sql, name, [])
      const [row] = await sql.all(`SELECT COUNT(*) AS count FROM ${name}`)
      await sql.all(`DROP TABLE ${name}`)
      return Number(row?.['count'])
    })
  }
  await database.transaction(sql =>
    sql.all('DELETE FROM replaced WHERE id < ?', [Buffer.from(boundOf(monthOf(ms)), 'hex')]),
  )
  return deleted
}

function monthOf(ms: number): number {
  return Date.parse(`${new Date(ms).toISOString().slice(0, 7)}-01T00:00:00Z`)
}

/** Adds the charges of rows that are about to be deleted to what their accounts have folded. */
async function fold(sql: Sql, from: string, values: readonly Uint8Array[]): Promise<void> {
  await sql.all(
    `UPDATE totals SET folded = folded + s.charge, entries = entries - s.count FROM
     (SELECT account, CAST(SUM(charge) AS BIGINT) AS charge, COUNT(*) AS count FROM ${from} GROUP BY account) AS s
     WHERE totals.account = s.account`,
    [...values],
  )
}
