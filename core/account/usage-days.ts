/** The usage of a key by day and model, as customers and operators read it. */
import { GatewayError } from '../errors.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { formatCredits } from '../money/credits.ts'
import { type Count, dayOf, DAY_MS, type Whose } from '../records/entry.ts'

/** Days of a report that names none, and most days of one report. */
const DAYS = 30
const DAYS_MAX = 400

/**
 * Reads the days that a query asks for by `from` and `to`: by default the last thirty.
 * @returns days since the epoch, both included
 * @throws GatewayError bad_request
 */
export function daysAsked(query: URLSearchParams, now: number): { from: number; to: number } {
  const to = dayIn(query, 'to') ?? dayOf(now)
  const from = dayIn(query, 'from') ?? to - DAYS + 1
  if (from > to) throw wrong('from', '"from" is later than "to".')
  if (to - from >= DAYS_MAX) throw wrong('from', `A report has at most ${DAYS_MAX} days.`)
  return { from, to }
}

function dayIn(query: URLSearchParams, param: string): number | undefined {
  const text = query.get(param)
  if (text === null || text === '') return undefined
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN
  if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(text))
    throw wrong(param, `"${param}" must be a day such as 2026-01-31.`)
  return dayOf(ms)
}

function wrong(param: string, message: string): GatewayError {
  return new GatewayError('bad_request', { param, message })
}

/**
 * Returns the usage of a key by day and model, the oldest day first. Days without requests are absent.
 * @param query with `from` and `to`
 * @throws GatewayError bad_request or unavailable
 */
export async function keyDays(ledger: Ledger, whose: Whose, query: URLSearchParams, now: number): Promise<object> {
  const { from, to } = daysAsked(query, now)
  const days = await orUnavailable(ledger.records.history.days(whose, from, to))
  const data = days.map(({ day, all, models }) => ({
    day: new Date(day * DAY_MS).toISOString().slice(0, 10),
    ...shown(all),
    models: [...models].map(([model, count]) => ({ model, ...shown(count) })),
  }))
  return { object: 'list', data, has_more: false, next_cursor: null }
}

function shown({ requests, input, output, charge }: Count): object {
  return { requests, input, output, credits: formatCredits(charge) }
}
