/** Returns the rows of the table on a Markdown page with this first heading: the cells of each row, trimmed. */
export function rowsOf(page: string, heading: string): string[][] {
  const lines = page.split('\n')
  const start = lines.findIndex(line => line.startsWith(`| ${heading} |`))
  const rows = lines.slice(start + 2)
  return rows
    .slice(
      0,
      rows.findIndex(line => !line.startsWith('|')),
    )
    .map(row =>
      row
        .split('|')
        .slice(1, -1)
        .map(cell => cell.trim()),
    )
}
