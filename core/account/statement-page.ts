/** Pages of a statement, newest first, as customers and operators read them. */
import { hash } from 'node:crypto'
import { GatewayError } from '../errors.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits } from '../money/credits.ts'
import { claimsIn } from '../plans/claims.ts'
import { type Plan, planFrom } from '../plans/plan.ts'
import type { PlanWindow } from '../plans/terms.ts'
import type { HistoryEntry, Whose } from '../records/entry.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { NEWEST, type StatementLine, type StatementPlace } from '../records/statement.ts'
import { isoTime } from '../lib/iso-time.ts'
import { type PlanStanding, windowLabel } from './plan-views.ts'
import { credits } from './entry-view.ts'

/** Columns of a statement as CSV. */
export const STATEMENT_COLUMNS = [
  'number',
  'type',
  'key',
  'begun_at',
  'booked_at',
  'amount',
  'amount_nano',
  'plan_amount',
  'plan_amount_nano',
  'plan_left',
  'balance_after',
  'balance_after_nano',
  'id',
  'model',
  'reason',
  'corrects',
]

/** A page of a statement. */
export interface StatementRows {
  readonly data: readonly Record<string, unknown>[]
  /** Undefined if there are no more. */
  readonly next: string | undefined
}

/**
 * Returns a page of a statement.
 * @param cursor `next` of the page before; undefined for the first page
 * @throws GatewayError bad_request or unavailable
 */
export async function statementPage(
  { records }: Pick<Ledger, 'records'>,
  whose: Whose,
  cursor: string | undefined,
  size: number,
): Promise<StatementRows> {
  const owner = `${records.id} ${whose.account} ${whose.key ?? ''}`
  const place = placeIn(cursor, owner)
  const [{ lines, next, opening }, account] = await orUnavailable(
    Promise.all([records.history.statement(whose, place, size), records.accounts.get(whose.account)]),
  )
  const plan = account?.plan === undefined ? undefined : planFrom(account.plan)
  const first = opening && {
    number: opening.number,
    type: 'opening',
    ...amounts({ amount: opening.balance, ofPlan: 0n, balance: opening.balance }),
    reason: 'What was booked before.',
  }
  return {
    data: [...lines.map(line => lineView(line, whose.account, plan)), ...(first ? [{ ...NO_LINE, ...first }] : [])],
    next: next && cursorOf(next, owner),
  }
}

/**
 * Returns how the last line of a statement and the balance agree: what is booked is the balance, what is held, and what is
 * not booked yet. What is left of a plan is beside them. Amounts are credits, with exact strings in nano-credits.
 * @param plan how the plan of the account stands
 * @throws GatewayError unavailable
 */
export async function statementSums(
  ledger: Ledger,
  account: string,
  plan: PlanStanding | undefined,
): Promise<Record<string, unknown>> {
  const recorded = await orUnavailable(ledger.records.accounts.get(account))
  const booked = recorded ? recorded.granted - recorded.settled : 0n
  const { balance, held } = await ledger.reads.balance(account)
  const sums = { booked, balance, held, not_booked: booked - balance - held }
  return {
    plan_left: (plan && leftWords(plan.windows.map(({ window, left }) => [window, left] as const))) || null,
    ...Object.fromEntries(Object.entries(sums).map(([name, amount]) => [name, credits(amount)])),
    exact: Object.fromEntries(Object.entries(sums).map(([name, amount]) => [name, String(amount)])),
  }
}

/** Writes a place so that only the gateway can have written it: another one could make it read a whole history. */
function cursorOf({ number, ordinal, balance }: StatementPlace, secret: string): string {
  const place = `${number}_${ordinal}_${balance}`
  return `${place}_${hash('sha256', `${secret} ${place}`).slice(0, 16)}`
}

function placeIn(cursor: string | undefined, secret: string): StatementPlace {
  if (cursor === undefined) return NEWEST
  const [, number, ordinal, balance] = /^(\d{1,15})_(\d{1,16})_(-?\d{1,18})_/.exec(cursor) ?? []
  const place = { number: Number(number), ordinal: Number(ordinal), balance: BigInt(balance ?? 0) }
  if (balance === undefined || cursorOf(place, secret) !== cursor)
    throw new GatewayError('bad_request', {
      message: '"cursor" must be the next_cursor of an earlier answer.',
      param: 'cursor',
    })
  return place
}

function amounts({ amount, ofPlan, balance }: Pick<StatementLine, 'amount' | 'ofPlan' | 'balance'>) {
  return {
    amount: credits(amount),
    amount_nano: String(amount),
    plan_amount: credits(ofPlan),
    plan_amount_nano: String(ofPlan),
    balance_after: credits(balance),
    balance_after_nano: String(balance),
  }
}

const NO_LINE = { key: null, begun_at: null, booked_at: null, plan_left: null, id: null, model: null, corrects: null }

/** @param plan that of the account today, by which windows are named */
function lineView(line: StatementLine, account: string, plan: Plan | undefined): Record<string, unknown> {
  const { booking, begunAt, of, corrects } = line
  const entry = of.kind === 'exchange' ? of.entry : undefined
  return {
    number: booking.number,
    type: typeOf(line),
    key: of.kind === 'exchange' ? (of.key ?? account) : null,
    begun_at: isoTime(begunAt),
    booked_at: isoTime(booking.at),
    ...amounts(line),
    plan_left: leftAfter(entry, plan),
    ...(of.kind === 'grant'
      ? {
          id: of.grant.id,
          model: null,
          reason: reasonOf(of.grant.notes),
        }
      : {
          id: entry?.notes.entry ?? of.id,
          model: line.model || null,
          reason: entry?.notes.reason ?? null,
        }),
    corrects: corrects ?? null,
  }
}

/** Says what was left of windows of a plan after an entry. Null if none counted it, or if they were over. */
function leftAfter(entry: HistoryEntry | undefined, plan: Plan | undefined): string | null {
  const { shape, left } = claimsIn(entry?.plan?.claims ?? '-')
  if (!plan || shape !== plan.shape) return null
  return (
    leftWords([...left].flatMap(([place, number]) => [[plan.windows[place] as PlanWindow, number] as const])) || null
  )
}

/** Writes what is left of windows, such as `1d: 4.5 credits, 7d: 12 requests`. */
function leftWords(windows: readonly (readonly [PlanWindow, bigint])[]): string {
  return windows
    .map(([window, left]) => {
      const models = window.models ? ` for ${window.models.join(', ')}` : ''
      return `${windowLabel(window)}: ${window.unit === 'credits' ? formatCredits(left) : left} ${window.unit}${models}`
    })
    .join(', ')
}

function typeOf({ of, amount, corrects }: StatementLine): string {
  if (of.kind === 'exchange') {
    if (of.entry?.kind === 'credit') return 'refund'
    return corrects === undefined ? 'charge' : 'correction'
  }
  if (of.grant.notes['reason'] === 'code') return 'code'
  if (of.grant.notes['reason'] === 'plan') return 'plan'
  return amount < 0n ? 'deduction' : 'grant'
}

/** Says why something was granted, and what was changed of a plan. Null if nothing was said. */
function reasonOf({ note, change, code }: Readonly<Record<string, string>>): string | null {
  return [change, note].filter(word => word !== undefined).join(': ') || (code ?? null)
}
