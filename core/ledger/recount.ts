/**
 * Compares what accounts have reserved with their holds, and corrects it. A server that is restarted on a torn file may
 * have a hold that its account never counted, or lack one that it did.
 */
import { formatCredits } from '../money/credits.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import { namesIn } from './scan.ts'
import { type Scripts, stored } from './scripts.ts'

/** Accounts that are corrected at the same time. Requests need not wait for more. */
const SIDE_BY_SIDE = 8

/** An account that was corrected. Amounts are in nano-credits. */
export interface Correction {
  readonly account: string
  readonly reserved: { readonly from: string; readonly to: string }
  readonly holds: { readonly from: number; readonly to: number }
}

/** The result of a comparison. */
export interface Recount {
  /** The number of accounts that had holds or something reserved. */
  readonly accounts: number
  readonly corrections: readonly Correction[]
}

/**
 * Compares accounts with their holds, while requests go on.
 * @param leaseMs after which a hold without a lease ends
 * @param only this account; all if left out
 * @param goesOn whether to go on with the next account
 * @throws GatewayError unavailable
 */
export async function recount(
  scripts: Scripts,
  leaseMs: number,
  { only, goesOn = () => true }: { readonly only?: string; readonly goesOn?: () => boolean } = {},
): Promise<Recount> {
  const found = await accountsToCompare(scripts, only)
  const corrections: Correction[] = []
  await sideBySide([...found], SIDE_BY_SIDE, async ([account, holds]) => {
    if (!goesOn()) return
    const own = scripts.keys.of(account)
    const [kind, from = '', to = '', fromHolds, toHolds] = await scripts.run({
      name: 'recount',
      account,
      keys: [own.account, own.leases, own.places],
      args: [account, scripts.keys.hold(account, ''), String(leaseMs), [...holds].join(' ')],
    })
    if (kind !== 'corrected') return
    corrections.push({
      account,
      reserved: { from, to },
      holds: { from: Number(fromHolds), to: Number(toHolds) },
    })
  })
  return { accounts: found.size, corrections }
}

/** Says in words what was corrected. */
export function wordsOf({ account, reserved, holds }: Correction): string {
  return `${account}: had ${creditsOf(reserved.from)} credits reserved for ${holds.from} holds, has ${creditsOf(reserved.to)} for ${holds.to}`
}

/** Returns an amount in nano-credits in credits. */
function creditsOf(nano: string): string {
  return formatCredits(BigInt(nano))
}

/** Returns the accounts that have holds or something reserved, with the ids of the holds that were seen. */
async function accountsToCompare(scripts: Scripts, only: string | undefined): Promise<Map<string, Set<string>>> {
  const found = new Map<string, Set<string>>()
  const idsOf = (account: string): Set<string> => {
    const known = found.get(account) ?? new Set()
    found.set(account, known)
    return known
  }
  const isWanted = (account: string): boolean => only === undefined || account === only
  for await (const { accounts, holds } of namesIn(scripts)) {
    for (const { account, id } of holds) if (isWanted(account)) idsOf(account).add(id)
    await Promise.all(
      accounts.filter(isWanted).map(async account => {
        const key = scripts.keys.of(account).account
        const sums = await stored(scripts.redis.hmget(key, 'rsv', 'n', 'ab'))
        if (sums.some(sum => sum !== null && sum !== '0')) idsOf(account)
      }),
    )
  }
  return found
}
