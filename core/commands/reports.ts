/** Commands that answer questions: why requests failed, what changed a balance, who is used up soon. */
import type { Config } from '../config/config.ts'
import { suggest } from '../lib/suggest.ts'
import { ERRORS } from '../errors.ts'
import type { Environment } from '../lib/environment.ts'
import { inOneLine } from '../lib/printable.ts'
import { statementPage } from '../account/statement-page.ts'
import { isoTime } from '../lib/iso-time.ts'
import { formatCredits } from '../money/credits.ts'
import { runningOutView } from '../operator/trend.ts'
import { runningOut } from '../records/running-out.ts'
import { csvLine } from '../lib/csv.ts'
import { found, type Subject } from './subjects.ts'
import { UsageError } from './program.ts'
import { onLedger, onRecords } from './on-ledger.ts'
import { wholeOption } from './shared.ts'

/** Most rows that are printed. */
const ROWS_MAX = 10_000
const DAYS_MAX = 365
/** The codes of failures. */
const CODES: readonly string[] = [...Object.keys(ERRORS), 'stage_reply']

interface Output {
  readonly limit: string
  readonly json?: boolean
}

/** Returns a line of a report. Parts that are empty are left out. */
function lineOf(...parts: readonly (string | number | null)[]): string {
  return parts.filter(part => part !== '' && part !== null).join('  ')
}

/** Prints why requests failed, newest first. */
export async function listFailures(
  environment: Environment,
  config: Config,
  options: Output & { readonly key?: string; readonly code?: string },
): Promise<void> {
  const count = wholeOption(options.limit, '--limit', ROWS_MAX)
  const filter = { before: undefined, key: options.key, code: options.code }
  const { code } = options
  if (code !== undefined && !CODES.includes(code)) {
    const hint = suggest(code, CODES)
    throw new UsageError(`there is no error code ${inOneLine(code)}${hint === undefined ? '' : `; ${hint}`}`)
  }
  const found = await onRecords(environment, config, async records => {
    const { key } = options
    if (key !== undefined && !(await records.keys.get(key)))
      throw new UsageError(
        `there is no key ${inOneLine(key)}; find a key by its name with npx tollgate keys list --search TEXT`,
      )
    return records.failures.list(filter, count)
  })
  for (const { story, at, ...rest } of found) {
    const row = { ...rest, at: isoTime(at), message: story.message ?? null }
    if (options.json) environment.print(JSON.stringify(row))
    else
      environment.print(
        lineOf(
          row.at,
          row.id,
          row.key,
          row.who.padEnd(8),
          row.code.padEnd(20),
          row.alike > 1 ? `${row.alike} times` : '',
          row.account,
          inOneLine(row.words ?? row.message ?? ''),
        ),
      )
  }
}

/** Prints what changed the balance of a key, or a balance, newest first. */
export async function showStatement(
  environment: Environment,
  config: Config,
  subject: Subject,
  options: Output & { readonly cursor?: string; readonly csv?: boolean },
): Promise<void> {
  const count = wholeOption(options.limit, '--limit', ROWS_MAX)
  const { data, next } = await onLedger(environment, config, async (ledger, keys) =>
    statementPage(ledger, (await found(ledger, keys, subject)).whose, options.cursor, count),
  )
  const rows = data as readonly Readonly<Record<string, string | number | null>>[]
  if (options.csv && rows[0]) environment.print(csvLine(Object.keys(rows[0])))
  for (const row of rows) {
    const { number, type, booked_at: at, model, reason, plan_left: left } = row
    const [amount, balance, ofPlan] = ['amount', 'balance_after', 'plan_amount'].map(name =>
      formatCredits(BigInt(row[`${name}_nano`] ?? 0)),
    )
    if (options.json) environment.print(JSON.stringify(row))
    else if (options.csv) environment.print(csvLine(Object.values(row)))
    else
      environment.print(
        lineOf(
          String(number).padStart(6),
          at ?? '-',
          String(type).padEnd(10),
          `${amount} credits`,
          `balance ${balance}`,
          inOneLine([ofPlan !== '0' && `${ofPlan} of the plan`, left, model, reason].filter(Boolean).join(', ')),
        ),
      )
  }
  if (next !== undefined && !options.json && !options.csv) environment.print(`More lines follow: --cursor ${next}`)
}

/** Prints the keys whose credits are used up soon, the first one first. */
export async function listRunningOut(
  environment: Environment,
  config: Config,
  options: Output & { readonly days: string },
): Promise<void> {
  const days = wholeOption(options.days, '--days', DAYS_MAX)
  const count = wholeOption(options.limit, '--limit', ROWS_MAX)
  const found = await onRecords(environment, config, records =>
    runningOut(records.database, environment.now(), days, count),
  )
  for (const row of found.map(runningOutView)) {
    if (options.json) environment.print(JSON.stringify(row))
    else
      environment.print(
        lineOf(row.key, row.hint, `${row.balance} credits, ${row.daily} a day: ${row.days} days`, inOneLine(row.name)),
      )
  }
}
