/**
 * Compares what accounts have held with their holds, and corrects it. A server that is restarted on a torn file may
 * have a hold that its account never counted, or lack one that it did.
 */
import { formatCredits } from '../../money/credits.ts'
import { sideBySide } from '../../lib/side-by-side.ts'
import { operation, readFields } from '../script/names.ts'
import { namesIn } from '../script/scan.ts'
import { RefusedOperation, type Scripts } from '../script/scripts.ts'
import { causeOf, orUnavailable } from '../../records/unavailable.ts'

/** Accounts that are corrected at the same time. Requests need not wait for more. */
const SIDE_BY_SIDE = 8

/** An account that was corrected. Amounts are in nano-credits. */
export interface Correction {
  readonly account: string
  readonly reserved: { readonly from: string; readonly to: string }
  readonly holds: { readonly from: number; readonly to: number }
}

/** What a comparison tells its caller. */
interface Listener {
  /** Compares this account only. */
  readonly only?: string | undefined
  /** Whether to go on. */
  readonly goesOn?: () => boolean
  /** Called with each correction, as it is made. */
  readonly corrected: (correction: Correction) => unknown
  /** Called for an account that the store refuses to compare. If it is left out, the comparison ends with the error. */
  readonly failed?: (account: string, cause: unknown) => void
}

/**
 * Compares accounts with their holds, while requests go on.
 * @param leaseMs after which a hold without a lease ends
 * @throws GatewayError unavailable
 */
export async function recount(
  scripts: Scripts,
  leaseMs: number,
  { only, goesOn = () => true, corrected, failed }: Listener,
): Promise<void> {
  const found = await accountsToCompare(scripts, only, goesOn)
  await sideBySide([...found], SIDE_BY_SIDE, async ([account, holds]) => {
    if (!goesOn()) return
    try {
      const correction = await compared(scripts, account, holds, leaseMs)
      if (correction) await corrected(correction)
    } catch (cause) {
      if (!failed || !(causeOf(cause) instanceof RefusedOperation)) throw cause
      failed(account, cause)
    }
  })
}

async function compared(
  scripts: Scripts,
  account: string,
  holds: ReadonlySet<string>,
  leaseMs: number,
): Promise<Correction | undefined> {
  const { account: own, leases, slots } = scripts.keys.of(account)
  const args = { name: account, holdPrefix: scripts.keys.hold(account, ''), leaseMs, seen: [...holds].join(' ') }
  const recounting = operation('recount', account, { account: own, leases, slotsOrShares: slots }, args)
  const [kind, from = '', to = '', fromHolds, toHolds] = await scripts.run(recounting)
  if (kind !== 'corrected') return undefined
  return { account, reserved: { from, to }, holds: { from: Number(fromHolds), to: Number(toHolds) } }
}

/** Says in words what was corrected. */
export function wordsOf({ account, reserved, holds }: Correction): string {
  return `${account}: had ${creditsOf(reserved.from)} credits held by ${holds.from} holds, has ${creditsOf(reserved.to)} for ${holds.to}`
}

/** Returns an amount in nano-credits in credits. */
function creditsOf(nano: string): string {
  return formatCredits(BigInt(nano))
}

/** Returns the accounts that have holds, or whose held sum is not 0, with the ids of the holds that were seen. */
async function accountsToCompare(
  scripts: Scripts,
  only: string | undefined,
  goesOn: () => boolean,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const found = new Map<string, Set<string>>()
  const idsOf = (account: string): Set<string> => {
    const known = found.get(account) ?? new Set()
    found.set(account, known)
    return known
  }
  const isWanted = (account: string): boolean => only === undefined || account === only
  for await (const { accounts, holds, slots } of namesIn(scripts)) {
    if (!goesOn()) break
    for (const { account, id } of holds) if (isWanted(account)) idsOf(account).add(id)
    for (const account of slots.filter(isWanted)) idsOf(account)
    await Promise.all(
      accounts.filter(isWanted).map(async account => {
        const key = scripts.keys.of(account).account
        const sums = await orUnavailable(readFields(scripts.redis, key, ['held', 'holds']))
        if (Object.values(sums).some(sum => sum !== null && sum !== '0')) idsOf(account)
      }),
    )
  }
  return found
}
