/** Answers who used what: sums by day, from the sums that are kept of each day. */
import { bigintOf, type Database, type Row, selectIn } from './database.ts'
import { addRow, COUNTERS, type DayCount, noCount } from './day-sums.ts'
import { DAY_MS } from './entry.ts'

/**
 * What usage can be grouped by. `balance` has that of all keys that spend from it; `served` is the model that answered, `account` the
 * upstream account, `code` that of an error.
 */
export const USAGE_GROUPS = ['key', 'balance', 'model', 'served', 'type', 'account', 'day', 'status', 'code'] as const
/** One of them. */
export type UsageGroup = (typeof USAGE_GROUPS)[number]

/** The usage of one group. */
export interface Usage extends DayCount {
  /** The id of a key, the name of a model and so on. */
  readonly group: string
  /** The operator's name of a key. */
  readonly name?: string
}

/** Which days to sum up, both included, in days since the epoch, and the largest number of groups. */
export interface UsageRange {
  readonly from: number
  readonly to: number
  readonly count: number
}

/** The columns of the sums by model that groups are named by. */
const COLUMNS: Readonly<Record<Exclude<UsageGroup, 'key' | 'balance' | 'day'>, string>> = {
  model: 'model',
  served: 'model',
  type: 'type',
  account: 'upstream',
  status: 'status',
  code: 'code',
}

/** Returns the usage by group: the highest charges first, or the latest days in their order. */
export async function usageBy(database: Database, group: UsageGroup, range: UsageRange): Promise<Usage[]> {
  if (group === 'key' || group === 'balance') return bySpender(database, SPENDERS[group], range)
  const { from, to, count } = range
  const rows = await database.all('SELECT * FROM day_models WHERE day >= ? AND day <= ?', [from, to])
  if (group === 'day') {
    const days = summed(rows, row => Number(row['day']))
    return [...days]
      .sort(([a], [b]) => a - b)
      .slice(-count)
      .map(([day, sums]) => ({ group: new Date(day * DAY_MS).toISOString().slice(0, 10), ...sums }))
  }
  const sums = summed(rows, row => Number(row[COLUMNS[group]]))
  if (group === 'served')
    for (const row of await database.all('SELECT * FROM day_served WHERE day >= ? AND day <= ?', [from, to]))
      moveServed(sums, row)
  const names = await selectIn(database, 'SELECT no, name FROM names WHERE no', [...sums.keys()])
  const nameOf = new Map(names.map(row => [Number(row['no']), String(row['name'])]))
  return [...sums]
    .map(([no, each]) => ({ group: nameOf.get(no) ?? '', ...each }))
    .sort(byCharge)
    .slice(0, count)
}

const DAY = `day, ${COUNTERS.join(', ')}, durations, first_bytes`

/** The sums of days by a number, and where its id and its name are. Keys that share an account have sums of their own. */
const SPENDERS = {
  key: {
    days: `(SELECT d.account AS no, ${DAY} FROM day_accounts d JOIN accounts a ON a.no = d.account WHERE a.shared = 0
      UNION ALL SELECT key AS no, ${DAY} FROM day_keys) AS days`,
    names: 'SELECT no, id, name FROM keys WHERE no',
  },
  balance: {
    days: `(SELECT account AS no, ${DAY} FROM day_accounts) AS days`,
    names: `SELECT n.no, n.id, n.name FROM (SELECT a.no, a.id, COALESCE(k.name, a.name) AS name FROM accounts a
      LEFT JOIN keys k ON k.no = a.no) AS n WHERE n.no`,
  },
} as const

/** With many keys, their sums are made by the database, which leaves out the times. */
async function bySpender(
  database: Database,
  { days, names }: (typeof SPENDERS)[keyof typeof SPENDERS],
  { from, to, count }: UsageRange,
): Promise<Usage[]> {
  const sums = COUNTERS.map(name => `CAST(SUM(${name}) AS BIGINT) AS ${name}`).join(', ')
  const rows = await database.all(
    `SELECT no, ${sums} FROM ${days} WHERE day >= ? AND day <= ? GROUP BY no ORDER BY SUM(charge) DESC, no LIMIT ?`,
    [from, to, count],
  )
  const numbers = rows.map(row => Number(row['no']))
  const times = rows.length <= TIMED_MAX ? await timesOf(database, days, numbers, { from, to }) : undefined
  const keyOf = new Map((await selectIn(database, names, numbers)).map(row => [Number(row['no']), row]))
  return rows
    .map(row => {
      const no = Number(row['no'])
      const key = keyOf.get(no)
      const counts = Object.fromEntries(COUNTERS.map(name => [name, bigintOf(row, name)])) as DayCount['counts']
      const { durations, firstBytes } = times?.get(no) ?? noCount()
      return { group: String(key?.['id'] ?? ''), name: String(key?.['name'] ?? ''), counts, durations, firstBytes }
    })
    .sort(byCharge)
}

/** Most keys of a report that has their times. */
const TIMED_MAX = 100

async function timesOf(
  database: Database,
  days: string,
  numbers: readonly number[],
  { from, to }: Pick<UsageRange, 'from' | 'to'>,
): Promise<Map<number, DayCount>> {
  const select = `SELECT * FROM ${days} WHERE day >= ${from} AND day <= ${to} AND no`
  return summed(await selectIn(database, select, numbers), row => Number(row['no']))
}

function summed(rows: readonly Row[], keyOf: (row: Row) => number): Map<number, DayCount> {
  const sums = new Map<number, DayCount>()
  for (const row of rows) {
    const key = keyOf(row)
    let sum = sums.get(key)
    if (!sum) sums.set(key, (sum = noCount()))
    addRow(sum, row)
  }
  return sums
}

/** Counts what another model answered for that one. Its times stay with the model that was asked for. */
function moveServed(sums: Map<number, DayCount>, row: Row): void {
  const [asked, served] = [Number(row['model']), Number(row['served'])].map(no => {
    const sum = sums.get(no) ?? noCount()
    sums.set(no, sum)
    return sum.counts
  }) as [DayCount['counts'], DayCount['counts']]
  for (const name of COUNTERS) {
    // A request is counted before anybody knows what answers it.
    const count = bigintOf(row, name === 'requests' ? 'billed' : name)
    asked[name] -= count
    served[name] += count
  }
}

function byCharge(one: Usage, other: Usage): number {
  const [a, b] = [one.counts.charge, other.counts.charge]
  if (a === b) return one.group < other.group ? -1 : 1
  return a > b ? -1 : 1
}
