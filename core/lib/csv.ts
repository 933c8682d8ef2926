/** Comma-separated values, as spreadsheets read them. */

/** Returns one line, without its end. */
export function csvLine(values: readonly (string | number | null | undefined)[]): string {
  return values.map(value => field(value ?? '')).join(',')
}

/** Spreadsheets skip what is blank, and take wide forms of the signs as well. */
const FORMULA = /^[\s\0]*[=+\-@\uff1d\uff0b\uff0d\uff20]/
const DECIMAL = /^-?\d+(?:\.\d+)?$/

function field(value: string | number): string {
  // A spreadsheet would run a text that looks like a formula.
  const text = typeof value === 'string' && FORMULA.test(value) && !DECIMAL.test(value) ? `'${value}` : String(value)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
