/** Redeem codes: each adds credits to a key, or gives it a plan, or becomes a new key, once. */
import {
  type Also,
  bigintOf,
  type Database,
  insertAll,
  nextNo,
  type Row,
  selectIn,
  type Sql,
  type SqlValue,
  Undone,
  Where,
} from './database.ts'

/** The states of a code. */
export const CODE_STATES = ['unused', 'used', 'expired', 'cancelled'] as const
/** The state of a redeem code. */
export type CodeState = (typeof CODE_STATES)[number]

/** The kinds of codes: one adds credits to the key that redeems it, or gives it the plan of its type, or becomes a new key. */
export const CODE_KINDS = ['credits', 'plan', 'key'] as const
/** The kind of a redeem code. */
export type CodeKind = (typeof CODE_KINDS)[number]

/** A code. It is stored as a hash only. */
export interface Code {
  readonly id: string
  /** The beginning and the end of the code. */
  readonly hint: string
  readonly kind: CodeKind
  /** The type of the new key, or of the keys that may redeem it; empty for any. */
  readonly type: string
  readonly batch: string
  /** Nano-credits. */
  readonly amount: bigint
  /** How long a new key is valid, in milliseconds; undefined if it never expires. */
  readonly lifetimeMs: number | undefined
  /** Milliseconds since the epoch. */
  readonly createdAt: number
  readonly expiresAt: number | undefined
  readonly cancelledAt: number | undefined
  readonly usedAt: number | undefined
  /** The id of the key that has redeemed it, or that it became. */
  readonly key: string | undefined
  /** The idempotency key with which it was redeemed, as a hash; empty if there was none. */
  readonly request: string
}

/** Why a code cannot be redeemed. `code` is set if there is one. */
export class CodeRefused extends Undone {
  readonly reason: 'unknown' | 'used' | 'expired' | 'cancelled' | 'other type' | 'no plan'
  readonly code: Code | undefined

  constructor(reason: CodeRefused['reason'], code?: Code) {
    super(`the code cannot be redeemed: ${reason}`)
    this.reason = reason
    this.code = code
  }
}

/** Which codes to list, newest first. */
export interface CodeSearch {
  readonly batch?: string | undefined
  readonly state?: CodeState | undefined
  /** Part of the id, the batch or the hint, or the id of the key that redeemed it. */
  readonly text?: string | undefined
  /** Milliseconds since the epoch. */
  readonly now: number
  /** The id of the last code of the page before. */
  readonly after?: string | undefined
  readonly count: number
}

const SELECT = `SELECT c.no, c.id, c.hint, c.kind, c.type, c.batch, c.amount, c.lifetime, c.created, c.expires, c.cancelled,
  c.used, c.request, k.id AS key FROM codes c LEFT JOIN keys k ON k.no = c.key`

const STATES: Readonly<Record<CodeState, string>> = {
  unused: 'c.used IS NULL AND c.cancelled IS NULL AND (c.expires IS NULL OR c.expires > ?)',
  used: 'c.used IS NOT NULL',
  expired: 'c.used IS NULL AND c.cancelled IS NULL AND c.expires <= ?',
  cancelled: 'c.used IS NULL AND c.cancelled IS NOT NULL',
}

/** Returns the state of a code. @param now milliseconds since the epoch */
export function codeState({ usedAt, cancelledAt, expiresAt }: Code, now: number): CodeState {
  if (usedAt !== undefined) return 'used'
  if (cancelledAt !== undefined) return 'cancelled'
  return expiresAt !== undefined && expiresAt <= now ? 'expired' : 'unused'
}

/** Reads and writes codes. */
export class Codes {
  readonly #database: Database

  constructor(database: Database) {
    this.#database = database
  }

  /** Adds codes: all of them or, if anything fails, none. */
  async add(codes: readonly (Code & { readonly digest: string })[], also?: Also): Promise<void> {
    await this.#database.transaction(async sql => {
      const first = await nextNo(sql, 'codes')
      await insertAll(
        sql,
        `INSERT INTO codes (no, id, digest, hint, kind, type, batch, amount, lifetime, created, expires, request)`,
        codes.map((code, index): SqlValue[] => [
          first + index,
          code.id,
          code.digest,
          code.hint,
          code.kind,
          code.type,
          code.batch,
          code.amount,
          code.lifetimeMs ?? null,
          code.createdAt,
          code.expiresAt ?? null,
          '',
        ]),
        '',
      )
      await also?.(sql)
    })
  }

  /** Finds a code by its hash. */
  find(digest: string): Promise<Code | undefined> {
    return findCode(this.#database, digest)
  }

  /** Returns codes by their ids. */
  async withIds(ids: readonly string[]): Promise<Map<string, Code>> {
    const codes = (await selectIn(this.#database, `${SELECT} WHERE c.id`, ids)).map(codeOf)
    return new Map(codes.map(code => [code.id, code]))
  }

  /** Finds a code by its id. */
  async get(id: string): Promise<Code | undefined> {
    const [row] = await this.#database.all(`${SELECT} WHERE c.id = ?`, [id])
    return row && codeOf(row)
  }

  /** Lists codes, newest first. */
  async list({ batch, state, text, now, after, count }: CodeSearch): Promise<Code[]> {
    const where = new Where()
      .addIf('c.no < (SELECT no FROM codes WHERE id = ?)', after)
      .addIf('c.batch = ?', batch)
      .search(this.#database.dialect, text, ['c.id', 'c.batch', 'c.hint', 'k.id'])
    if (state !== undefined) where.add(STATES[state], ...(STATES[state].includes('?') ? [now] : []))
    const rows = await this.#database.all(`${SELECT} ${where.text} ORDER BY c.no DESC LIMIT ?`, [
      ...where.values,
      count,
    ])
    return rows.map(codeOf)
  }

  /**
   * Cancels the unused codes of a batch, or one unused code. @returns the number of cancelled codes
   * @param now milliseconds since the epoch
   */
  async cancel(which: { readonly id: string } | { readonly batch: string }, now: number, also?: Also): Promise<number> {
    const [column, value] = 'id' in which ? (['id', which.id] as const) : (['batch', which.batch] as const)
    return this.#database.transaction(async sql => {
      const rows = await sql.all(
        `UPDATE codes SET cancelled = ? WHERE ${column} = ? AND used IS NULL AND cancelled IS NULL RETURNING no`,
        [now, value],
      )
      if (rows.length > 0) await also?.(sql)
      return rows.length
    })
  }
}

async function findCode(sql: Sql, digest: string): Promise<Code | undefined> {
  const [row] = await sql.all(`${SELECT} WHERE c.digest = ?`, [digest])
  return row && codeOf(row)
}

/**
 * Marks a code as used, in the transaction that gives its credits or adds its key.
 * @param use the key that redeems it or that it becomes, its type, and the hash of the request's idempotency key
 * @returns the code
 * @throws CodeRefused if it cannot be redeemed
 */
export async function useCode(
  sql: Sql,
  digest: string,
  use: { readonly key: string; readonly type: string; readonly request: string; readonly now: number },
): Promise<Code> {
  const code = await findCode(sql, digest)
  if (!code) throw new CodeRefused('unknown')
  const state = codeState(code, use.now)
  if (state !== 'unused') throw new CodeRefused(state, code)
  if (code.type !== '' && code.type !== use.type) throw new CodeRefused('other type', code)
  await sql.all(
    `UPDATE codes SET used = ?, key = (SELECT no FROM keys WHERE id = ?), request = ?
     WHERE digest = ? AND used IS NULL`,
    [use.now, use.key, use.request, digest],
  )
  return code
}

function codeOf(row: Row): Code {
  const time = (name: string): number | undefined => (row[name] === null ? undefined : Number(row[name]))
  const { id, hint, kind, type, batch, key, request } = row
  return {
    id: String(id),
    hint: String(hint),
    kind: CODE_KINDS.find(each => each === kind) ?? 'credits',
    type: String(type),
    batch: String(batch),
    amount: bigintOf(row, 'amount'),
    lifetimeMs: time('lifetime'),
    createdAt: Number(row['created']),
    expiresAt: time('expires'),
    cancelledAt: time('cancelled'),
    usedAt: time('used'),
    key: key === null ? undefined : String(key),
    request: String(request),
  }
}
