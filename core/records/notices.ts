/**
 * Notices: what happened that an operator wants to be told, on its way to another system. Each is a row until it is
 * delivered, so that none is lost with a process.
 */
import { bigintOf, type Database, type Row, type Sql } from './database.ts'

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

/** Adds a notice in the transaction of what happened. */
export async function addNotice(sql: Sql, { id, type, at, body }: Notice): Promise<void> {
  const [latest] = await sql.all('SELECT COALESCE(MAX(no), 0) AS no FROM notices')
  await sql.all(
    "INSERT INTO notices (no, id, type, body, at, due, tries, state, last) VALUES (?, ?, ?, ?, ?, ?, 0, 'waiting', '')",
    [Number(latest?.['no']) + 1, id, type, body, at, at],
  )
}

/** Reads and writes notices. */
export class Notices {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Adds a notice in a transaction of its own. */
  async add(notice: Notice): Promise<void> {
    await this.#database.transaction(sql => addNotice(sql, notice))
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

/** An account whose exchanges have just been recorded. */
export interface Spending {
  readonly account: string
  readonly type: string
  readonly name: string
  readonly label: string
  /** What remains of its grants, before and after the exchanges, in nano-credits. What is held counts as not spent. */
  readonly before: bigint
  readonly after: bigint
}

/** Returns what accounts have spent by exchanges that were recorded in this transaction. */
export async function spendingOf(sql: Sql, charges: ReadonlyMap<string, bigint>): Promise<Spending[]> {
  const found: Spending[] = []
  for (const [account, charge] of charges) {
    const [row] = await sql.all(
      `SELECT a.type, a.name, a.label, a.granted, t.settled FROM accounts a JOIN totals t ON t.account = a.no
       WHERE a.id = ?`,
      [account],
    )
    if (!row) continue
    const after = bigintOf(row, 'granted') - bigintOf(row, 'settled')
    const { type, name, label } = row
    found.push({
      account,
      type: String(type),
      name: String(name),
      label: String(label),
      before: after + charge,
      after,
    })
  }
  return found
}
