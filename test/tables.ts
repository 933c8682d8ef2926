/** The tables of the documentation: reads them, and keeps those that are printed from the code. */
import { readFileSync, writeFileSync } from 'node:fs'
import type { Test } from 'tap'

/** Returns the rows of the table on a Markdown page with this first heading: the cells of each row, trimmed. */
export function rowsOf(page: string, heading: string): string[][] {
  const { lines, from, to } = placeOf(page, heading)
  return lines.slice(from, to).map(row =>
    row
      .split('|')
      .slice(1, -1)
      .map(cell => cell.trim()),
  )
}

/**
 * Fails unless the table of a page has these rows. `WRITE_TABLES=1 npm test -- FILE` writes them into the page instead.
 * @param file of the page
 * @param heading the first heading of the table
 */
export function keepsTable(t: Test, file: URL, heading: string, rows: readonly (readonly string[])[]): void {
  if (process.env['WRITE_TABLES'] !== undefined) writeTable(file, heading, rows)
  t.strictSame(rowsOf(readFileSync(file, 'utf8'), heading), rows, 'WRITE_TABLES=1 with this test writes the table')
}

/** Writes the rows of the table of a page. */
export function writeTable(file: URL, heading: string, rows: readonly (readonly string[])[]): void {
  const { lines, from, to } = placeOf(readFileSync(file, 'utf8'), heading)
  writeFileSync(file, lines.toSpliced(from, to - from, ...rows.map(row => `| ${row.join(' | ')} |`)).join('\n'))
}

/** Returns where the rows of a table are among the lines of its page. */
function placeOf(page: string, heading: string): { lines: string[]; from: number; to: number } {
  const lines = page.split('\n')
  const from = lines.findIndex(line => line.startsWith(`| ${heading} |`)) + 2
  if (from < 2) throw new Error(`the page has no table "${heading}"`)
  const length = lines.slice(from).findIndex(line => !line.startsWith('|'))
  return { lines, from, to: from + length }
}
