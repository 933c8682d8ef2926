/** Durations as texts, such as `500ms`, `15s`, `10m`, `24h` and `30d`. */

/** Milliseconds of the units. */
export const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Reads a duration, in milliseconds. NaN for any other text. */
export function duration(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text) ?? []
  return digits === '' ? Number.NaN : Number(digits) * (UNITS_MS[unit] ?? Number.NaN)
}
