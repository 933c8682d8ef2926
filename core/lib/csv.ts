/** Comma-separated values, as spreadsheets read them. */

/** Returns one line, without its end. */
export function csvLine(values: readonly (string | number | null | undefined)[]): string {
  return values.map(value => field(value ?? '')).join(',')
}

function field(value: string | number): string {
  // A spreadsheet would run a text that looks like a formula.
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
