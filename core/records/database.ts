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

/** Runs the statements of a transaction, in the order in which they are given. After one that fails, no other runs. */
export interface Transaction extends Sql {
  /**
   * Adds a statement whose rows the caller does not need. It runs before the next statement and before the commit. If it
   * fails, the transaction fails.
   */
  put(text: string, values?: readonly SqlValue[]): void
  /** Adds the writing of rows. */
  putRows(insertion: Insertion): void
}

/** Thrown within a transaction to undo it, for a reason that is no failure. */
export class Undone extends Error {}

/** Thrown within a transaction to undo it, since what is asked for cannot be done. Its message says why. */
export class Impossible extends Undone {}

/** What a caller writes in the same transaction as a change. What it throws undoes the change. */
export type Also = (sql: Transaction) => Promise<void>

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
   * processes. A failure undoes it, except for a CommitInDoubt. SQLite gets the statements of one turn of the event loop in
   * one message.
   */
  transaction<T>(use: (sql: Transaction) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/** Returns the question marks for a number of rows with as many values each: `(?,?),(?,?)`. */
export function placeholders(rows: number, columns: number): string {
  const row = `(${Array(columns).fill('?').join(',')})`
  return Array(rows).fill(row).join(',')
}

/** Maximum rows of one statement, since databases limit the number of parameters. */
const ROWS_AT_ONCE = 512

/** Rows to write. */
export interface Insertion {
  /** The statement up to its rows. */
  readonly before: string
  readonly rows: readonly (readonly SqlValue[])[]
  /** The rest of the statement. */
  readonly after: string
}

/** Returns statements of a limited size that write rows. */
export function insertions({ before, rows, after }: Insertion): [text: string, values: readonly SqlValue[]][] {
  return Array.from({ length: Math.ceil(rows.length / ROWS_AT_ONCE) }, (_, at) => {
    const part = rows.slice(at * ROWS_AT_ONCE, (at + 1) * ROWS_AT_ONCE)
    return [`${before} VALUES ${placeholders(part.length, part[0]?.length ?? 0)} ${after}`, part.flat()]
  })
}

/**
 * Writes rows in statements of a limited size.
 * @param before the statement up to its rows
 * @param after the rest of the statement
 */
export async function insertAll(
  sql: Sql,
  before: string,
  rows: readonly (readonly SqlValue[])[],
  after = '',
): Promise<void> {
  for (const [text, values] of insertions({ before, rows, after })) await sql.all(text, values)
}

/**
 * Returns values with the last one repeated, up to a power of two: so there are few different statements, which stay
 * prepared.
 */
export function padded<T>(values: readonly T[]): T[] {
  const length = values.length === 0 ? 0 : 2 ** Math.ceil(Math.log2(values.length))
  return Array.from({ length }, (_, at) => values[Math.min(at, values.length - 1)] as T)
}

/**
 * Reads rows in the order of their numbers, in pages.
 * @param query `select` ends with its conditions, and `no` is the column of the numbers
 */
export async function* inPages<T>(
  database: Database,
  { select, no, values }: { readonly select: string; readonly no: string; readonly values: readonly SqlValue[] },
  size: number,
  read: (row: Row) => T,
): AsyncGenerator<T[]> {
  for (let after = 0; ;) {
    const rows = await database.all(`${select} AND ${no} > ? ORDER BY ${no} LIMIT ?`, [...values, after, size])
    if (rows.length > 0) yield rows.map(read)
    if (rows.length < size) return
    after = Number(rows.at(-1)?.['no'])
  }
}

/** Reads the rows whose column has one of many values, in statements of a limited size. */
export async function selectIn(sql: Sql, select: string, values: readonly SqlValue[]): Promise<Row[]> {
  const rows: Row[] = []
  for (let at = 0; at < values.length; at += ROWS_AT_ONCE) {
    const part = padded(values.slice(at, at + ROWS_AT_ONCE))
    for (const row of await sql.all(`${select} IN ${placeholders(1, part.length)}`, part)) rows.push(row)
  }
  return rows
}

/** Returns the number of the next row of a table whose rows are numbered. The transaction must be the only one. */
export async function nextNo(sql: Sql, table: string): Promise<number> {
  const [last] = await sql.all(`SELECT COALESCE(MAX(no), 0) AS no FROM ${table}`)
  return Number(last?.['no']) + 1
}

/** The conditions of a query, with the values of their marks. */
export class Where {
  readonly values: SqlValue[] = []
  readonly #conditions: string[] = []

  add(condition: string, ...values: readonly SqlValue[]): this {
    this.#conditions.push(condition)
    this.values.push(...values)
    return this
  }

  /** Adds a condition, unless its value is undefined. */
  addIf(condition: string, value: SqlValue | undefined): this {
    return value === undefined ? this : this.add(condition, value)
  }

  /** Adds that one of the columns contains a text, in letters of any case. Undefined adds nothing. */
  search(dialect: Database['dialect'], text: string | undefined, columns: readonly string[]): this {
    if (text === undefined) return this
    const { condition, values } = containing(dialect, text, columns)
    return this.add(`(${condition})`, ...values)
  }

  /** The clause; '' without conditions. */
  get text(): string {
    return this.#conditions.length === 0 ? '' : `WHERE ${this.#conditions.join(' AND ')}`
  }
}

/** Returns a condition that one of the columns contains a text, in letters of any case. */
export function containing(
  dialect: Database['dialect'],
  text: string,
  columns: readonly string[],
): { readonly condition: string; readonly values: readonly string[] } {
  const pattern = `%${text.toLowerCase().replaceAll(/[\\%_]/g, '\\$&')}%`
  // SQLite itself knows the cases of ASCII only. Its LOWER is replaced by one that knows all, and is slower.
  const isAscii = /^[\x20-\x7e]*$/.test(pattern)
  const compared = (column: string): string =>
    dialect === 'postgres' ? `${column} ILIKE` : `${isAscii ? column : `LOWER(${column})`} LIKE`
  return {
    condition: columns.map(column => `${compared(column)} ? ESCAPE '\\'`).join(' OR '),
    values: columns.map(() => pattern),
  }
}
