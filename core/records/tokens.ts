/** The tokens of operators, by which they and their programs use the admin API, and the sessions of its page. */
import { type Also, type Database, type Row, nextNo } from './database.ts'

/**
 * What a token allows:
 * - `read`: everything that changes nothing.
 * - `keys`: also what a shop does with keys and codes.
 * - `all`: also the accounts of upstreams, and tokens.
 */
export const SCOPES = ['read', 'keys', 'all'] as const
/** One of them. */
export type TokenScope = (typeof SCOPES)[number]

/** A token. Its secret is stored as a hash only. */
export interface Token {
  readonly id: string
  readonly name: string
  readonly scope: TokenScope
  /** The beginning and the end of the secret. */
  readonly hint: string
  /** Milliseconds since the epoch. `usedAt` may be up to a minute late. */
  readonly createdAt: number
  readonly usedAt: number | undefined
  readonly revokedAt: number | undefined
}

/** A session of the page, with its token. */
export interface Session {
  readonly token: Token
  readonly expiresAt: number
}

const COLUMNS = 't.id, t.name, t.scope, t.hint, t.created, t.used, t.revoked'

/** How late the time of the last use may be, in milliseconds: not every request is worth a write. */
const USED_EVERY_MS = 60_000

/** Reads and writes tokens and sessions. */
export class Tokens {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Adds a token. @param digest the hash of its secret */
  async add(token: Token, digest: string, also?: Also): Promise<void> {
    const { id, name, scope, hint, createdAt } = token
    await this.#database.transaction(async sql => {
      await sql.all('INSERT INTO tokens (no, id, name, scope, digest, hint, created) VALUES (?, ?, ?, ?, ?, ?, ?)', [
        await nextNo(sql, 'tokens'),
        id,
        name,
        scope,
        digest,
        hint,
        createdAt,
      ])
      await also?.(sql)
    })
  }

  /** Returns all tokens, the latest first. */
  async list(): Promise<Token[]> {
    return (await this.#database.all(`SELECT ${COLUMNS} FROM tokens t ORDER BY t.no DESC`)).map(tokenOf)
  }

  /**
   * Finds the token with this hash of a secret that is not revoked, and notes that it is used.
   * @param now milliseconds since the epoch
   */
  async find(digest: string, now: number): Promise<Token | undefined> {
    const [row] = await this.#database.all(`SELECT ${COLUMNS} FROM tokens t WHERE t.digest = ? AND t.revoked IS NULL`, [
      digest,
    ])
    const token = row && tokenOf(row)
    if (token) await this.#used(token, now)
    return token
  }

  async #used({ id, usedAt = 0 }: Token, now: number): Promise<void> {
    if (now - usedAt < USED_EVERY_MS) return
    await this.#database.transaction(sql => sql.all('UPDATE tokens SET used = ? WHERE id = ?', [now, id]))
  }

  /** Revokes a token and ends its sessions. @returns whether it was valid until now */
  async revoke(id: string, now: number, also?: Also): Promise<boolean> {
    return this.#database.transaction(async sql => {
      const rows = await sql.all('UPDATE tokens SET revoked = ? WHERE id = ? AND revoked IS NULL RETURNING no', [
        now,
        id,
      ])
      if (rows.length === 0) return false
      await sql.all('DELETE FROM sessions WHERE token = ?', [Number(rows[0]?.['no'])])
      await also?.(sql)
      return true
    })
  }

  /** Adds a session of a token, and deletes those that are over. @param digest the hash of its secret */
  async open(id: string, digest: string, times: { readonly now: number; readonly expiresAt: number }): Promise<void> {
    await this.#database.transaction(async sql => {
      await sql.all('DELETE FROM sessions WHERE expires <= ?', [times.now])
      await sql.all(
        'INSERT INTO sessions (digest, token, created, expires) SELECT ?, no, ?, ? FROM tokens WHERE id = ?',
        [digest, times.now, times.expiresAt, id],
      )
    })
  }

  /** Finds the running session with this hash of a secret, if its token is not revoked. */
  async session(digest: string, now: number): Promise<Session | undefined> {
    const [row] = await this.#database.all(
      `SELECT ${COLUMNS}, s.expires FROM sessions s JOIN tokens t ON t.no = s.token
       WHERE s.digest = ? AND s.expires > ? AND t.revoked IS NULL`,
      [digest, now],
    )
    if (!row) return undefined
    const token = tokenOf(row)
    await this.#used(token, now)
    return { token, expiresAt: Number(row['expires']) }
  }

  /** Ends a session. */
  async end(digest: string): Promise<void> {
    await this.#database.transaction(sql => sql.all('DELETE FROM sessions WHERE digest = ?', [digest]))
  }
}

function tokenOf(row: Row): Token {
  const { id, name, scope, hint, created, used, revoked } = row
  return {
    id: String(id),
    name: String(name),
    scope: SCOPES.find(each => each === scope) ?? 'read',
    hint: String(hint),
    createdAt: Number(created),
    usedAt: used === null ? undefined : Number(used),
    revokedAt: revoked === null ? undefined : Number(revoked),
  }
}
