/** The rows of keys: their columns, and how they are inserted and changed. */
import type { Changed, Metadata } from './account-rows.ts'
import { insertAll, type Sql, type SqlValue } from './database.ts'

/** What is recorded of a key. */
export interface KeyRecord {
  /** The public id. */
  readonly id: string
  /** The account that it spends from. An account has the id of the key that it was made with. */
  readonly account: string
  readonly type: string
  /** The operator's own name for the key, and for the batch that it was created in. */
  readonly name: string
  readonly batch: string
  /** A deleted key stays as the owner of its history. It can never be used again. */
  readonly status: 'active' | 'disabled' | 'deleted'
  /** Milliseconds since the epoch. Undefined if the key never expires. */
  readonly expiresAt: number | undefined
  readonly createdAt: number
  /** Counts the changes of the record. */
  readonly version: number
  /** The hash of the secret. */
  readonly digest: string
  /** What its owner sees instead of the secret: the hint, unless an operator has chosen something else. */
  readonly label: string
  /** `sk-...` and the last four characters of the secret. */
  readonly hint: string
  /** Counts the changes of the secret. */
  readonly rotation: number
  /** The most that it may be charged in its life, in nano-credits. Undefined for no such limit. */
  readonly cap: bigint | undefined
  /** Its own limits as JSON. Undefined for none. */
  readonly limits?: string | undefined
  /** For how long it is valid from its first use, in milliseconds, while it has no expiry. Undefined for a fixed expiry. */
  readonly lifetimeMs: number | undefined
  readonly metadata: Metadata
  /** Whether its owner may create other keys for the account, and change these. */
  readonly manage?: boolean | undefined
  /** The account that it was moved away from, if it was. Requests that ran then end there. */
  readonly before?: string | undefined
}

/** A key as it is inserted, with its number and that of its account. */
export interface NewKey extends Changed, Omit<KeyRecord, 'account' | 'before'> {
  readonly no: number
  readonly account: number
}

/** Inserts keys. */
export async function insertKeys(sql: Sql, keys: readonly NewKey[]): Promise<void> {
  await insertAll(
    sql,
    `INSERT INTO keys (no, id, account, type, name, batch, status, expires, created, version, digest, label, hint, rotation,
     cap, limits, lifetime, manage, metadata, pending, changed)`,
    keys.map((key): SqlValue[] => [
      key.no,
      key.id,
      key.account,
      key.type,
      key.name,
      key.batch,
      key.status,
      key.expiresAt ?? null,
      key.createdAt,
      key.version,
      key.digest,
      key.label,
      key.hint,
      key.rotation,
      key.cap ?? null,
      key.limits ?? null,
      key.lifetimeMs ?? null,
      key.manage === true ? 1 : 0,
      JSON.stringify(key.metadata),
      key.pending ? 1 : 0,
      key.changed,
    ]),
    '',
  )
}

/** What of a record may change. */
export type ChangedRecord = Omit<KeyRecord, 'id' | 'account' | 'before' | 'batch' | 'createdAt'>

/** From which version a change is made, when, and whether the store has yet to learn of it. */
export interface ChangeOfKey {
  readonly from: number
  readonly at: number
  readonly pending: boolean
}

/** Changes the record of a key if it still has the version that the change is made from. @returns whether it had */
export async function changeKey(
  sql: Sql,
  id: string,
  record: ChangedRecord,
  { from, at, pending }: ChangeOfKey,
): Promise<boolean> {
  const { type, status, name, label, hint, expiresAt, version, digest, rotation, cap, limits, lifetimeMs, manage } =
    record
  // An import must know a secret again that the key had.
  await sql.all(
    `INSERT INTO digests (digest, key) SELECT digest, no FROM keys WHERE id = ? AND version = ? AND digest <> ?
     ON CONFLICT (digest) DO NOTHING`,
    [id, from, digest],
  )
  const rows = await sql.all(
    `UPDATE keys SET type = ?, status = ?, name = ?, label = ?, hint = ?, expires = ?, version = ?, digest = ?,
     rotation = ?, cap = ?, limits = ?, lifetime = ?, manage = ?, metadata = ?, changed = ?, pending = CASE WHEN ? = 1 THEN 1 ELSE pending END
     WHERE id = ? AND version = ? RETURNING no`,
    [
      type,
      status,
      name,
      label,
      hint,
      expiresAt ?? null,
      version,
      digest,
      rotation,
      cap ?? null,
      limits ?? null,
      lifetimeMs ?? null,
      manage === true ? 1 : 0,
      JSON.stringify(record.metadata),
      at,
      pending ? 1 : 0,
      id,
      from,
    ],
  )
  return rows.length > 0
}
