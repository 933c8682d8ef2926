/**
 * The sums of each day, by account and by model, and those of an account's models: in total, and of each day. Requests are
 * counted as they end, by request-sums.ts; what was used and charged is added up from the entries.
 */
import { bigintOf, padded, type Row, type Sql, type SqlValue, type Transaction } from './database.ts'
import { countedDay, type HistoryEntry } from './entry.ts'
import { addTo, bucketOf, type Histogram, packHistogram, unpackHistogram } from './histogram.ts'
import { counted, isBilled, moneyLine } from './money-line.ts'
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
  /** The charges of what has a known cost. */
  'costed',
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
/** The columns of a day, without what it is the day of. */
export const DAY_COLUMNS = ['day', ...COLUMNS].join(', ')

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

/** What has an account and a key. */
interface OfKey {
  readonly account: string
  /** Undefined for the key with the name of the account. */
  readonly key?: string | undefined
}

/** The numbers of accounts and keys. */
export interface Numbers {
  account(account: string): number
  key(of: OfKey): number
}

type Entry = HistoryEntry & OfKey

/** The keys of the rows in which something is counted, and the numbers of its day and its model. */
interface RowKeys {
  readonly byAccount: readonly number[]
  readonly byKey: readonly number[]
  readonly byModel: readonly number[]
  readonly day: number
  readonly model: number
}

/** What is added to the sums of a model, or taken away. */
interface AddedCount {
  readonly count: ModelCount
  readonly sign: 1 | -1
  readonly isShared: boolean
}

/** Collects what entries change in the sums. Those by key are kept of shared accounts only. */
export class DaySums {
  readonly #names: Pick<NewNames, 'numberOf'>
  readonly #numbers: Numbers
  readonly #accounts = new Table('day_accounts', ['day', 'account'])
  readonly #keys = new Table('day_keys', ['day', 'account', 'key'])
  readonly #days = new Table('day_models', ['day', 'model', 'type', 'upstream', 'status', 'code'])
  readonly #served = new Table('day_served', ['day', 'model', 'served'])
  /** By account and model, and by account, day and model. */
  readonly #models = new Map<string, ModelCount>()
  readonly #dayModels = new Map<string, ModelCount>()
  /** By key and model, and by key, day and model. */
  readonly #keyModels = new Map<string, ModelCount>()
  readonly #dayKeyModels = new Map<string, ModelCount>()

  constructor(names: Pick<NewNames, 'numberOf'>, numbers: Numbers) {
    this.#names = names
    this.#numbers = numbers
  }

  /** Adds an entry, or takes away one that is replaced. */
  add(entry: Entry, sign: 1 | -1, isShared: boolean): void {
    const { byAccount, byKey, byModel, day, model } = this.#keysOf(entry)
    addEntry(this.#accounts.of(byAccount), entry, sign)
    addEntry(this.#days.of(byModel), entry, sign)
    for (const keys of this.#servedOf(entry)) addEntry(this.#served.of(keys), entry, sign)
    if (isShared) addEntry(this.#keys.of(byKey), entry, sign)
    this.#addModel(entry, { day, model }, { count: { ...counted(entry), requests: 0 }, sign, isShared })
  }

  #addModel(of: OfKey, { day, model }: Pick<RowKeys, 'day' | 'model'>, { count, sign, isShared }: AddedCount): void {
    const account = this.#numbers.account(of.account)
    addCount(this.#models, `${account} ${model}`, count, sign)
    addCount(this.#dayModels, `${account} ${day} ${model}`, count, sign)
    if (!isShared) return
    const key = this.#numbers.key(of)
    addCount(this.#keyModels, `${key} ${account} ${model}`, count, sign)
    addCount(this.#dayKeyModels, `${key} ${day} ${account} ${model}`, count, sign)
  }

  /** Returns the row of what another model answered than was asked for. None for most entries. */
  #servedOf(entry: Entry): readonly (readonly number[])[] {
    const { model = '', served } = entry.notes
    return served === undefined ? [] : [[countedDay(entry), ...[model, served].map(name => this.#names.numberOf(name))]]
  }

  #keysOf(entry: Entry): RowKeys {
    const { notes } = entry
    return this.#rowsOf(entry, countedDay(entry), {
      model: notes.model ?? '',
      type: notes.type ?? '',
      upstream: notes.upstream ?? '',
      status: notes.status ?? '',
      code: notes.errorCode ?? '',
    })
  }

  /** Returns the keys of the rows in which something is counted. */
  #rowsOf(
    of: OfKey,
    day: number,
    names: Readonly<Record<'model' | 'type' | 'upstream' | 'status' | 'code', string>>,
  ): RowKeys {
    const [model = 0, ...others] = [names.model, names.type, names.upstream, names.status, names.code].map(name =>
      this.#names.numberOf(name),
    )
    return {
      byAccount: [day, this.#numbers.account(of.account)],
      byKey: [day, this.#numbers.account(of.account), this.#numbers.key(of)],
      byModel: [day, model, ...others],
      day,
      model,
    }
  }

  /** Adds requests that have ended. */
  addRequests(sum: RequestSum, isShared: boolean): void {
    const { day, requests, errors, refused } = sum
    const { byAccount, byKey, byModel, model } = this.#rowsOf(sum, day, sum)
    const sums = [this.#accounts.of(byAccount), this.#days.of(byModel), ...(isShared ? [this.#keys.of(byKey)] : [])]
    for (const { counts } of sums) {
      counts.requests += BigInt(requests)
      counts.errors += BigInt(errors)
      counts.refused += BigInt(refused)
    }
    // A request that was refused before its model was known has none.
    if (sum.model === '') return
    const count = { requests, input: 0, output: 0, charge: 0n }
    this.#addModel(sum, { day, model }, { count, sign: 1, isShared })
  }

  /**
   * Reads the stored sums of what was added, and of entries and requests that will be. The transaction must be the only
   * one.
   */
  async read(sql: Sql, entries: readonly Entry[] = [], requests: readonly RequestSum[] = []): Promise<void> {
    const rows = [...entries.map(entry => this.#keysOf(entry)), ...requests.map(sum => this.#rowsOf(sum, sum.day, sum))]
    const wanted: readonly [Table, readonly (readonly number[])[]][] = [
      [this.#accounts, rows.map(({ byAccount }) => byAccount)],
      [this.#keys, rows.map(({ byKey }) => byKey)],
      [this.#days, rows.map(({ byModel }) => byModel)],
      [this.#served, entries.flatMap(entry => this.#servedOf(entry))],
    ]
    await Promise.all(wanted.map(([table, keys]) => table.read(sql, keys)))
  }

  /** Adds what was collected to the sums that were read. */
  write(sql: Transaction): void {
    this.#accounts.write(sql)
    this.#keys.write(sql)
    this.#days.write(sql)
    this.#served.write(sql)
    putModels(sql, 'account_models', 'account, model', this.#models)
    putModels(sql, 'day_account_models', 'account, day, model', this.#dayModels)
    putModels(sql, 'key_models', 'key, account, model', this.#keyModels)
    putModels(sql, 'day_key_models', 'key, day, account, model', this.#dayKeyModels)
  }
}

/** Adds an entry to a sum, or takes it away. */
function addEntry(sum: DayCount, entry: HistoryEntry, sign: 1 | -1): void {
  const { notes } = entry
  const { usage } = notes
  const { paid, cost } = moneyLine(entry)
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
    paid,
    cost ?? 0,
    cost === undefined ? 0 : paid,
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
