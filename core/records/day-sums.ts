/**
 * The sums of each day, by account and by model, and those of an account's models: in total, and of each day. Requests are
 * counted as they end, by request-sums.ts; what was used and charged is added up from the entries.
 */
import { bigintOf, insertAll, type Row, type Sql, type SqlValue } from './database.ts'
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

/** Returns sums without anything. */
export function noCount(): DayCount {
  return {
    counts: Object.fromEntries(COUNTERS.map(name => [name, 0n])) as DayCount['counts'],
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

interface Table {
  readonly name: string
  readonly keys: readonly string[]
}

const BY_ACCOUNT: Table = { name: 'day_accounts', keys: ['day', 'account'] }
const BY_MODEL: Table = { name: 'day_models', keys: ['day', 'model', 'type', 'upstream', 'status', 'code'] }

/** Collects what entries change in the sums. */
export class DaySums {
  readonly #names: Pick<NewNames, 'numberOf'>
  readonly #number: (account: string) => number
  readonly #sums = new Map<Table, Map<string, DayCount>>([
    [BY_ACCOUNT, new Map()],
    [BY_MODEL, new Map()],
  ])
  /** By account and model, and by account, day and model. */
  readonly #models = new Map<string, ModelCount>()
  readonly #dayModels = new Map<string, ModelCount>()

  constructor(names: Pick<NewNames, 'numberOf'>, number: (account: string) => number) {
    this.#names = names
    this.#number = number
  }

  /** Adds an entry, or takes away one that is replaced. */
  add(entry: HistoryEntry & { readonly account: string }, sign: 1 | -1): void {
    const { notes } = entry
    const day = countedDay(entry)
    const account = this.#number(entry.account)
    const no = (name = ''): number => this.#names.numberOf(name)
    const model = no(notes.model)
    this.#add(BY_ACCOUNT, [day, account], entry, sign)
    const keys = [day, model, no(notes.type), no(notes.upstream), no(notes.status), no(notes.errorCode)]
    this.#add(BY_MODEL, keys, entry, sign)
    const count = { ...counted(entry), requests: 0 }
    addCount(this.#models, `${account} ${model}`, count, sign)
    addCount(this.#dayModels, `${account} ${day} ${model}`, count, sign)
  }

  /** Adds requests that have ended. */
  addRequests(sum: RequestSum): void {
    const { day, requests, errors, refused } = sum
    const account = this.#number(sum.account)
    const model = this.#names.numberOf(sum.model)
    const others = [sum.type, sum.upstream, sum.status, sum.code].map(name => this.#names.numberOf(name))
    for (const { counts } of [this.#of(BY_ACCOUNT, [day, account]), this.#of(BY_MODEL, [day, model, ...others])]) {
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

  #of(table: Table, keys: readonly number[]): DayCount {
    const sums = this.#sums.get(table) as Map<string, DayCount>
    const key = keys.join(' ')
    let sum = sums.get(key)
    if (!sum) sums.set(key, (sum = noCount()))
    return sum
  }

  #add(table: Table, keys: readonly number[], entry: HistoryEntry, sign: 1 | -1): void {
    const sum = this.#of(table, keys)
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
    COUNTERS.forEach((name, at) => (sum.counts[name] += BigInt(sign) * BigInt(values[at] ?? 0)))
    const times = (histogram: Histogram, ms: number | undefined): void => {
      if (ms === undefined) return
      const bucket = bucketOf(ms)
      // While it is collected, a count may be below zero: the stored one is added to it.
      histogram.set(bucket, (histogram.get(bucket) ?? 0) + sign)
    }
    times(sum.durations, notes.durationMs)
    times(sum.firstBytes, notes.ttftMs)
  }

  /** Adds what was collected to the stored sums. The transaction must be the only one at this time. */
  async write(sql: Sql): Promise<void> {
    for (const [table, sums] of this.#sums) await writeTable(sql, table, sums)
    await writeModels(sql, 'account_models', 'account, model', this.#models)
    await writeModels(sql, 'day_account_models', 'account, day, model', this.#dayModels)
  }
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

async function writeModels(
  sql: Sql,
  table: string,
  keys: string,
  sums: ReadonlyMap<string, Readonly<ModelCount>>,
): Promise<void> {
  const sum = ['requests', 'input', 'output', 'charge'].map(name => `${name} = ${table}.${name} + excluded.${name}`)
  await insertAll(
    sql,
    `INSERT INTO ${table} (${keys}, requests, input, output, charge)`,
    [...sums].map(([key, { requests, input, output, charge }]) => [
      ...key.split(' ').map(Number),
      requests,
      input,
      output,
      charge,
    ]),
    `ON CONFLICT (${keys}) DO UPDATE SET ${sum.join(', ')}`,
  )
}

/** Rows that one statement finds by their keys. */
const ROWS_AT_ONCE = 100

async function writeTable(sql: Sql, table: Table, sums: Map<string, DayCount>): Promise<void> {
  const stored = new Map<string, DayCount>()
  const keys = [...sums.keys()]
  const one = `(${table.keys.map(name => `${name} = ?`).join(' AND ')})`
  for (let at = 0; at < keys.length; at += ROWS_AT_ONCE) {
    const part = keys.slice(at, at + ROWS_AT_ONCE)
    const found = await sql.all(
      `SELECT * FROM ${table.name} WHERE ${Array(part.length).fill(one).join(' OR ')}`,
      part.flatMap(key => key.split(' ').map(Number)),
    )
    for (const row of found) {
      const sum = noCount()
      addRow(sum, row)
      stored.set(table.keys.map(name => String(row[name])).join(' '), sum)
    }
  }
  const rows = [...sums].map(([key, added]): SqlValue[] => {
    const sum = stored.get(key) ?? noCount()
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
  const columns = [...COUNTERS, 'durations', 'first_bytes']
  await insertAll(
    sql,
    `INSERT INTO ${table.name} (${[...table.keys, ...columns].join(', ')})`,
    rows,
    `ON CONFLICT (${table.keys.join(', ')}) DO UPDATE SET ${columns.map(name => `${name} = excluded.${name}`).join(', ')}`,
  )
}
