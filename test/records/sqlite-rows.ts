/** Reads and puts back everything that records in SQLite contain, as if the database fell back. */
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import type { Test } from 'tap'

/** Rows by table. */
export type Rows = ReadonlyMap<string, readonly Record<string, SQLInputValue>[]>

/** The tables of a file. */
export class SqliteRows {
  readonly #database: DatabaseSync
  readonly #tables: readonly string[]

  /** @param except tables that are left alone */
  constructor(t: Test, file: string, ...except: readonly string[]) {
    this.#database = new DatabaseSync(file)
    t.teardown(() => this.#database.close())
    this.#database.exec('PRAGMA busy_timeout=10000; PRAGMA synchronous=OFF')
    this.#tables = this.#database
      .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
      .all()
      .map(row => String(row['name']))
      .filter(name => !except.includes(name))
  }

  /** Returns all rows of now. */
  read(): Rows {
    return new Map(
      this.#tables.map(table => {
        const statement = this.#database.prepare(`SELECT * FROM ${table}`)
        statement.setReadBigInts(true)
        return [table, statement.all()]
      }),
    )
  }

  /** Replaces all rows by others. */
  putBack(rows: Rows): void {
    this.#database.exec('BEGIN IMMEDIATE')
    for (const [table, all] of rows) {
      this.#database.exec(`DELETE FROM ${table}`)
      for (const row of all) {
        const columns = Object.keys(row)
        const places = columns.map(() => '?').join(',')
        this.#database
          .prepare(`INSERT INTO ${table} (${columns.join(',')}) VALUES (${places})`)
          .run(...Object.values(row))
      }
    }
    this.#database.exec('COMMIT')
  }
}
