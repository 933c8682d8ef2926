/**
 * The sums of each day, by account and by model, and those of an account's models: in total, and of each day. Requests are
 * counted as they end, by request-sums.ts; what was used and charged is added up from the entries.
 */
import { bigintOf, padded, type Row, type Sql, type SqlValue, type Transaction } from './database.ts'
import { counted, countedDay, isBilled, type HistoryEntry } from './entry.ts'
import { addTo, bucketOf, type Histogram, packHistogram, unpackHistogram } from './histogram.ts'
import type { NewNames } from './names.ts'
import type { RequestSum } from './request-sums.ts'

/** The numbers of a day, in the order of their columns. */
export const COUNTERS = [
  'requests',
  'billed',
  'errors',
  'refused',
  'input',
  'cache_read',
  'cache_write',
  'output',
  'reasoning',
  'charge',
  'cost',
] as const

/** The numbers of a day by name, and its histograms. */
export interface DayCount {
  readonly counts: Record<(typeof COUNTERS)[number], bigint>
  readonly durations: Histogram
  readonly firstBytes: Histogram
}

const NONE = Object.fromEntries(COUNTERS.map(name => [name, 0n])) as DayCount['counts']

/** Returns sums without anything. */
export function noCount(): DayCount {
  return {
    counts: { ...NONE },
    durations: new Map(),
    firstBytes: new Map(),
  }
}

/** Adds the row of a day. */
export function addRow(sum: DayCount, row: Row): void {
  for (const name of COUNTERS) sum.counts[name] += bigintOf(row, name)
  addTo(sum.durations, unpackHistogram(row['durations'] as Uint8Array))
  addTo(sum.firstBytes, unpackHistogram(row['first_bytes'] as Uint8Array))
}

/** Rows that one statement finds by their keys. */
const ROWS_AT_ONCE = 128
const COLUMNS = [...COUNTERS, 'durations', 'first_bytes']

/** What changes in a table of sums. Rows are known by the numbers of their keys. */
class Table {
  readonly #name: string
  readonly #keys: readonly string[]
  readonly #added = new Map<string, DayCount>()
  /** The stored sums that were read. Keys without a row have empty ones. */
  readonly #stored = new Map<string, DayCount>()

  constructor(name: string, keys: readonly string[]) {
    this.#name = name
    this.#keys = keys
  }

  /** Returns what is added to a row. */
  of(keys: readonly number[]): DayCount {
    const key = keys.join(' ')
    let sum = this.#added.get(key)
    if (!sum) this.#added.set(key, (sum = noCount()))
    return sum
  }

  /** Reads the stored sums of what was added, and of further keys, unless they are known. */
  async read(sql: Sql, further: readonly (readonly number[])[]): Promise<void> {
    const wanted = new Set([...this.#added.keys(), ...further.map(keys => keys.join(' '))])
    const missing = [...wanted].filter(key => !this.#stored.has(key))
    for (const key of missing) this.#stored.set(key, noCount())
    const one = `(${this.#keys.map(name => `${name} = ?`).join(' AND ')})`
    for (let at = 0; at < missing.length; at += ROWS_AT_ONCE) {
      const part = padded(missing.slice(at, at + ROWS_AT_ONCE))
      const rows = await sql.all(
        `SELECT * FROM ${this.#name} WHERE ${Array(part.length).fill(one).join(' OR ')}`,
        part.flatMap(key => key.split(' ').map(Number)),
      )
      for (const row of rows)
        addRow(this.#stored.get(this.#keys.map(name => String(row[name])).join(' ')) ?? noCount(), row)
    }
  }

  /** Writes the stored sums with what was added to them. */
  write(sql: Transaction): void {
    const rows = [...this.#added].map(([key, added]): SqlValue[] => {
      const sum = this.#stored.get(key) ?? noCount()
      for (const name of COUNTERS) sum.counts[name] += added.counts[name]
      addTo(sum.durations, added.durations)
      addTo(sum.firstBytes, added.firstBytes)
      return [
        ...key.split(' ').map(Number),
        ...COUNTERS.map(name => sum.counts[name]),
        packHistogram(sum.durations),
        packHistogram(sum.firstBytes),
      ]
    })
    sql.putRows({
      before: `INSERT INTO ${this.#name} (${[...this.#keys, ...COLUMNS].join(', ')})`,
      rows,
      after: `ON CONFLICT (${this.#keys.join(', ')}) DO UPDATE SET ${COLUMNS.map(name => `${name} = excluded.${name}`).join(', ')}`,
    })
  }
}

/** An entry with its account. */
type Entry = HistoryEntry & { readonly account: string }

/** Collects what entries change in the sums. */
export class DaySums {
  readonly #names: Pick<NewNames, 'numberOf'>
  readonly #number: (account: string) => number
  readonly #accounts = new Table('day_accounts', ['day', 'account'])
  readonly #days = new Table('day_models', ['day', 'model', 'type', 'upstream', 'status', 'code'])
  /** By account and model, and by account, day and model. */
  readonly #models = new Map<string, ModelCount>()
  readonly #dayModels = new Map<string, ModelCount>()

  constructor(names: Pick<NewNames, 'numberOf'>, number: (account: string) => number) {
    this.#names = names
    this.#number = number
  }

  /** Adds an entry, or takes away one that is replaced. */
  add(entry: Entry, sign: 1 | -1): void {
    const { byAccount, byModel, account, day, model } = this.#keysOf(entry)
    addEntry(this.#accounts.of(byAccount), entry, sign)
    addEntry(this.#days.of(byModel), entry, sign)
    const count = { ...counted(entry), requests: 0 }
    addCount(this.#models, `${account} ${model}`, count, sign)
    addCount(this.#dayModels, `${account} ${day} ${model}`, count, sign)
  }

  #keysOf(entry: Entry) {
    const { notes } = entry
    const day = countedDay(entry)
    const account = this.#number(entry.account)
    const no = (name = ''): number => this.#names.numberOf(name)
    const model = no(notes.model)
    const byModel = [day, model, no(notes.type), no(notes.upstream), no(notes.status), no(notes.errorCode)]
    return { byAccount: [day, account], byModel, account, day, model }
  }

  /** Adds requests that have ended. */
  addRequests(sum: RequestSum): void {
    const { day, requests, errors, refused } = sum
    const account = this.#number(sum.account)
    const model = this.#names.numberOf(sum.model)
    const others = [sum.type, sum.upstream, sum.status, sum.code].map(name => this.#names.numberOf(name))
    for (const { counts } of [this.#accounts.of([day, account]), this.#days.of([day, model, ...others])]) {
      counts.requests += BigInt(requests)
      counts.errors += BigInt(errors)
      counts.refused += BigInt(refused)
    }
    // A request that was refused before its model was known has none.
    if (sum.model === '') return
    const count = { requests, input: 0, output: 0, charge: 0n }
    addCount(this.#models, `${account} ${model}`, count, 1)
    addCount(this.#dayModels, `${account} ${day} ${model}`, count, 1)
  }

  /** Reads the stored sums of what was added, and of entries that will be. The transaction must be the only one. */
  async read(sql: Sql, entries: readonly Entry[] = []): Promise<void> {
    const keys = entries.map(entry => this.#keysOf(entry))
    await Promise.all([
      this.#accounts.read(
        sql,
        keys.map(({ byAccount }) => byAccount),
      ),
      this.#days.read(
        sql,
        keys.map(({ byModel }) => byModel),
      ),
    ])
  }

  /** Adds what was collected to the sums that were read. */
  write(sql: Transaction): void {
    this.#accounts.write(sql)
    this.#days.write(sql)
    putModels(sql, 'account_models', 'account, model', this.#models)
    putModels(sql, 'day_account_models', 'account, day, model', this.#dayModels)
  }
}

/** Adds an entry to a sum, or takes it away. */
function addEntry(sum: DayCount, entry: HistoryEntry, sign: 1 | -1): void {
  const { charge, notes } = entry
  const { usage } = notes
  const values = [
    0,
    isBilled(entry) ? 1 : 0,
    0,
    0,
    usage?.input ?? 0,
    usage?.cacheRead ?? 0,
    usage ? usage.cacheWrite5m + usage.cacheWrite1h : 0,
    usage?.output ?? 0,
    usage?.reasoning ?? 0,
    charge,
    notes.cost ?? 0,
  ]
  COUNTERS.forEach((name, at) => {
    const value = values[at] ?? 0
    if (value !== 0) sum.counts[name] += BigInt(sign) * BigInt(value)
  })
  const times = (histogram: Histogram, ms: number | undefined): void => {
    if (ms === undefined) return
    const bucket = bucketOf(ms)
    // While it is collected, a count may be below zero: the stored one is added to it.
    histogram.set(bucket, (histogram.get(bucket) ?? 0) + sign)
  }
  times(sum.durations, notes.durationMs)
  times(sum.firstBytes, notes.ttftMs)
}

interface ModelCount {
  requests: number
  input: number
  output: number
  charge: bigint
}

function addCount(sums: Map<string, ModelCount>, key: string, count: Readonly<ModelCount>, sign: 1 | -1): void {
  let sum = sums.get(key)
  if (!sum) sums.set(key, (sum = { requests: 0, input: 0, output: 0, charge: 0n }))
  sum.requests += sign * count.requests
  sum.input += sign * count.input
  sum.output += sign * count.output
  sum.charge += BigInt(sign) * count.charge
}

function putModels(
  sql: Transaction,
  table: string,
  keys: string,
  sums: ReadonlyMap<string, Readonly<ModelCount>>,
): void {
  const sum = ['requests', 'input', 'output', 'charge'].map(name => `${name} = ${table}.${name} + excluded.${name}`)
  sql.putRows({
    before: `INSERT INTO ${table} (${keys}, requests, input, output, charge)`,
    rows: [...sums].map(([key, { requests, input, output, charge }]) => [
      ...key.split(' ').map(Number),
      requests,
      input,
      output,
      charge,
    ]),
    after: `ON CONFLICT (${keys}) DO UPDATE SET ${sum.join(', ')}`,
  })
}
