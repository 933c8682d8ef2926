/** The totals of accounts, and of the keys of shared ones: what recorded entries and counted requests change in them. */
import type { Books } from './bookings.ts'
import { type Transaction } from './database.ts'
import type { Numbers } from './day-sums.ts'
import type { EndedEntry, HistoryEntry } from './entry.ts'
import { counted } from './money-line.ts'
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

/** The columns of a key's totals. */
const OF_KEY = ['settled', 'requests', 'input', 'output', 'quarantined'] as const
const INSERT_KEYS = `INSERT INTO key_totals (account, key, ${OF_KEY.join(', ')})`
const ADD_KEYS = `ON CONFLICT (account, key) DO UPDATE SET ${OF_KEY.map(
  name => `${name} = key_totals.${name} + excluded.${name}`,
).join(', ')}`

/** What changes in the totals of an account or of a key. */
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

/** Writes what changes in the totals. */
export function writeTotals(
  sql: Transaction,
  { entries, last, before, sums, books }: RecordedBatch,
  numbers: Numbers,
): void {
  const changes = new Map<number, Change>()
  const ofKeys = new Map<string, Change>()
  const of = (account: string): Change => changeIn(changes, numbers.account(account))
  /** The changes of an account, and of a key that shares it. */
  const all = (spender: { readonly account: string; readonly key?: string | undefined }): readonly Change[] => {
    const no = numbers.account(spender.account)
    if (!books.isShared(no)) return [of(spender.account)]
    return [of(spender.account), changeIn(ofKeys, `${no} ${numbers.key(spender)}`)]
  }
  for (const { account, ordinal, at } of entries) {
    const change = of(account)
    change.ordinal = Math.max(change.ordinal, ordinal)
    change.changed = Math.max(change.changed, at)
  }
  for (const [id, entry] of last) {
    const old = before.get(id)
    for (const change of all(entry)) {
      if (old) add(change, old, -1)
      add(change, entry, 1)
    }
  }
  for (const sum of sums) for (const change of all(sum)) change.requests += sum.requests
  const rows = [...changes]
    .sort(([a], [b]) => a - b)
    .map(([no, change]) => [
      no,
      0,
      ...SUMMED.map(name => (name === 'booked' ? books.added(no) : change[name])),
      ...HIGHEST.map(name => change[name]),
    ])
  sql.putRows({ before: INSERT, rows, after: ADD })
  const rowsOfKeys = [...ofKeys].map(([key, change]) => [
    ...key.split(' ').map(Number),
    ...OF_KEY.map(name => change[name]),
  ])
  sql.putRows({ before: INSERT_KEYS, rows: rowsOfKeys, after: ADD_KEYS })
}

function changeIn<K>(changes: Map<K, Change>, key: K): Change {
  let change = changes.get(key)
  if (!change) changes.set(key, (change = noChange()))
  return change
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
