/** The months of exchanges: in PostgreSQL each has a partition of its own. */
import type { Database, Sql } from './database.ts'

/** How long dropping a month may wait for readers, in milliseconds: settlements wait for it. */
const DROP_MS = 200

/** The months that have a partition. */
export class Months {
  readonly #partitioned: boolean
  readonly #known = new Set<string>()

  constructor(dialect: Database['dialect']) {
    this.#partitioned = dialect === 'postgres'
  }

  /**
   * Makes sure that each month has a partition.
   * @param times milliseconds since the epoch
   * @returns the months to note as created when the transaction has been committed
   */
  async ensure(sql: Sql, times: readonly number[]): Promise<readonly string[]> {
    if (!this.#partitioned) return []
    const months = new Set(times.map(ms => new Date(ms).toISOString().slice(0, 7)))
    const missing = [...months].filter(month => !this.#known.has(month))
    for (const month of missing) await create(sql, Date.parse(`${month}-01T00:00:00Z`))
    return missing
  }

  created(months: readonly string[]): void {
    for (const month of months) this.#known.add(month)
  }

  /** Forgets which months exist: another process may have dropped one. */
  forget(): void {
    this.#known.clear()
  }
}

async function create(sql: Sql, from: number): Promise<void> {
  const name = partitionOf(from)
  const [found] = await sql.all('SELECT to_regclass(?) IS NOT NULL AS exists', [name])
  if (found?.['exists']) return
  const to = new Date(from)
  to.setUTCMonth(to.getUTCMonth() + 1)
  // Unlike CREATE TABLE … PARTITION OF, this waits for no reader, such as a backup.
  await sql.all(`CREATE TABLE ${name} (LIKE exchanges INCLUDING ALL)`)
  await sql.all(
    `ALTER TABLE exchanges ATTACH PARTITION ${name}
     FOR VALUES FROM ('${boundOf(from)}') TO ('${boundOf(to.getTime())}')`,
  )
}

/**
 * Drops the months before a time whose rows have all been deleted.
 * @throws RecordsError if somebody reads them; the next run tries again
 */
export async function dropMonths(database: Database, ms: number): Promise<void> {
  const rows = await database.all(
    "SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'exchanges'::regclass",
  )
  const oldest = partitionOf(ms)
  for (const name of rows.map(row => String(row['name'])).filter(each => each < oldest)) {
    await database.transaction(async sql => {
      const [left] = await sql.all(`SELECT 1 FROM ${name} LIMIT 1`)
      await sql.all(`SET LOCAL lock_timeout = ${DROP_MS}`)
      if (!left) await sql.all(`DROP TABLE ${name}`)
    })
  }
}

/** Returns the name of the partition of a month. */
function partitionOf(month: number): string {
  return `exchanges_${new Date(month).toISOString().slice(0, 7).replace('-', '_')}`
}

/** Returns the smallest id of a time, in hexadecimal. */
export function boundOf(ms: number): string {
  return ms.toString(16).padStart(12, '0').padEnd(32, '0')
}
