/** Extends the validity of a key within another change, such as a payment. */
import type { Ledger } from '../ledger/ledger.ts'
import { readFields } from '../ledger/script/names.ts'
import { type Also, Impossible } from '../records/database.ts'
import { changeKey } from '../records/key-records.ts'
import { orUnavailable } from '../records/unavailable.ts'

/**
 * Returns what extends the validity of a key in a transaction: from now or from its present expiry on, whichever is later.
 * Afterwards the key is pending.
 * @throws GatewayError unavailable; the result throws Impossible for a deleted key, and for one that never expires
 */
export async function extensionOf(
  { scripts, records, continuity }: Ledger,
  { id, byMs, now }: { readonly id: string; readonly byMs: number; readonly now: () => number },
): Promise<Also> {
  const known = await orUnavailable(records.keys.get(id))
  const record = scripts.keys.record({ account: known?.account ?? id, key: id })
  const inStore = await orUnavailable(readFields(scripts.redis, record, ['version', 'expiresAt', 'status']))
  return async sql => {
    const key = await records.keys.get(id, sql)
    if (!key || key.status === 'deleted') throw new Impossible(`the key ${id} is deleted`)
    const { version: from, lifetimeMs } = key
    // The store is the first to know when a key was first used.
    const begun = lifetimeMs !== undefined && inStore.expiresAt ? Number(inStore.expiresAt) : undefined
    const expiresAt = key.expiresAt ?? begun
    if (expiresAt === undefined && lifetimeMs === undefined) throw new Impossible(`the key ${id} never expires`)
    const validity =
      expiresAt === undefined
        ? { lifetimeMs: (lifetimeMs ?? 0) + byMs }
        : { expiresAt: Math.max(expiresAt, now()) + byMs }
    const has = Number(inStore.version ?? 0)
    // The store is the first to know that a key is disabled, too.
    const status = key.status === 'active' && inStore.status === 'disabled' && has >= from ? 'disabled' : key.status
    const version = Math.max(from, has) + 1
    await changeKey(sql, id, { ...key, ...validity, status, version }, { from, at: continuity.now(), pending: true })
  }
}
