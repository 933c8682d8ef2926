/** Comma-separated values, as spreadsheets read them. */

/** Returns one line, without its end. */
export function csvLine(values: readonly (string | number | null | undefined)[]): string {
  return values.map(value => field(value ?? '')).join(',')
}

/**
 * Signs with which a formula begins, and their wide forms: at the beginning, and behind the separators of spreadsheets in
 * other countries. Blanks before them are skipped.
 */
const FORMULA = /(^|[;\t])(?=[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20])/g
const DECIMAL = /^-?\d+(?:\.\d+)?$/

/** A text is always quoted. A spreadsheet would run one that looks like a formula, so an apostrophe comes before it. */
function field(value: string | number): string {
  if (typeof value === 'number' || value === '' || DECIMAL.test(value)) return String(value)
  return `"${value.replaceAll(FORMULA, "$1'").replaceAll('"', '""')}"`
}
