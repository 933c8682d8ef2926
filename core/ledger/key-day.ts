/** Fills the windows of a key that are asked for first, so that a limit of the day counts the same whenever it is set. */
import { windowAt } from '../plans/calendar.ts'
import { UTC_DAY } from '../plans/limits.ts'
import type { Reads } from './reads.ts'
import { operation } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'
import { ownerOf, type Spender } from './script/store-keys.ts'

/**
 * Writes to the store what a key has used of its day, unless its account is charged meanwhile.
 * @param now by the store's clock
 * @throws GatewayError unavailable
 */
export async function fillDay(
  { scripts, reads }: { readonly scripts: Scripts; readonly reads: Reads },
  spender: Spender,
  now: number,
): Promise<void> {
  const { account } = spender
  const { keys } = scripts
  const { windows, ordinal } = await reads.usedToday(spender, windowAt(UTC_DAY, now))
  const { account: own, leases } = keys.of(account)
  const names = { account: own, record: keys.record(spender), leases }
  const args = { name: account, owner: ownerOf(spender), ordinal, windows, holdPrefix: keys.hold(account, '') }
  await scripts.run(operation('fill', account, names, args))
}
