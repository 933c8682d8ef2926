/** Holds again in a restored store what running requests need, before the store opens for new ones. */
import { sideBySide } from '../lib/side-by-side.ts'
import type { EndReason, Hold, HoldRequest } from './hold.ts'
import { RefusedOperation } from './script/scripts.ts'
import { causeOf } from '../records/unavailable.ts'
import type { Settler } from './settler.ts'

/** Holds that are restored at the same time. */
const AT_ONCE = 64

/**
 * Restores the holds of one process. A request whose key may not be used any more ends.
 * @param request requests a hold of a quota anew: a store may have lost the quota itself
 * @param note tells which accounts have holds
 * @throws GatewayError unavailable
 */
export async function restoreHolds(
  holds: readonly Hold[],
  settler: Pick<Settler, 'restore'>,
  request: (hold: HoldRequest, bucket: string) => Promise<readonly string[]>,
  note: (account: string) => void,
): Promise<void> {
  await sideBySide(holds, AT_ONCE, async hold => {
    if (hold.over) return
    note(hold.account)
    const { amount } = hold
    const asked = hold.request.quota
      ? request({ ...hold.request, amount, least: amount }, hold.bucket)
      : settler.restore(hold)
    // One that the store refuses must not keep all others closed. Its settlement is accepted all the same.
    const [kind, sum = '0', balance = '0'] = await asked.catch((thrown: unknown): readonly string[] => {
      if (!(causeOf(thrown) instanceof RefusedOperation)) throw thrown
      return ['refused']
    })
    if (kind === 'off') hold.request.endExchange?.(sum as EndReason)
    if (kind !== 'held') return
    hold.amount = BigInt(sum)
    hold.balance = BigInt(balance)
  })
}
