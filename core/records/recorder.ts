/**
 * Writes ended exchanges to the records: their rows, the totals of their accounts, and the sums of their days. Every
 * entry states the whole charge of its exchange, so that writing it again changes nothing, in whatever order entries
 * come.
 */
import { bytesOfId, timeOfId } from '../lib/ids.ts'
import { valueOf } from '../lib/value-of.ts'
import { Books, type Booking } from './bookings.ts'
import {
  type Database,
  RecordsError,
  type Row,
  selectIn,
  type Sql,
  type SqlValue,
  type Transaction,
} from './database.ts'
import { counting, type EndedEntry, type HistoryEntry, latestEndMs } from './entry.ts'
import { epochToRecord } from './migrations.ts'
import { type Numbered, Numbering } from './numbers.ts'
import { Months } from './months.ts'
import { moneyLine } from './money-line.ts'
import type { Names, NewNames } from './names.ts'
import { ENTRY_COLUMNS, entryOf, namesIn, rowOf } from './exchange-rows.ts'
import { DaySums, type Numbers } from './day-sums.ts'
import { writeTotals } from './totals.ts'
import { type RequestBatch, RequestSums, writeFailures } from './request-sums.ts'
import { addNotices } from './notices.ts'
import type { Watcher } from './watcher.ts'

/** A place in a shard's stream: the two parts of a stream id. */
export interface Position {
  readonly ms: number
  readonly seq: number
}

const INSERT_ROWS = `INSERT INTO exchanges (${ENTRY_COLUMNS.join(', ')})`
/** A later end replaces everything but the time of the first. */
const REPLACE_ROWS = `ON CONFLICT (id) DO UPDATE SET ${ENTRY_COLUMNS.filter(name => name !== 'id' && name !== 'ended')
  .map(name => `${name} = excluded.${name}`)
  .join(', ')}`

/** What is recorded beside the charges, which must not wait for it. */
type Extra = 'failures' | 'notices'

/** An extra could not be written. Charges are recorded without it. */
class ExtraUnwritten extends RecordsError {
  readonly extra: Extra

  constructor(extra: Extra, cause: unknown) {
    super(`the ${extra} cannot be recorded`, { cause })
    this.extra = extra
  }
}

/** Writes an extra, when everything before it has been written. @throws ExtraUnwritten if that fails */
async function writeExtra(sql: Transaction, extra: Extra, write: () => Promise<void> | void): Promise<void> {
  await written(sql)
  try {
    await write()
    await written(sql)
  } catch (cause) {
    throw new ExtraUnwritten(extra, cause)
  }
}

/** Resolves when all statements so far have run. @throws RecordsError if one failed */
async function written(sql: Sql): Promise<void> {
  await sql.all('SELECT 1 AS one')
}

/** What one transaction records. */
interface Batch {
  readonly entries: readonly EndedEntry[]
  readonly positions: ReadonlyMap<number, Position>
  readonly requests: RequestBatch
  readonly epoch: number | undefined
  /** What is left out. */
  readonly without: readonly Extra[]
}

/** What a transaction has found and made: new names, new partitions, and the numbers of accounts and keys. */
interface Written {
  readonly names: NewNames
  readonly months: readonly string[]
  readonly found: Numbered
}

/** Entries were read from a store before it lost something, and may not be in it any more. */
export class StaleEpoch extends Error {}

/** Returns the rows of the recorded exchanges among some, with ENTRY_COLUMNS. */
export function rowsWithIds(sql: Sql, ids: readonly string[]): Promise<Row[]> {
  return selectIn(sql, `SELECT ${ENTRY_COLUMNS.join(', ')} FROM exchanges WHERE id`, [...new Set(ids)].map(bytesOfId))
}

/** The row of an end that a later one replaces. @param next the booking of the later one, if it has one */
function replacedRow(account: number, entry: HistoryEntry, next: Booking | undefined): SqlValue[] {
  const { ordinal, id, charge, balance, plan } = entry
  // Without a booking of its own, the later end keeps the one of this.
  const booking = next && entry.booking
  return [
    account,
    ordinal,
    bytesOfId(id),
    charge,
    latestEndMs(entry),
    balance,
    booking?.number ?? null,
    booking?.at ?? null,
    plan?.covered ?? 0n,
  ]
}

/** Returns how an entry was booked, for its later end, whose ordinal is higher than its place in the statement. */
function bookedAs({ booking, balance }: HistoryEntry): Partial<HistoryEntry> {
  return { booking, balance, bookedLate: true }
}

/** Writes entries. */
export class Recorder {
  readonly #database: Database
  readonly #names: Names
  readonly #now: () => number
  readonly #numbers = new Numbering()
  readonly #months: Months
  /** The requests of this process that have ended, which are recorded with the next entries. */
  readonly requests = new RequestSums()
  /** Called in the transaction that records exchanges or a change of a plan. If it throws, they are recorded without its notices. */
  watcher: Watcher | undefined

  /** @param now milliseconds since the epoch */
  constructor(database: Database, names: Names, now: () => number) {
    this.#database = database
    this.#names = names
    this.#now = now
    this.#months = new Months(database.dialect)
  }

  /** Records the requests of this process that have ended, if there are any. @throws as `record` */
  async recordRequests(): Promise<void> {
    await this.requests.idle()
    if (!this.requests.isEmpty) await this.record([], new Map())
  }

  /**
   * Records entries, how far each shard's stream is recorded, and the requests of this process that have ended, in one
   * transaction.
   * @param entries in the order of their streams
   * @param epoch in which they were read from the store; undefined if they are not from one
   * @throws StaleEpoch if a later epoch has begun; NewerTables if a newer version of Tollgate records
   */
  async record(
    entries: readonly EndedEntry[],
    positions: ReadonlyMap<number, Position>,
    epoch?: number,
  ): Promise<void> {
    await this.requests.record(requests => this.#record({ entries, positions, requests, epoch, without: [] }))
  }

  async #record(batch: Batch): Promise<void> {
    let written: Written
    try {
      written = await this.#database.transaction(sql => this.#write(sql, batch))
    } catch (cause) {
      // Another process may have dropped a partition.
      this.#months.forget()
      if (!(cause instanceof ExtraUnwritten)) throw cause
      return this.#record({ ...batch, without: [...batch.without, cause.extra] })
    }
    written.names.kept()
    this.#months.created(written.months)
    this.#numbers.keep(written.found)
  }

  /**
   * Writes a batch in a transaction. It reads first and writes then, so that SQLite gets two messages as a rule.
   * @returns what may be remembered when the transaction is committed
   */
  async #write(sql: Transaction, batch: Batch): Promise<Written> {
    const { entries, positions, requests, epoch, without } = batch
    const [epochNow, read] = await Promise.allSettled([epochToRecord(sql), this.#read(sql, batch)])
    // A newer version may have changed what is read.
    const current = valueOf(epochNow)
    if (epoch !== undefined && current !== epoch)
      throw new StaleEpoch('the store has been restored meanwhile; its streams are read again')
    const { names, months, found, before, books, days } = valueOf(read)
    const numbers = numbersIn(found)
    const isShared = ({ account }: { readonly account: string }): boolean => books.isShared(numbers.account(account))
    const { last, replaced } = bookAll(entries, before, books, account => numbers.account(account))
    for (const sum of requests.sums.values()) days.addRequests(sum, isShared(sum))
    for (const [id, entry] of last) {
      const old = before.get(id)
      if (old) days.add({ ...old, account: entry.account, key: entry.key }, -1, isShared(entry))
      days.add(entry, 1, isShared(entry))
    }
    await days.read(sql)
    const rows = [...last.values()].map(entry => rowOf(entry, numbers, names))
    sql.putRows({ before: INSERT_ROWS, rows, after: REPLACE_ROWS })
    sql.putRows({
      before: 'INSERT INTO replaced (account, ordinal, id, charge, ended, balance, booking, booked, covered)',
      rows: replaced,
      after: 'ON CONFLICT (account, ordinal) DO NOTHING',
    })
    writeTotals(sql, { entries, last, before, sums: [...requests.sums.values()], books }, numbers)
    days.write(sql)
    putPositions(sql, positions)
    const fresh = [...last.values()].filter(({ id }) => !before.has(id))
    // The watcher reports its failures itself.
    const notices =
      last.size > 0 ? await this.watcher?.({ entries: fresh, spending: books.spending, plans: [] }).catch(() => []) : []
    if (requests.failures.length + requests.alike.size > 0 && !without.includes('failures'))
      await writeExtra(sql, 'failures', () => writeFailures(sql, requests, of => numbers.key(of)))
    if (notices && notices.length > 0 && !without.includes('notices'))
      await writeExtra(sql, 'notices', () => addNotices(sql, notices))
    return { names, months, found }
  }

  /** Reads what is known of the exchanges and the sums of a batch. */
  async #read(sql: Sql, { entries, requests }: Batch) {
    const sums = [...requests.sums.values()]
    const names = await this.#names.ensure(sql, [
      '',
      ...entries.flatMap(({ notes }) => [...namesIn(notes), notes.status ?? '']),
      ...sums.flatMap(({ type, model, upstream, status, code }) => [type, model, upstream, status, code]),
    ])
    const months = await this.#months.ensure(
      sql,
      entries.map(({ id }) => timeOfId(id)),
    )
    const found = await this.#numbers.of(sql, [...entries, ...sums])
    const numbers = numbersIn(found)
    const days = new DaySums(names, numbers)
    const accounts = new Set([...entries, ...sums].map(({ account }) => numbers.account(account)))
    const [before, books] = await Promise.all([
      this.#known(sql, entries),
      Books.open(sql, accounts, this.#now()),
      days.read(sql, entries, sums),
    ])
    return { names, months, found, before, books, days }
  }

  /** Forgets what was read from the database: it lacks some of it now. */
  forget(): void {
    this.#numbers.forget()
    this.#months.forget()
  }

  /** Returns the entries that are recorded already, by id. */
  async #known(sql: Sql, entries: readonly EndedEntry[]): Promise<Map<string, HistoryEntry>> {
    const rows = await rowsWithIds(
      sql,
      entries.map(({ id }) => id),
    )
    if (rows.length > 0) await this.#names.load(sql)
    return new Map(rows.map(row => entryOf(row, this.#names)).map(entry => [entry.id, entry]))
  }
}

function numbersIn({ accounts, keys }: Numbered): Numbers {
  const account = (id: string): number => accounts.get(id) ?? 0
  return { account, key: of => keys.get(of.key ?? '') ?? account(of.account) }
}

/**
 * Books what entries charge.
 * @param before what is recorded of their exchanges
 * @returns the last end of each exchange, by id, and rows for the ends that it replaces
 */
function bookAll(
  entries: readonly EndedEntry[],
  before: ReadonlyMap<string, HistoryEntry>,
  books: Books,
  number: (account: string) => number,
): { readonly last: Map<string, EndedEntry>; readonly replaced: SqlValue[][] } {
  const last = new Map<string, EndedEntry>()
  const replaced: SqlValue[][] = []
  for (const entry of entries) {
    const known = last.get(entry.id) ?? before.get(entry.id)
    const counts = counting(entry, known)
    if (!counts) continue
    const account = number(entry.account)
    const [now, then] = [moneyLine(counts), known && moneyLine(known)]
    const added = { credits: now.credits - (then?.credits ?? 0n), plan: now.plan - (then?.plan ?? 0n) }
    const { booking, balance, isLate } = books.book(account, entry.ordinal, added)
    const booked = { ...counts, balance, booking, bookedLate: booking !== undefined && isLate }
    if (!known) {
      last.set(entry.id, booked)
      continue
    }
    replaced.push(replacedRow(account, known, booking))
    // The first end determines the time.
    const again = { ...booked, at: known.at, againMs: Math.max(0, entry.at - known.at) }
    // An end that charges nothing more is booked already.
    const isBooked = booking === undefined && known.booking !== undefined
    last.set(entry.id, isBooked ? { ...again, ...bookedAs(known) } : again)
  }
  return { last, replaced }
}

/** Writes how far the streams of the shards are recorded. */
function putPositions(sql: Transaction, positions: ReadonlyMap<number, Position>): void {
  sql.putRows({
    before: 'INSERT INTO positions (shard, ms, seq)',
    rows: [...positions].sort(([a], [b]) => a - b).map(([shard, { ms, seq }]) => [shard, ms, seq]),
    after: `ON CONFLICT (shard) DO UPDATE SET ms = excluded.ms, seq = excluded.seq
     WHERE excluded.ms > positions.ms OR (excluded.ms = positions.ms AND excluded.seq > positions.seq)`,
  })
}
