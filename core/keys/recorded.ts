/** How a change of a key is known to be recorded. */
import { isDeepStrictEqual } from 'node:util'
import { CommitInDoubt } from '../records/database.ts'
import type { KeyRecord } from '../records/key-records.ts'
import type { Records } from '../records/records.ts'
import { causeOf, orUnavailable } from '../records/unavailable.ts'

/**
 * Where a change of a key is:
 * - `store`: in the records and in the store. It is in force.
 * - `records`: in the records only. A running gateway writes it to the store later.
 * - `unknown`: the database failed at that moment, so the change may or may not be recorded.
 */
export type Reached = 'store' | 'records' | 'unknown'

/**
 * Records a change. If the answer is lost, looks whether it was recorded.
 * @param record returns whether the change was possible
 * @param key one of the keys as they are recorded then
 * @param isNewSecret whether only this change can have given the key its secret
 * @returns what `record` returns, or `unknown`
 * @throws GatewayError unavailable if it was not recorded
 */
export async function recordedSurely(
  { keys }: Pick<Records, 'keys'>,
  record: () => Promise<boolean>,
  key: KeyRecord | undefined,
  isNewSecret: boolean,
): Promise<boolean | 'unknown'> {
  try {
    return await orUnavailable(record())
  } catch (thrown) {
    if (!key || !(causeOf(thrown) instanceof CommitInDoubt)) throw thrown
    const found = await keys.getInTurn(key.id).then(
      now => ({ now }),
      () => undefined,
    )
    if (!found) return 'unknown'
    const { now } = found
    if (now && isSame(now, key)) return true
    // Another change came after this one, or instead of it. Only a new secret says which.
    if (now && now.version > key.version) return isNewSecret && now.digest === key.digest ? true : 'unknown'
    throw thrown
  }
}

/** Whether two records of a key say the same. */
function isSame(one: KeyRecord, other: KeyRecord): boolean {
  const members = [
    'version',
    'digest',
    'status',
    'name',
    'label',
    'expiresAt',
    'rotation',
    'cap',
    'type',
    'account',
    'limits',
    'lifetimeMs',
    'manage',
    'metadata',
  ] as const
  // What is left out of a change is `false`.
  return members.every(member => isDeepStrictEqual(one[member] ?? false, other[member] ?? false))
}
