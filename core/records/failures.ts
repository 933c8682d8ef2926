/** Why requests failed, as it is recorded. */
import type { AccountState } from '../errors.ts'
import { bytesOfId, idFromBytes } from '../lib/ids.ts'
import { type Database, type Row, Where } from './database.ts'

/** What is known of a failed request besides its columns. */
export interface FailureStory {
  readonly endpoint: string
  readonly format: string
  /** The digest of the file that was in force. */
  readonly config: string
  /** Milliseconds from its beginning to its end. */
  readonly ms: number
  /** The attempts at upstream accounts, in their order. */
  readonly attempts: readonly FailedTry[]
  /** The accounts that could not serve it, if none could. */
  readonly accounts?: readonly AccountState[]
  /** Nano-credits that were held for it. */
  readonly held?: string
  /** What its client read. */
  readonly message?: string
  /** Who ended its reply, if something of it was sent. */
  readonly by?: string
}

/** One attempt at an upstream account. Times are milliseconds. */
export interface FailedTry {
  readonly account: string
  readonly status?: number
  readonly failure?: string | undefined
  readonly about?: string
  readonly who?: string
  readonly afterMs?: number
  readonly ms?: number
}

/** A recorded failure. */
export interface RecordedFailure {
  readonly id: string
  /** When it ended, in milliseconds since the epoch. */
  readonly at: number
  /** The id of the key. */
  readonly key: string
  /** Requests that the row stands for: further failures with the same key and code are only counted. */
  readonly alike: number
  readonly status: number | undefined
  readonly who: string
  readonly code: string
  readonly model: string
  readonly account: string
  readonly words: string | undefined
  readonly story: FailureStory
}

/** Which failures to read. Those that are undefined do not matter. */
export interface FailureFilter {
  /** Only failures with a smaller id. */
  readonly before: string | undefined
  readonly key: string | undefined
  readonly code: string | undefined
}

const SELECT = `SELECT f.id, f.ended, k.id AS key, f.alike, f.status, f.who, f.code, f.model, f.upstream_account, f.words,
  f.story FROM failures f JOIN keys k ON k.no = f.key`

/** Reads why requests failed. */
export class Failures {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Returns why a request failed. Undefined if it did not, or if that is not noted. */
  async get(id: string): Promise<RecordedFailure | undefined> {
    const [row] = await this.#database.all(`${SELECT} WHERE f.id = ?`, [bytesOfId(id)])
    return row && failureOf(row)
  }

  /** Returns failures, newest first. */
  async list({ before, key, code }: FailureFilter, count: number): Promise<RecordedFailure[]> {
    const where = new Where()
      .addIf('f.id < ?', before === undefined ? undefined : bytesOfId(before))
      .addIf('f.key = (SELECT no FROM keys WHERE id = ?)', key)
      .addIf('f.code = ?', code)
    const rows = await this.#database.all(`${SELECT} ${where.text} ORDER BY f.id DESC LIMIT ?`, [
      ...where.values,
      count,
    ])
    return rows.map(failureOf)
  }
}

function failureOf(row: Row): RecordedFailure {
  return {
    id: idFromBytes(row['id'] as Uint8Array),
    at: Number(row['ended']),
    key: String(row['key']),
    alike: Number(row['alike']),
    status: row['status'] === null ? undefined : Number(row['status']),
    who: String(row['who']),
    code: String(row['code']),
    model: String(row['model']),
    account: String(row['upstream_account']),
    words: row['words'] === null ? undefined : String(row['words']),
    story: JSON.parse(String(row['story'])) as FailureStory,
  }
}
