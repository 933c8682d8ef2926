/**
 * A SQL database, as the records use it. SQLite and PostgreSQL get the same statements: parameters are `?`, and a type
 * that differs is a word in braces.
 */

/** A value of a row. Integers may be numbers or bigints. */
export type SqlValue = string | number | bigint | Uint8Array | null
/** A row by column. */
export type Row = Readonly<Record<string, SqlValue>>

/** Returns an integer of a row, of any size. */
export function bigintOf(row: Row | undefined, column: string): bigint {
  return BigInt((row?.[column] ?? 0) as bigint | number)
}

/** A failure of the database, in its own words. */
export class RecordsError extends Error {}

/** The answer to a commit was lost, so the transaction may or may not have been done. */
export class CommitInDoubt extends RecordsError {}

/** Runs statements. */
export interface Sql {
  /** Runs a statement and returns its rows. */
  all(text: string, values?: readonly SqlValue[]): Promise<Row[]>
}

/** Thrown within a transaction to undo it, for a reason that is no failure. */
export class Undone extends Error {}

/** What a caller writes in the same transaction as a change. What it throws undoes the change. */
export type Also = (sql: Sql) => Promise<void>

/** An open database. Its promises reject with a RecordsError if it fails. */
export interface Database extends Sql {
  /** What differs in the statements that create tables. */
  readonly dialect: 'sqlite' | 'postgres'
  /** Why the database must not be used, although it answers. */
  readonly failure: string | undefined
  /** A description for the operator, without credentials. */
  readonly description: string
  /**
   * Runs statements in a transaction. All transactions of a database run one after the other, also those of other
   * processes. A failure undoes it, except for a CommitInDoubt.
   */
  transaction<T>(use: (sql: Sql) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/** Returns the question marks for a number of rows with as many values each: `(?,?),(?,?)`. */
export function placeholders(rows: number, columns: number): string {
  const row = `(${Array(columns).fill('?').join(',')})`
  return Array(rows).fill(row).join(',')
}

/** Maximum rows of one statement, since databases limit the number of parameters. */
const ROWS_AT_ONCE = 500

/**
 * Writes rows in statements of a limited size.
 * @param before the statement up to its rows
 * @param after the rest of the statement
 */
export async function insertAll(
  sql: Sql,
  before: string,
  rows: readonly (readonly SqlValue[])[],
  after: string,
): Promise<void> {
  for (let at = 0; at < rows.length; at += ROWS_AT_ONCE) {
    const part = rows.slice(at, at + ROWS_AT_ONCE)
    await sql.all(`${before} VALUES ${placeholders(part.length, part[0]?.length ?? 0)} ${after}`, part.flat())
  }
}

/** Reads the rows whose column has one of many values, in statements of a limited size. */
export async function selectIn(sql: Sql, select: string, values: readonly SqlValue[]): Promise<Row[]> {
  const rows: Row[] = []
  for (let at = 0; at < values.length; at += ROWS_AT_ONCE) {
    const part = values.slice(at, at + ROWS_AT_ONCE)
    for (const row of await sql.all(`${select} IN ${placeholders(1, part.length)}`, part)) rows.push(row)
  }
  return rows
}

/** Returns the number of the next row of a table whose rows are numbered. The transaction must be the only one. */
export async function nextNo(sql: Sql, table: string): Promise<number> {
  const [last] = await sql.all(`SELECT COALESCE(MAX(no), 0) AS no FROM ${table}`)
  return Number(last?.['no']) + 1
}

/** Returns the pattern that finds a text anywhere, in small letters. */
export function patternOf(text: string): string {
  return `%${text.toLowerCase().replaceAll(/[\\%_]/g, '\\$&')}%`
}

/** Returns a condition that compares a column with a pattern in small letters, whatever the case of its own letters. */
export function likeIn(dialect: Database['dialect'], column: string, pattern: string): string {
  if (dialect === 'postgres') return `${column} ILIKE ? ESCAPE '\\'`
  // SQLite itself knows the cases of ASCII only. Its LOWER is replaced by one that knows all, and is slower.
  const compared = /^[\x20-\x7e]*$/.test(pattern) ? column : `LOWER(${column})`
  return `${compared} LIKE ? ESCAPE '\\'`
}
