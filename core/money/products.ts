/** A charge as a list: each class of tokens and each fee with its count, its rate and what it comes to. */
import { type CallName, factorsOf, type PricedUsage, ratesAt, rateOf, type RATE_NAMES } from './price.ts'
import { inputTokens, type Usage } from './usage.ts'

/** One line of a charge. */
export interface Product {
  /** The class of tokens, or the name of a tool that the provider ran. */
  readonly name: (typeof RATE_NAMES)[number] | CallName
  readonly count: number
  /** Nano-credits: of a million tokens, or of one call. */
  readonly rate: bigint
  readonly per: 'million tokens' | 'call'
  /** What it comes to in credits: an exact decimal. Their sum is rounded up once, to a nano-credit. */
  readonly credits: string
}

/** Decimal places of a nano-credit, which a factor has as well, and of a million. */
const NANO_PLACES = 9
const MILLION_PLACES = 6

/** Returns the tokens that are charged at each rate. Parts of a class are not charged as the class. */
function charged(usage: Usage): Readonly<Record<(typeof RATE_NAMES)[number], number>> {
  const { audioInput = 0, imageInput = 0, audioOutput = 0, imageOutput = 0, rejected = 0, reasoning } = usage
  return {
    input: usage.input - audioInput - imageInput,
    cacheRead: usage.cacheRead,
    cacheWrite5m: usage.cacheWrite5m,
    cacheWrite1h: usage.cacheWrite1h,
    imageInput,
    audioInput,
    output: usage.output - reasoning - audioOutput - imageOutput - rejected,
    reasoning,
    rejected,
    audioOutput,
    imageOutput,
  }
}

/** Returns the lines of one part of a charge. Lines without a count are left out. */
export function productsOf({ usage, price, conditions = {} }: PricedUsage): Product[] {
  const rates = ratesAt(price, inputTokens(usage))
  const factors = factorsOf(price, conditions)
  const factor = factors.reduce((all, each) => all * each, 1n)
  const places = NANO_PLACES + MILLION_PLACES + NANO_PLACES * factors.length
  const tokens = Object.entries(charged(usage)) as [(typeof RATE_NAMES)[number], number][]
  const fees = Object.entries(conditions.calls ?? {}) as [CallName, number][]
  return [
    ...tokens.map(([name, count]): Product => {
      const rate = rateOf(rates, name)
      return { name, count, rate, per: 'million tokens', credits: decimal(BigInt(count) * rate * factor, places) }
    }),
    ...fees.map(([name, count]): Product => {
      const rate = price.calls[name] ?? 0n
      return { name, count, rate, per: 'call', credits: decimal(BigInt(count) * rate, NANO_PLACES) }
    }),
  ].filter(({ count }) => count > 0)
}

/** Writes a whole number of smallest units as a plain decimal, without trailing zeros. */
function decimal(units: bigint, places: number): string {
  const digits = String(units).padStart(places + 1, '0')
  const fraction = digits.slice(-places).replace(/0+$/, '')
  return `${digits.slice(0, -places)}${fraction === '' ? '' : `.${fraction}`}`
}
