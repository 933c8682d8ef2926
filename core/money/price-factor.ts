/** Prices that are multiplied by a factor: what a key type or a key pays of them. */
import { formatCredits, NANO, parseDecimal } from './credits.ts'
import { versioned } from './price-text.ts'
import { type CallName, type Price, RATE_NAMES, type Rates } from './price.ts'

/** The largest factor, in nano-units. */
const FACTOR_MAX = 1000n * NANO
/** The last digit of a factor, in nano-units: it has at most four decimal places. */
const FACTOR_STEP = NANO / 10_000n

/** What stands between a price version and a factor. */
const TIMES = '*'

/** Reads a factor, in nano-units. Returns undefined for anything but a plain decimal from 0 to 1000 with at most four places. */
export function factorFrom(text: string): bigint | undefined {
  const factor = parseDecimal(text)
  return factor === undefined || factor > FACTOR_MAX || factor % FACTOR_STEP !== 0n ? undefined : factor
}

/**
 * Multiplies the rates and the fees of a price. A rate has nine decimal places; what is beyond them is rounded up.
 * The version is that of these numbers.
 */
export function timesFactor(price: Price, factor: bigint): Price {
  return factor === NANO ? price : versioned(multiplied(price, factor))
}

/**
 * Does the same for a single key. The version names the one of the price and the factor, such as `1a2b3c4d5e6f*0.8`, so that
 * the numbers follow from those of the price.
 */
export function timesKeyFactor(price: Price, factor: bigint): Price {
  if (factor === NANO) return price
  return { ...multiplied(price, factor), version: `${price.version}${TIMES}${formatCredits(factor)}` }
}

/** Splits a version of `timesKeyFactor`. Undefined for any other. */
export function factorIn(version: string): { readonly of: string; readonly factor: bigint } | undefined {
  const [of = '', text] = version.split(TIMES)
  const factor = text === undefined ? undefined : factorFrom(text)
  return factor === undefined ? undefined : { of, factor }
}

/** Whether a price has a rate or a fee that cannot be multiplied exactly. */
export function isInexact(price: Price, factor: bigint): boolean {
  const numbers = [price, ...(price.tiers ?? [])].flatMap(rates => RATE_NAMES.map(name => rates[name] ?? 0n))
  return [...numbers, ...Object.values(price.calls)].some(number => (number * factor) % NANO !== 0n)
}

function multiplied(price: Price, factor: bigint): Price {
  const times = (number: bigint): bigint => (number * factor + NANO - 1n) / NANO
  const ratesOf = (rates: Rates): Rates =>
    Object.fromEntries(
      RATE_NAMES.flatMap(name => (rates[name] === undefined ? [] : [[name, times(rates[name])]])),
    ) as unknown as Rates
  return {
    ...price,
    ...ratesOf(price),
    tiers: price.tiers?.map(tier => ({ ...tier, ...ratesOf(tier) })),
    calls: Object.fromEntries(Object.entries(price.calls).map(([name, fee]) => [name as CallName, times(fee)])),
  }
}
