/** Extends the validity of a key within another change, such as a payment. */
import { knownFirst } from '../ledger/known-first.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { type Also, Impossible } from '../records/database.ts'
import { changeKey } from '../records/key-rows.ts'

/**
 * Returns what extends the validity of a key in a transaction: from now or from its present expiry on, whichever is later.
 * Afterwards the key is pending.
 * @returns it throws GatewayError unavailable, and Impossible for a deleted key, and for one that never expires
 */
export function extensionOf(
  { scripts, records, continuity }: Ledger,
  { id, byMs, now }: { readonly id: string; readonly byMs: number; readonly now: () => number },
): Also {
  return async sql => {
    const key = await records.keys.get(id, sql)
    if (!key || key.status === 'deleted') throw new Impossible(`the key ${id} is deleted`)
    const { version: from, lifetimeMs } = key
    const known = await knownFirst(scripts, key)
    const expiresAt = key.expiresAt ?? known.expiresAt
    if (expiresAt === undefined && lifetimeMs === undefined) throw new Impossible(`the key ${id} never expires`)
    const validity =
      expiresAt === undefined
        ? { lifetimeMs: (lifetimeMs ?? 0) + byMs }
        : { expiresAt: Math.max(expiresAt, now()) + byMs }
    const status = known.isDisabled ? 'disabled' : key.status
    const version = Math.max(from, known.version) + 1
    await changeKey(sql, id, { ...key, ...validity, status, version }, { from, at: continuity.now(), pending: true })
  }
}
