/** Answers who used what: sums by day, from the sums that are kept of each day. */
import { bigintOf, type Database, type Row, selectIn } from './database.ts'
import { addRow, COUNTERS, type DayCount, noCount } from './day-sums.ts'
import { DAY_MS } from './entry.ts'

/** What usage can be grouped by. `account` is the upstream account, `code` that of an error. */
export const USAGE_GROUPS = ['key', 'model', 'type', 'account', 'day', 'status', 'code'] as const
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
const COLUMNS: Readonly<Record<Exclude<UsageGroup, 'key' | 'day'>, string>> = {
  model: 'model',
  type: 'type',
  account: 'upstream',
  status: 'status',
  code: 'code',
}

/** Returns the usage by group: the highest charges first, or the latest days in their order. */
export async function usageBy(database: Database, group: UsageGroup, range: UsageRange): Promise<Usage[]> {
  if (group === 'key') return byKey(database, range)
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
  const names = await selectIn(database, 'SELECT no, name FROM names WHERE no', [...sums.keys()])
  const nameOf = new Map(names.map(row => [Number(row['no']), String(row['name'])]))
  return [...sums]
    .map(([no, each]) => ({ group: nameOf.get(no) ?? '', ...each }))
    .sort(byCharge)
    .slice(0, count)
}

/** With many keys, their sums are made by the database, which leaves out the times. */
async function byKey(database: Database, { from, to, count }: UsageRange): Promise<Usage[]> {
  const sums = COUNTERS.map(name => `CAST(SUM(${name}) AS BIGINT) AS ${name}`).join(', ')
  const rows = await database.all(
    `SELECT account, ${sums} FROM day_accounts WHERE day >= ? AND day <= ?
     GROUP BY account ORDER BY SUM(charge) DESC, account LIMIT ?`,
    [from, to, count],
  )
  const accounts = rows.map(row => Number(row['account']))
  const times = rows.length <= TIMED_MAX ? await timesOf(database, accounts, from, to) : undefined
  const keys = await selectIn(database, 'SELECT no, id, name FROM accounts WHERE no', accounts)
  const keyOf = new Map(keys.map(row => [Number(row['no']), row]))
  return rows
    .map(row => {
      const no = Number(row['account'])
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
  accounts: readonly number[],
  from: number,
  to: number,
): Promise<Map<number, DayCount>> {
  const select = `SELECT * FROM day_accounts WHERE day >= ${from} AND day <= ${to} AND account`
  return summed(await selectIn(database, select, accounts), row => Number(row['account']))
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

function byCharge(one: Usage, other: Usage): number {
  const [a, b] = [one.counts.charge, other.counts.charge]
  if (a === b) return one.group < other.group ? -1 : 1
  return a > b ? -1 : 1
}
