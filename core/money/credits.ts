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
