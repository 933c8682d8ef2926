/** What operators and shops asked for with an idempotency key, so that a repeated request changes nothing. */
import { type Database, type Sql, Undone } from './database.ts'

/** A request that was done. */
export interface DoneRequest {
  /** Identifies the caller and the idempotency key. */
  readonly id: string
  /** The hash of what was asked for. */
  readonly fingerprint: string
  /** The hash of the secret that the caller presented, on which the secrets of the reply depend. */
  readonly caller: string
  /** From which the secrets of its reply are made again, together with the caller's own secret. */
  readonly seed: string
  /** The reply as JSON, without any secret. */
  readonly reply: string
  /** Milliseconds since the epoch. */
  readonly at: number
}

/** Thrown within a transaction whose request was done already. */
export class RequestDone extends Undone {
  readonly request: DoneRequest

  constructor(request: DoneRequest) {
    super('the request was done already')
    this.request = request
  }
}

/** Notes a request in the transaction that does it. @throws RequestDone if it was done already */
export async function noteRequest(sql: Sql, request: DoneRequest): Promise<void> {
  const known = await findRequest(sql, request.id)
  if (known) throw new RequestDone(known)
  const { id, fingerprint, caller, seed, reply, at } = request
  await sql.all('INSERT INTO requests (id, fingerprint, caller, seed, reply, at) VALUES (?, ?, ?, ?, ?, ?)', [
    id,
    fingerprint,
    caller,
    seed,
    reply,
    at,
  ])
}

async function findRequest(sql: Sql, id: string): Promise<DoneRequest | undefined> {
  const [row] = await sql.all('SELECT id, fingerprint, caller, seed, reply, at FROM requests WHERE id = ?', [id])
  if (!row) return undefined
  const text = (name: string): string => String(row[name])
  return {
    id,
    fingerprint: text('fingerprint'),
    caller: text('caller'),
    seed: text('seed'),
    reply: text('reply'),
    at: Number(row['at']),
  }
}

/** Reads and forgets requests. */
export class Requests {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Finds a request that was done. */
  find(id: string): Promise<DoneRequest | undefined> {
    return findRequest(this.#database, id)
  }

  /** Forgets the requests before a time in milliseconds since the epoch. */
  async forgetBefore(ms: number): Promise<void> {
    await this.#database.transaction(sql => sql.all('DELETE FROM requests WHERE at < ?', [ms]))
  }
}
