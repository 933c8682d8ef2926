/** What a key that was moved has on accounts from which it does not spend now. */
import { partField, partOf } from '../script/parts.ts'
import type { RecordedKey } from '../../records/key-records.ts'
import type { Records } from '../../records/records.ts'
import { orUnavailable } from '../../records/unavailable.ts'
import type { Scripts } from '../script/scripts.ts'

/** What a key has on one account. Amounts are nano-credits. */
export interface Elsewhere {
  readonly account: string
  /** What it was charged there; what it holds there counts as charged. */
  readonly charged: bigint
  readonly held: bigint
  readonly running: number
}

/**
 * Returns what a key has on all accounts but one. Empty for a key that was never moved.
 * @throws GatewayError unavailable
 */
export async function elsewhereOf(
  { keys, redis }: Scripts,
  records: Records,
  { id, account, before, elsewhere }: Pick<RecordedKey, 'id' | 'account' | 'before' | 'elsewhere'>,
  at: string,
): Promise<Elsewhere[]> {
  if (before === undefined && elsewhere === 0n) return []
  const recorded = await orUnavailable(records.accounts.ofKey(id))
  const others = new Set([...recorded.keys(), account, ...(before === undefined ? [] : [before])])
  others.delete(at)
  return Promise.all(
    [...others].map(async other => {
      const spender = { account: other, key: id }
      const text = await orUnavailable(redis.hget(keys.of(other).account, partField(spender)))
      // A store that lacks the account knows nothing of what was charged there.
      const part = text === null ? undefined : partOf(spender, text)
      const { charged = recorded.get(other) ?? 0n, held = 0n, holds = 0 } = part ?? {}
      return { account: other, charged: charged + held, held, running: holds }
    }),
  )
}
