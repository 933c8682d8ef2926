/**
 * Notices: what happened that an operator wants to be told, on its way to another system. Each is a row until it is
 * delivered, so that none is lost with a process.
 */
import type { Database, Row, Transaction } from './database.ts'

/** A notice. */
export interface Notice {
  /** Identifies it to its receiver, who may get it more than once. */
  readonly id: string
  /** What happened, such as `key.exhausted`. */
  readonly type: string
  /** Milliseconds since the epoch. */
  readonly at: number
  /** What the receiver gets, as JSON. */
  readonly body: string
}

/** A notice with the tries so far to deliver it. */
export interface WaitingNotice extends Notice {
  readonly tries: number
}

/** What became of a notice. */
export interface Delivery {
  readonly state: 'waiting' | 'delivered' | 'given up'
  readonly tries: number
  /** How the last try ended; empty before the first. */
  readonly last: string
}

/** Adds notices in the transaction of what happened. One that is there already stays as it is. */
export function addNotices(sql: Transaction, notices: readonly Notice[]): void {
  for (const { id, type, at, body } of notices)
    sql.put(
      `INSERT INTO notices (no, id, type, body, at, due, tries, state, last)
       SELECT COALESCE(MAX(no), 0) + 1, ?, ?, ?, ?, ?, 0, 'waiting', '' FROM notices WHERE TRUE
       ON CONFLICT (id) DO NOTHING`,
      [id, type, body, at, at],
    )
}

/** Reads and writes notices. */
export class Notices {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Adds notices in a transaction of their own. */
  async add(...notices: readonly Notice[]): Promise<void> {
    await this.#database.transaction(async sql => addNotices(sql, notices))
  }

  /** Returns notices that are due, the oldest first. @param now milliseconds since the epoch */
  async due(now: number, count: number): Promise<WaitingNotice[]> {
    const rows = await this.#database.all(
      "SELECT id, type, body, at, tries FROM notices WHERE state = 'waiting' AND due <= ? ORDER BY no LIMIT ?",
      [now, count],
    )
    return rows.map(noticeOf)
  }

  /**
   * Notes how a try ended.
   * @param next when the next try is due, in milliseconds since the epoch; undefined if it was the last one
   */
  async tried(id: string, { delivered, last, next }: { delivered: boolean; last: string; next?: number | undefined }) {
    let state: Delivery['state'] = delivered ? 'delivered' : 'waiting'
    if (!delivered && next === undefined) state = 'given up'
    await this.#database.transaction(sql =>
      sql.all('UPDATE notices SET state = ?, last = ?, tries = tries + 1, due = ? WHERE id = ?', [
        state,
        last,
        next ?? 0,
        id,
      ]),
    )
  }

  /** Returns what became of a notice. */
  async delivery(id: string): Promise<Delivery | undefined> {
    const [row] = await this.#database.all('SELECT state, tries, last FROM notices WHERE id = ?', [id])
    if (!row) return undefined
    const { state, tries, last } = row
    return {
      state: state === 'delivered' || state === 'given up' ? state : 'waiting',
      tries: Number(tries),
      last: String(last),
    }
  }

  /** Forgets notices before a time that need no further try. @param ms milliseconds since the epoch */
  async forgetBefore(ms: number): Promise<void> {
    await this.#database.transaction(sql => sql.all("DELETE FROM notices WHERE state <> 'waiting' AND at < ?", [ms]))
  }
}

function noticeOf(row: Row): WaitingNotice {
  const { id, type, body, at, tries } = row
  return { id: String(id), type: String(type), body: String(body), at: Number(at), tries: Number(tries) }
}
