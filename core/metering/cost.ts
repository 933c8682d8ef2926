/** What an exchange costs the operator, as far as it is known. */
import type { Upstream } from '../config/config.ts'
import { MAX_AMOUNT, NANO, parseDecimal } from '../money/credits.ts'
import { chargeAll, unpricedOf, type BilledUsage } from '../money/price.ts'

/**
 * Returns what an upstream bills for a usage, in nano-credits: as it reported itself, or at the prices of `cost`.
 * @param parts the usage as charged to the customer
 * @param sends the model name that was sent upstream
 * @param reported dollars, as a plain decimal
 * @returns undefined if neither is known
 */
export function costOf(
  parts: readonly BilledUsage[],
  sends: string,
  { cost, dollar }: Upstream,
  reported: string | undefined,
): bigint | undefined {
  if (dollar === undefined && cost.size === 0) return undefined
  const dollars = reported === undefined ? undefined : parseDecimal(reported)
  if (dollar !== undefined && dollars !== undefined) {
    const cost = (dollars * dollar + NANO - 1n) / NANO
    return cost > MAX_AMOUNT ? MAX_AMOUNT : cost
  }
  const priced = parts.flatMap(part => {
    const price = cost.get(part.model ?? sends) ?? cost.get('*')
    // If a price lacks a used item, the total is unknown.
    return price && unpricedOf({ ...part, price }).length === 0 ? [{ ...part, price }] : []
  })
  return parts.length === 0 || priced.length < parts.length ? undefined : chargeAll(priced)
}
