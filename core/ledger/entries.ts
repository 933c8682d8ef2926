/** The notes of a history entry from which its charge can be recomputed. */
import { NO_USAGE, plus } from '../money/usage.ts'
import type { PriceBook } from './price-book.ts'
import { chargeAll, type PricedUsage, type BilledUsage } from '../money/price.ts'
import type { ChargePart, Notes } from '../records/entry.ts'

/** Returns the notes from which a charge can be recomputed. */
export function chargeNotes(
  parts: readonly BilledUsage[],
): Pick<Notes, 'usage' | 'priceVersion' | 'conditions' | 'parts'> {
  const [first] = parts
  if (!first) return {}
  const [usage, ...others] = parts.map(part => part.usage)
  const whole = others.reduce(plus, usage ?? NO_USAGE)
  const single = parts.length === 1 && first.model === undefined
  return {
    usage: whole,
    priceVersion: first.price.version,
    ...(first.conditions && { conditions: first.conditions }),
    ...(!single && {
      parts: parts.map(({ usage: own, price, conditions, model }) => ({
        usage: own,
        price: price.version,
        ...(conditions && { conditions }),
        ...(model !== undefined && { model }),
      })),
    }),
  }
}

/**
 * Returns the cost of a reply so far, with its notes, for the entry that is written if the gateway dies. They name the model that
 * answered, if it is not the one that was asked for, and the price.
 */
export function floorOf(
  parts: readonly BilledUsage[],
  { served, priceName: price }: { readonly served: string | undefined; readonly priceName: string },
): { charge: bigint; notes: Partial<Notes> } {
  if (parts.length === 0) return { charge: 0n, notes: {} }
  const notes = {
    ...chargeNotes(parts),
    usageSource: 'estimated',
    price,
    ...(served !== undefined && { served }),
  } as const
  return { charge: chargeAll(parts), notes }
}

/** Returns the parts of an entry's charge. Empty if the entry names no usage or no price version. */
export function chargeParts({ usage, priceVersion, conditions, parts }: Partial<Notes>): readonly ChargePart[] {
  if (parts) return parts
  return usage && priceVersion !== undefined ? [{ usage, price: priceVersion, ...(conditions && { conditions }) }] : []
}

/**
 * Recomputes the charge of an entry's parts, in nano-credits.
 * @returns undefined if a price version is not stored
 * @throws GatewayError unavailable
 */
export async function recomputed(parts: readonly ChargePart[], prices: PriceBook): Promise<bigint | undefined> {
  const priced: PricedUsage[] = []
  for (const { usage, price: version, conditions } of parts) {
    const price = await prices.get(version)
    if (!price) return undefined
    priced.push({ usage, price, conditions })
  }
  return chargeAll(priced)
}
