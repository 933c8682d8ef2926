/** `tollgate usage`: who used what, by day, from the records. */
import type { Config } from '../config/config.ts'
import { suggestion } from '../lib/suggest.ts'
import type { Environment } from '../lib/environment.ts'
import { usageView } from '../operator/usage-view.ts'
import { noCount } from '../records/day-sums.ts'
import { dayOf, DAY_MS } from '../records/entry.ts'
import { usageBy, USAGE_GROUPS, type UsageGroup } from '../records/usage.ts'
import { csvLine } from '../lib/csv.ts'
import { inOneLine } from '../lib/printable.ts'
import { UsageError } from './program.ts'
import { onRecords } from './on-ledger.ts'
import { wholeOption } from './shared.ts'

/** Options of `tollgate usage`. */
export interface UsageOptions {
  readonly since: string
  readonly until?: string
  readonly by: string
  readonly limit: string
  readonly csv?: boolean
  readonly json?: boolean
}

/** Most groups that are printed. */
const GROUPS_MAX = 100_000

/** Prints the usage by group. */
export async function showUsage(environment: Environment, config: Config, options: UsageOptions): Promise<void> {
  const group = groupOf(options.by)
  const today = dayOf(environment.now())
  const [from, to] = [dayFrom(options.since, today), dayFrom(options.until ?? 'today', today)]
  if (from > to) throw new UsageError(`--since (${options.since}) is later than --until (${options.until ?? 'today'})`)
  const count = wholeOption(options.limit, '--limit', GROUPS_MAX)
  const rows = await onRecords(environment, config, records => usageBy(records.database, group, { from, to, count }))
  const shown = rows.map(usageView)
  if (options.json) {
    for (const row of shown) environment.print(JSON.stringify({ by: group, ...row }))
    return
  }
  const columns = Object.keys(usageView({ group: '', ...noCount() }))
  const names = group === 'key' || group === 'balance' ? ['group', 'name', ...columns.slice(1)] : columns
  const cells = shown.map(row => names.map(name => (row as Readonly<Record<string, string | number | null>>)[name]))
  const head = names.map(name => (name === 'group' ? group : name))
  if (options.csv) for (const line of [head, ...cells]) environment.print(csvLine(line))
  else for (const line of table(head, cells)) environment.print(line)
}

function groupOf(text: string): UsageGroup {
  const group = USAGE_GROUPS.find(name => name === text)
  if (group) return group
  throw new UsageError(`--by is one of ${USAGE_GROUPS.join(', ')}${suggestion(text, USAGE_GROUPS)}`)
}

/** Parses `today`, `yesterday`, `7d` (so many days ago) or a date, in UTC, to days since the epoch. */
function dayFrom(text: string, today: number): number {
  if (text === 'today') return today
  if (text === 'yesterday') return today - 1
  const ago = /^(\d{1,4})d$/.exec(text)?.[1]
  if (ago !== undefined) return today - Number(ago)
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN
  const isDay = !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text)
  if (!isDay) throw new UsageError(`"${text}" is not a day; use today, yesterday, 7d or 2026-01-31`)
  return ms / DAY_MS
}

/** Returns the lines of a table. The first column is a text, the others are aligned at their ends. */
function table(head: readonly string[], rows: readonly (readonly (string | number | null | undefined)[])[]): string[] {
  const texts = [head, ...rows].map(row => row.map(cell => inOneLine(String(cell ?? '')) || '-'))
  const widths = head.map((_, column) => Math.max(...texts.map(row => row[column]?.length ?? 0)))
  return texts.map(row =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  )
}
