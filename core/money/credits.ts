/**
 * Exact amounts. A credit is 10^9 nano-credits. All arithmetic uses BigInt; a charge is rounded once, up, by less than
 * one nano-credit. No amount is ever held in a floating-point number.
 */

/** Nano-credits in one credit. */
export const NANO = 1_000_000_000n

/** The largest amount, 10^15 - 1 nano-credits: the scripts refuse more than 15 digits. */
export const MAX_AMOUNT = 999_999_999_999_999n

const DECIMAL = /^(\d{1,9})(?:\.(\d{1,9}))?$/

/**
 * Reads a plain decimal such as `15` or `0.30`, exactly.
 * @returns nano-units; undefined if the text is not a plain decimal with at most nine digits before and after the point
 */
export function parseDecimal(text: string): bigint | undefined {
  const match = DECIMAL.exec(text)
  if (!match) return undefined
  return BigInt(match[1] ?? '0') * NANO + BigInt((match[2] ?? '').padEnd(9, '0'))
}

/** Writes an amount as a plain decimal of credits without trailing zeros: `1500000000n` becomes `1.5`. */
export function formatCredits(nano: bigint): string {
  const sign = nano < 0n ? '-' : ''
  const digits = (nano < 0n ? -nano : nano).toString().padStart(10, '0')
  const fraction = digits.slice(-9).replace(/0+$/, '')
  return `${sign}${digits.slice(0, -9)}${fraction ? `.${fraction}` : ''}`
}
