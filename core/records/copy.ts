/** Copies all records from one database to another, such as from SQLite to PostgreSQL. */
import { createHash } from 'node:crypto'
import { idFromBytes, timeOfId } from '../lib/ids.ts'
import { type Database, insertAll, RecordsError, type Row, type Sql, type SqlValue } from './database.ts'
import { LEFT, meta, setMeta, TABLES, UNFINISHED } from './migrations.ts'
import { Months } from './months.ts'

/** Rows that are copied at once. */
const PAGE = 1000

/** A table that was copied. */
export interface CopiedTable {
  readonly name: string
  readonly rows: number
}

/** A digest of rows that does not depend on their order: databases sort texts differently. */
class RowsDigest {
  rows = 0
  #sum = 0n

  add(row: Row): void {
    const texts = Object.keys(row)
      .sort()
      .map(name => `${name} ${textOf(row[name] ?? null)}`)
    const hash = createHash('sha256').update(texts.join('\n')).digest('hex')
    this.#sum = BigInt.asUintN(256, this.#sum + BigInt(`0x${hash}`))
    this.rows++
  }

  equals(other: RowsDigest): boolean {
    return this.rows === other.rows && this.#sum === other.#sum
  }
}

function textOf(value: SqlValue): string {
  if (value === null) return 'null'
  return value instanceof Uint8Array
    ? `bytes ${Buffer.from(value).toString('hex')}`
    : `${typeof value === 'string' ? 'text' : 'number'} ${value}`
}

/**
 * Copies every table in one transaction, reads all rows of the copy, and compares them. Then it marks the old records as
 * left: gateways and commands refuse to use them. An interrupted copy is repeated from the beginning.
 * @param to has the tables of the same version. It is empty, or was not finished
 * @throws RecordsError if a database fails, if there are other records already, if a row differs, or if the records were
 * copied elsewhere
 */
export async function copyAll(from: Database, to: Database): Promise<readonly CopiedTable[]> {
  const keys = { from: await keyOf(from), to: await keyOf(to) }
  // The transaction keeps others from writing to the old records. The mark refuses those who waited for its end.
  const copied = await from.transaction(async source => {
    const left = await meta(source, LEFT)
    if (left !== undefined && left !== to.description)
      throw new RecordsError(`${from.description} was copied to ${left} already`)
    const done = await to.transaction(async sql => {
      if ((await meta(sql, LEFT)) !== UNFINISHED && (await isUsed(sql)))
        throw new RecordsError(
          `${to.description} has records already; copy to an empty database, or move the SQLite file away first`,
        )
      for (const name of TABLES) await sql.all(`DELETE FROM ${name}`)
      const digests = new Map<string, RowsDigest>()
      const months = new Months(to.dialect)
      for (const name of TABLES) {
        const pages = pagesOf(source, name, keys.from)
        digests.set(name, await copyTable(pages, sql, { name, months }))
      }
      await compare(sql, digests, keys.to)
      await setMeta(sql, LEFT, UNFINISHED)
      return [...digests].map(([name, { rows }]) => ({ name, rows }))
    })
    await setMeta(source, LEFT, to.description)
    return done
  })
  await to.transaction(sql => sql.all('DELETE FROM meta WHERE name = ?', [LEFT]))
  return copied
}

/** Whether a database has records of customers. */
async function isUsed(database: Sql): Promise<boolean> {
  const rows = await database.all(
    'SELECT 1 AS one FROM keys UNION ALL SELECT 1 FROM accounts UNION ALL SELECT 1 FROM exchanges LIMIT 1',
  )
  return rows.length > 0
}

async function copyTable(
  pages: AsyncIterable<readonly Row[]>,
  to: Sql,
  { name, months }: { readonly name: string; readonly months: Months },
): Promise<RowsDigest> {
  const digest = new RowsDigest()
  for await (const rows of pages) {
    if (name === 'exchanges') months.created(await months.ensure(to, rows.map(timeOf)))
    const kept = rows.filter(row => !(name === 'meta' && row['name'] === LEFT))
    const columns = Object.keys(rows[0] ?? {})
    const values = kept.map(row => columns.map(column => row[column] ?? null))
    await insertAll(to, `INSERT INTO ${name} (${columns.join(', ')})`, values)
    for (const row of kept) digest.add(row)
  }
  return digest
}

function timeOf(row: Row): number {
  return timeOfId(idFromBytes(row['id'] as Uint8Array))
}

/** Reads all tables again. @throws RecordsError if one differs */
async function compare(
  sql: Sql,
  digests: ReadonlyMap<string, RowsDigest>,
  key: (table: string) => readonly string[],
): Promise<void> {
  for (const [name, expected] of digests) {
    const digest = new RowsDigest()
    for await (const rows of pagesOf(sql, name, key)) for (const row of rows) digest.add(row)
    if (!digest.equals(expected))
      throw new RecordsError(`the copy of the table ${name} differs: ${digest.rows} rows of ${expected.rows}`)
  }
}

/** Reads a table in pages, in the order of its primary key. */
async function* pagesOf(
  sql: Sql,
  table: string,
  key: (table: string) => readonly string[],
): AsyncGenerator<readonly Row[]> {
  const columns = key(table)
  const order = columns.join(', ')
  for (let last: readonly SqlValue[] | undefined; ;) {
    const after = last ? `WHERE (${order}) > (${columns.map(() => '?').join(', ')})` : ''
    const rows = await sql.all(`SELECT * FROM ${table} ${after} ORDER BY ${order} LIMIT ${PAGE}`, last ?? [])
    if (rows.length > 0) yield rows
    const end = rows.at(-1)
    if (!end || rows.length < PAGE) return
    last = columns.map(column => end[column] ?? null)
  }
}

const KEYS = {
  sqlite: `SELECT m.name AS "table", c.name AS "column" FROM sqlite_master m, pragma_table_info(m.name) c
    WHERE m.type = 'table' AND c.pk > 0 ORDER BY m.name, c.pk`,
  postgres: `SELECT t.relname AS "table", a.attname AS "column" FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indisprimary AND pg_table_is_visible(t.oid)
    ORDER BY t.relname, array_position(i.indkey::int2[], a.attnum)`,
} as const

/** Returns what gives the columns of the primary key of a table. */
async function keyOf(database: Database): Promise<(table: string) => readonly string[]> {
  const rows = await database.all(KEYS[database.dialect])
  const columns = Map.groupBy(rows, row => String(row['table']))
  return table => (columns.get(table) ?? []).map(row => String(row['column']))
}
