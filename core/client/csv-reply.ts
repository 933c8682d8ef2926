/** Long lists as comma-separated values. */
import { csvLine } from '../lib/csv.ts'
import { StreamedReply } from './streamed-reply.ts'

/** A page of a list, by column. */
export interface ListPage {
  readonly data: readonly Readonly<Record<string, unknown>>[]
  /** The cursor of the next page. Undefined after the last page. */
  readonly next: string | undefined
}

/**
 * Sends a whole list, one page at a time.
 * @param name of the file
 * @param page reads a page; the first one without a cursor. What it throws before the first page is the answer
 */
export async function csvReply(
  name: string,
  columns: readonly string[],
  page: (cursor: string | undefined) => Promise<ListPage>,
): Promise<StreamedReply> {
  const first = await page(undefined)
  async function* lines(): AsyncGenerator<string> {
    // The mark tells spreadsheets that the text is UTF-8.
    yield `\ufeff${csvLine(columns)}\n`
    for (let at: ListPage | undefined = first; at; at = at.next === undefined ? undefined : await page(at.next))
      yield at.data.map(row => `${csvLine(columns.map(column => cell(row[column])))}\n`).join('')
  }
  return new StreamedReply(lines(), {
    'cache-control': 'no-store',
    'content-type': 'text/csv; charset=utf-8',
    'content-disposition': `attachment; filename="${name}.csv"`,
  })
}

function cell(value: unknown): string | number | null {
  if (typeof value === 'string' || typeof value === 'number') return value
  return value === null || value === undefined ? null : JSON.stringify(value)
}
