/** Pages of a history, newest first: by `cursor`, which new entries do not disturb, or by `page` and `size`. */
import { GatewayError } from '../errors.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { turn } from '../lib/turns.ts'
import { type HistoryEntry, STATUSES } from '../records/entry.ts'
import { pricedEntry, shownEntry } from './entry-view.ts'

/** Default and maximum number of entries per page. */
const PAGE_ENTRIES = 50
const PAGE_ENTRIES_MAX = 500
/** Maximum entries that one request scans for its filters. If there are more, it returns a cursor. */
const FILTERED_MAX = 2000
/** Maximum entries to skip for numbered pages. Beyond that, use a cursor. */
const SKIPPED_MAX = 2000
/** Entries per read of the store. Other work gets its turn between two reads. */
const READ_AT_ONCE = 50
const PRICED_AT_ONCE = 25

const CURSOR = /^\d{1,15}$/

/** What a page has: how many entries, from where on, and which. */
export interface HistoryWish {
  readonly size: number
  readonly page: number
  /** The ordinal of the last entry of the page before. */
  readonly cursor: number | undefined
  /** Milliseconds since the epoch. */
  readonly from: number | undefined
  readonly to: number | undefined
  matches(entry: HistoryEntry): boolean
  readonly filtered: boolean
}

/** A page of a history. */
export interface HistoryPage {
  readonly entries: readonly HistoryEntry[]
  /** Undefined if there are no more. */
  readonly next: string | undefined
}

/** Reads entries, newest first. */
export type ReadEntries = (range: {
  readonly before: number | undefined
  readonly from: number | undefined
  readonly to: number | undefined
  readonly count: number
}) => Promise<HistoryEntry[]>

/**
 * Returns the entries of a page.
 * @param owner whose long work it is
 */
export async function historyPage(read: ReadEntries, owner: string, wish: HistoryWish): Promise<HistoryPage> {
  const { from, to } = wish
  const skip = (wish.page - 1) * wish.size
  let before = wish.cursor
  const found: HistoryEntry[] = []
  const wanted = skip + wish.size
  const most = wish.filtered ? FILTERED_MAX : wanted + 1
  for (let looked = 0; looked < most;) {
    const count = Math.min(READ_AT_ONCE, most - looked)
    const entries = await read({ before, from, to, count })
    for (const entry of entries) {
      if (!wish.matches(entry)) continue
      if (found.length === wanted) return { entries: found.slice(skip), next: String(found.at(-1)?.ordinal) }
      found.push(entry)
    }
    looked += entries.length
    await turn(owner)
    if (entries.length < count) return { entries: found.slice(skip), next: undefined }
    before = entries.at(-1)?.ordinal
  }
  return { entries: found.slice(skip), next: String(before) }
}

/** Returns entries as customers see them, with the unit prices of their charges. @throws GatewayError unavailable */
export async function pricedEntries(
  ledger: Ledger,
  owner: string,
  entries: readonly HistoryEntry[],
): Promise<Record<string, unknown>[]> {
  const rows: Record<string, unknown>[] = []
  for (let at = 0; at < entries.length; at += PRICED_AT_ONCE) {
    if (at > 0) await turn(owner)
    rows.push(
      ...(await Promise.all(entries.slice(at, at + PRICED_AT_ONCE).map(entry => pricedEntry(entry, ledger.prices)))),
    )
  }
  return rows
}

/** Reads what a query asks for. @throws GatewayError bad_request */
export function historyWish(query: URLSearchParams): HistoryWish {
  const of = (...names: string[]): string | undefined =>
    names.map(name => query.get(name)).find(value => value !== null && value !== '') ?? undefined
  const size = whole(of('page_size', 'size', 'limit'), PAGE_ENTRIES, 'page_size', PAGE_ENTRIES_MAX)
  const page = whole(of('page', 'p'), 1, 'page', Number.MAX_SAFE_INTEGER)
  const cursor = of('cursor')
  if (cursor !== undefined && !CURSOR.test(cursor))
    throw invalid('cursor', '"cursor" must be the next_cursor of an earlier answer.')
  if (cursor !== undefined && page > 1) throw invalid('page', 'Send either "cursor" or "page".')
  if ((page - 1) * size > SKIPPED_MAX)
    throw invalid('page', `Pages end at entry ${SKIPPED_MAX}. Continue with "cursor".`)
  const filters = {
    model: of('model'),
    status: oneOf(STATUSES, of('status'), 'status'),
    endpoint: of('endpoint'),
    stream: oneOf(['true', 'false'], of('stream'), 'stream'),
    request_id: of('request_id'),
  }
  const wanted = Object.entries(filters).filter((filter): filter is [string, string] => filter[1] !== undefined)
  return {
    size,
    page,
    cursor: cursor === undefined ? undefined : Number(cursor),
    from: time(of('from', 'start'), 'from', false),
    to: time(of('to', 'end'), 'to', true),
    filtered: wanted.length > 0,
    matches(entry) {
      if (wanted.length === 0) return true
      const shown = shownEntry(entry)
      return wanted.every(
        ([name, value]) => String(shown[name]) === value || (name === 'model' && shown['requested_model'] === value),
      )
    },
  }
}

function oneOf(words: readonly string[], text: string | undefined, name: string): string | undefined {
  if (text === undefined || words.includes(text)) return text
  throw invalid(name, `"${name}" must be one of ${words.join(', ')}.`)
}

function whole(text: string | undefined, standard: number, name: string, most: number): number {
  if (text === undefined) return standard
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1 || value > most)
    throw invalid(name, `"${name}" must be a whole number from 1 to ${most}.`)
  return value
}

/** Parses ISO 8601, or seconds or milliseconds since the epoch. A bare date as an end includes that day. */
function time(text: string | undefined, name: string, end: boolean): number | undefined {
  if (text === undefined) return undefined
  const number = Number(text)
  const since = number < 1e11 ? number * 1000 : number
  const ms = Number.isFinite(number) ? since : Date.parse(text)
  if (!Number.isSafeInteger(Math.floor(ms)) || ms < 0)
    throw invalid(name, `"${name}" must be a time such as 2026-01-31 or 2026-01-31T12:00:00Z.`)
  return Math.floor(ms) + (end && /^\d{4}-\d{2}-\d{2}$/.test(text) ? 86_400_000 - 1 : 0)
}

function invalid(param: string, message: string): GatewayError {
  return new GatewayError('bad_request', { param, message })
}
