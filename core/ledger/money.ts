/**
 * Exact money. A credit is 10^9 nano-credits; all arithmetic is in BigInt, and a request is rounded once, up, by less
 * than one nano-credit. Nothing here or downstream of it ever holds an amount in a float.
 */

/** Nano-credits in one credit. */
export const NANO = 1_000_000_000n

/** No amount is larger than this (10^15 - 1 nano): the scripts refuse more than 15 digits. */
export const MAX_AMOUNT = 999_999_999_999_999n

const DECIMAL = /^(\d{1,9})(?:\.(\d{1,9}))?$/

/**
 * Reads a plain decimal (`15`, `0.30`) as nano-units, exactly.
 * @returns undefined when the text is no plain decimal with at most nine digits on either side
 */
export function parseDecimal(text: string): bigint | undefined {
  const match = DECIMAL.exec(text)
  if (!match) return undefined
  return BigInt(match[1] ?? '0') * NANO + BigInt((match[2] ?? '').padEnd(9, '0'))
}

/** Writes nano-credits as a plain decimal of credits without trailing zeros: `1500000000n` is `1.5`. */
export function formatCredits(nano: bigint): string {
  const sign = nano < 0n ? '-' : ''
  const digits = (nano < 0n ? -nano : nano).toString().padStart(10, '0')
  const fraction = digits.slice(-9).replace(/0+$/, '')
  return `${sign}${digits.slice(0, -9)}${fraction ? `.${fraction}` : ''}`
}

/** Tokens by class, in the one normal form of all wire formats. `reasoning` is a part of `output`. */
export interface Usage {
  /** Input tokens that were neither read from nor written to a prompt cache. */
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite5m: number
  readonly cacheWrite1h: number
  /** All output tokens, reasoning included. */
  readonly output: number
  readonly reasoning: number
}

/** No tokens at all. */
export const NO_USAGE: Usage = { input: 0, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 0, reasoning: 0 }

/** All input tokens of a usage, cached or not. */
export function inputTokens(usage: Usage): number {
  return usage.input + usage.cacheRead + usage.cacheWrite5m + usage.cacheWrite1h
}

/** Credits per million tokens by class, in nano-credits per million tokens; a class without a price of its own falls back. */
export interface Price {
  readonly input: bigint
  readonly output: bigint
  /** Defaults to `input`. */
  readonly cacheRead: bigint
  /** Defaults to `input`. */
  readonly cacheWrite5m: bigint
  /** Defaults to `cacheWrite5m`. */
  readonly cacheWrite1h: bigint
  /** Defaults to `output`. */
  readonly reasoning: bigint
}

const PER = 1_000_000n

/** How many whole tokens an amount pays for, at a price for a million; Infinity when they are free. */
export function tokensFor(nano: bigint, price: bigint): number {
  if (price === 0n) return Infinity
  return nano <= 0n ? 0 : Number((nano * PER) / price)
}

/**
 * What a usage costs: the sum over classes, rounded up once to a whole nano-credit and capped at MAX_AMOUNT.
 * @throws RangeError when a count is no whole number of tokens: usage is checked before it is priced
 */
export function charge(usage: Usage, price: Price): bigint {
  const exact =
    times(usage.input, price.input) +
    times(usage.cacheRead, price.cacheRead) +
    times(usage.cacheWrite5m, price.cacheWrite5m) +
    times(usage.cacheWrite1h, price.cacheWrite1h) +
    times(usage.output - usage.reasoning, price.output) +
    times(usage.reasoning, price.reasoning)
  const nano = (exact + PER - 1n) / PER
  return nano > MAX_AMOUNT ? MAX_AMOUNT : nano
}

/** Most classes are empty, and a number is turned into a BigInt at some cost. */
function times(tokens: number, price: bigint): bigint {
  return tokens === 0 ? 0n : BigInt(tokens) * price
}
