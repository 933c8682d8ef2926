/** Numbers as tools read them. */

/** Rounds to a millionth, so that sums of binary fractions do not show. */
export function rounded(amount: number): number {
  return Math.round(amount * 1e6) / 1e6
}

/** A plain decimal with two places. Parsers refuse signs of currencies and exponents. */
export function plain(amount: number): string {
  return Math.max(0, amount).toFixed(2)
}
