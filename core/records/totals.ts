/** The totals of accounts: what recorded entries and counted requests change in them. */
import type { Books } from './bookings.ts'
import { type Transaction } from './database.ts'
import { counted, type EndedEntry, type HistoryEntry } from './entry.ts'
import type { RequestSum } from './request-sums.ts'

/** Columns that are added up, and columns of which the highest value stays. */
const SUMMED = ['settled', 'entries', 'requests', 'input', 'output', 'quarantined', 'booked'] as const
const HIGHEST = ['ordinal', 'changed'] as const

const INSERT = `INSERT INTO totals (account, folded, ${[...SUMMED, ...HIGHEST].join(', ')})`
const ADD = `ON CONFLICT (account) DO UPDATE SET ${[
  ...SUMMED.map(name => `${name} = totals.${name} + excluded.${name}`),
  ...HIGHEST.map(
    name => `${name} = CASE WHEN excluded.${name} > totals.${name} THEN excluded.${name} ELSE totals.${name} END`,
  ),
].join(', ')}`

/** What changes in the totals of an account. */
type Change = Record<Exclude<(typeof SUMMED)[number], 'settled'> | (typeof HIGHEST)[number], number> & {
  settled: bigint
}

/** What a transaction records. */
export interface RecordedBatch {
  readonly entries: readonly EndedEntry[]
  /** The entries as they count, by id, and those that they replace. */
  readonly last: ReadonlyMap<string, EndedEntry>
  readonly before: ReadonlyMap<string, HistoryEntry>
  readonly sums: readonly RequestSum[]
  readonly books: Books
}

/** Writes what changes in the totals of accounts. @param number returns the number of an account */
export function writeTotals(
  sql: Transaction,
  { entries, last, before, sums, books }: RecordedBatch,
  number: (account: string) => number,
): void {
  const changes = new Map<number, Change>()
  const of = (account: string): Change => {
    const no = number(account)
    let change = changes.get(no)
    if (!change) changes.set(no, (change = noChange()))
    return change
  }
  for (const { account, ordinal, at } of entries) {
    const change = of(account)
    change.ordinal = Math.max(change.ordinal, ordinal)
    change.changed = Math.max(change.changed, at)
  }
  for (const [id, entry] of last) {
    const change = of(entry.account)
    const old = before.get(id)
    if (old) add(change, old, -1)
    add(change, entry, 1)
  }
  for (const { account, requests } of sums) of(account).requests += requests
  const rows = [...changes]
    .sort(([a], [b]) => a - b)
    .map(([no, change]) => [
      no,
      0,
      ...SUMMED.map(name => (name === 'booked' ? books.added(no) : change[name])),
      ...HIGHEST.map(name => change[name]),
    ])
  sql.putRows({ before: INSERT, rows, after: ADD })
}

function add(change: Change, entry: HistoryEntry, sign: 1 | -1): void {
  const count = counted(entry)
  change.settled += BigInt(sign) * entry.charge
  change.entries += sign
  change.input += sign * count.input
  change.output += sign * count.output
  change.quarantined += entry.notes.quarantined ? sign : 0
}

function noChange(): Change {
  return {
    ordinal: 0,
    settled: 0n,
    entries: 0,
    requests: 0,
    input: 0,
    output: 0,
    quarantined: 0,
    changed: 0,
    booked: 0,
  }
}
