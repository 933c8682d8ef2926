/** `tollgate keys import`: takes over the keys of another gateway from a file of comma- or tab-separated values. */
import { readFileSync } from 'node:fs'
import { CsvError, parse } from 'csv-parse/sync'
import type { Config } from '../config/config.ts'
import {
  COLUMNS,
  type ImportReport,
  importDetails,
  type ImportRow,
  importRows,
  importView,
} from '../operator/import.ts'
import type { Environment } from '../lib/environment.ts'
import { inOneLine } from '../lib/printable.ts'
import { formatCredits, parseDecimal } from '../money/credits.ts'
import { addAudit } from '../records/audit-log.ts'
import type { Imported } from '../records/key-import.ts'
import { auditEntry } from './audited.ts'
import { UsageError } from './program.ts'
import { onLedger } from './on-ledger.ts'
import type { Output } from './subjects.ts'

/** Options of `tollgate keys import`. */
export interface ImportOptions extends Output {
  readonly type?: string
  readonly perCredit?: string
  readonly dryRun?: boolean
}

/** Most keys of one file. */
const ROWS_MAX = 100_000
/** Refused lines that are printed. */
const REFUSED_MAX = 100
/** The line of the first row: the names of the columns stand before it. */
const FIRST_LINE = 2

/** Imports the keys of a file, all or none, and prints what was done. Exits with 1 if lines are refused. */
export async function importFile(
  environment: Environment,
  config: Config,
  file: string,
  options: ImportOptions,
): Promise<void> {
  const { type, dryRun: isTrial = false } = options
  const rows = rowsOf(file)
  if (type === undefined && rows.every(row => !row.type))
    throw new UsageError('give --type, the key type of all rows, or a column type')
  const perCredit = parseDecimal(options.perCredit ?? '1') ?? 0n
  if (perCredit === 0n) throw new UsageError('--per-credit must be a number above zero, such as 500000')
  if (type !== undefined && !config.keyTypes.has(type)) throw new UsageError(`there is no key type "${type}"`)
  const wish = { config, now: environment.now(), firstLine: FIRST_LINE, type, perCredit, isTrial }
  const also = (result: Imported) => (sql: Parameters<typeof addAudit>[0]) =>
    result.ids.length === 0
      ? Promise.resolve()
      : addAudit(sql, auditEntry(environment, 'key.import', '', importDetails(result)))
  const report = await onLedger(environment, config, ledger => importRows(ledger, rows, wish, also))
  if (options.json) environment.print(JSON.stringify(importView(report, isTrial)))
  else print(environment, report, isTrial)
  if (report.refused.length > 0) await environment.exit(1)
}

/** Reads the rows of a file. @throws UsageError for a file that is not one of keys */
function rowsOf(file: string): ImportRow[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    throw new UsageError(`cannot read ${file}`)
  }
  let rows: Record<string, string>[]
  try {
    // What the client of MySQL writes has tabs, and no quotation marks.
    const tabs = /^[^\n,]*\t/.test(text) && ({ delimiter: '\t', quote: false } as const)
    rows = parse(text, { columns: uniqueNames, bom: true, trim: true, ...tabs })
  } catch (thrown) {
    if (thrown instanceof UsageError) throw thrown
    // The message of the parser quotes the file, which has secrets.
    throw new UsageError(
      `${file} is not a file of comma- or tab-separated values${thrown instanceof CsvError ? ` (${thrown.code})` : ''}`,
    )
  }
  const [first] = rows
  if (!first) throw new UsageError(`${file} has no rows`)
  if (rows.length > ROWS_MAX) throw new UsageError(`${file} has more than ${ROWS_MAX} rows`)
  const known: readonly string[] = COLUMNS
  const other = Object.keys(first).find(name => !known.includes(name))
  if (other !== undefined && !other.includes('-'))
    throw new UsageError(
      `there is no column "${inOneLine(other).slice(0, 40)}"; the first line has some of ${COLUMNS.join(', ')}, separated by commas or tabs`,
    )
  if (other !== undefined)
    throw new UsageError(
      `the first line of ${file} must have the names of its columns: some of ${COLUMNS.join(', ')}, separated by commas or tabs`,
    )
  return rows
}

/** @throws UsageError if a name appears twice: the last column would win */
function uniqueNames(names: string[]): string[] {
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined) throw new UsageError('a column appears twice in the first line')
  return names
}

function print(environment: Environment, report: ImportReport, isTrial: boolean): void {
  const { refused, leftOut, result } = report
  if (leftOut > 0) environment.print(`${leftOut} deleted keys are left out.`)
  if (!result) {
    for (const { line, reason } of refused.slice(0, REFUSED_MAX)) environment.complain(`line ${line}: ${reason}`)
    if (refused.length > REFUSED_MAX) environment.complain(`${refused.length - REFUSED_MAX} more lines are refused.`)
    environment.complain('Nothing was imported.')
    return
  }
  const { ids, knownIds, newBalances, joinedBalances, plans, before, added } = result
  if (knownIds.length > 0) environment.print(`${knownIds.length} keys are here already and stay as they are.`)
  environment.print(
    `${isTrial ? 'To import' : 'Imported'}: ${ids.length} keys, ${newBalances} new balances, ${plans} of them with a plan; ${joinedBalances} balances get more keys.`,
  )
  environment.print(`Credits of all balances: ${formatCredits(before)} before, ${formatCredits(before + added)} after.`)
  if (!isTrial && !report.inForce)
    environment.complain('The store did not answer. A running gateway puts the keys in force later.')
}
