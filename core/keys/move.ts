/** Lets keys spend from other balances. */
import type { Ledger } from '../ledger/ledger.ts'
import { knownFirst } from '../ledger/known-first.ts'
import type { Transaction } from '../records/database.ts'
import type { KeyRecord, RecordedKey } from '../records/key-records.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { type Reached, recordedSurely } from './recorded.ts'

/** A key after a move, and where the change is. */
export interface Moved {
  /** Undefined if nothing was changed. */
  readonly key: RecordedKey | undefined
  readonly reached: Reached
}

/**
 * Lets a key spend from another balance. Requests that run end on the balance before, and their history stays there.
 * @param also written in the transaction that records it
 * @throws GatewayError unavailable if nothing was changed; RangeError if there is no such key or balance, or if the key is
 * deleted
 */
export async function moveKey(
  ledger: Ledger,
  { id, to }: { readonly id: string; readonly to: string },
  also?: (sql: Transaction, keys: readonly KeyRecord[]) => Promise<void>,
): Promise<Moved> {
  const { scripts, records, continuity, background } = ledger
  for (;;) {
    const before = await orUnavailable(records.keys.get(id))
    if (!before) throw new RangeError(`there is no key ${id}`)
    if (before.status === 'deleted') throw new RangeError(`the key ${id} is deleted`)
    if (before.account === to) return { key: undefined, reached: 'store' }
    const known = await knownFirst(scripts, before)
    if (known.isDisabled || known.expiresAt !== undefined) {
      await background.recordChanged(id)
      continue
    }
    const version = Math.max(before.version, known.version) + 1
    let isThere = true
    const change = async (): Promise<boolean> => {
      const at = continuity.now()
      const moved = await records.keys.move(before, to, { version, at }, also && (sql => also(sql, [before])))
      isThere = moved !== undefined
      return moved === true
    }
    const recorded = await recordedSurely(records, change, { ...before, account: to, version }, false)
    if (!isThere) throw new RangeError(`there is no balance ${to}; a balance is named by its id`)
    if (recorded === 'unknown') return { key: before, reached: recorded }
    // If it is false, somebody else has changed the key meanwhile.
    if (recorded) return inForce(ledger, id)
  }
}

/** Writes a moved key to the store. */
async function inForce({ records, restorer, continuity, background }: Ledger, id: string): Promise<Moved> {
  let key: RecordedKey | undefined
  try {
    for (;;) {
      key = await records.keys.get(id)
      if (!key) return { key, reached: 'unknown' }
      const restored = await restorer.restore(key)
      if (restored === 'whole') await records.keys.applied([key], continuity.now())
      if (restored !== 'old') break
      // It was disabled meanwhile.
      await background.recordChanged(id)
    }
    return { key, reached: 'store' }
  } catch {
    return { key, reached: 'records' }
  }
}
