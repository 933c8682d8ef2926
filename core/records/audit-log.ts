/** The audit log: who changed what, and when. */
import { type Database, nextNo, type Row, type Sql, Where } from './database.ts'

/** One change. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number
  /** The name of a token, with its id, or `command line`. */
  readonly actor: string
  /** The address that the change came from; empty for the command line. */
  readonly address: string
  /** What was done, such as `key.topup`. */
  readonly action: string
  /** The id of what was changed; empty if it is not a single thing. */
  readonly target: string
  /** What else a reader must know, without any secret. */
  readonly details: Readonly<Record<string, unknown>>
}

/** Which entries to read, newest first. */
export interface AuditRange {
  readonly target?: string | undefined
  readonly action?: string | undefined
  /** Part of the actor. */
  readonly actor?: string | undefined
  /** The number of the last entry of the page before. */
  readonly before?: number | undefined
  readonly count: number
}

/** An entry with its number. */
export interface NumberedEntry extends AuditEntry {
  readonly no: number
}

/** Adds an entry in the transaction of the change. */
export async function addAudit(sql: Sql, entry: AuditEntry): Promise<void> {
  const { at, actor, address, action, target, details } = entry
  const no = await nextNo(sql, 'audit')
  const values = [no, at, actor, address, action, target, JSON.stringify(details)]
  await sql.all(
    'INSERT INTO audit (no, at, actor, address, action, target, details) VALUES (?, ?, ?, ?, ?, ?, ?)',
    values,
  )
}

/** Reads and writes the log. Nothing is ever changed or deleted in it. */
export class AuditLog {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Adds an entry in a transaction of its own, for changes that are not made in the records. */
  async add(entry: AuditEntry): Promise<void> {
    await this.#database.transaction(sql => addAudit(sql, entry))
  }

  /** Returns entries, newest first. */
  async list({ target, action, actor, before, count }: AuditRange): Promise<NumberedEntry[]> {
    const where = new Where()
      .addIf('target = ?', target)
      .addIf('action = ?', action)
      .addIf('no < ?', before)
      .search(this.#database.dialect, actor, ['actor'])
    const rows = await this.#database.all(
      `SELECT no, at, actor, address, action, target, details FROM audit ${where.text} ORDER BY no DESC LIMIT ?`,
      [...where.values, count],
    )
    return rows.map(entryOf)
  }
}

function entryOf(row: Row): NumberedEntry {
  return {
    no: Number(row['no']),
    at: Number(row['at']),
    actor: String(row['actor']),
    address: String(row['address']),
    action: String(row['action']),
    target: String(row['target']),
    details: JSON.parse(String(row['details'])) as Record<string, unknown>,
  }
}
