/** Pages of a statement, newest first, as customers and operators read them. */
import { hash } from 'node:crypto'
import { GatewayError } from '../errors.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Whose } from '../records/entry.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { NEWEST, type StatementLine, type StatementPlace } from '../records/statement.ts'
import { isoTime } from '../lib/iso-time.ts'
import { credits } from './views.ts'

/** Columns of a statement as CSV. */
export const STATEMENT_COLUMNS = [
  'number',
  'type',
  'begun_at',
  'booked_at',
  'amount',
  'amount_nano',
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
  const { lines, next, opening } = await orUnavailable(records.history.statement(whose, place, size))
  const first = opening && {
    number: opening.number,
    type: 'opening',
    ...amounts(opening.balance, opening.balance),
    reason: 'What was booked before.',
  }
  return {
    data: [...lines.map(lineView), ...(first ? [{ ...NO_LINE, ...first }] : [])],
    next: next && cursorOf(next, owner),
  }
}

/**
 * Returns how the last line of a statement and the balance agree: what is booked is the balance, what is held, and what is
 * not booked yet. Amounts are credits, with exact strings in nano-credits.
 * @throws GatewayError unavailable
 */
export async function statementSums(ledger: Ledger, account: string): Promise<Record<string, unknown>> {
  const recorded = await orUnavailable(ledger.records.accounts.get(account))
  const booked = recorded ? recorded.granted - recorded.settled : 0n
  const { balance, held } = await ledger.reads.balance(account)
  const sums = { booked, balance, held, not_booked: booked - balance - held }
  return {
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

function amounts(amount: bigint, balance: bigint): Record<string, unknown> {
  return {
    amount: credits(amount),
    amount_nano: String(amount),
    balance_after: credits(balance),
    balance_after_nano: String(balance),
  }
}

const NO_LINE = { begun_at: null, booked_at: null, id: null, model: null, corrects: null }

function lineView(line: StatementLine): Record<string, unknown> {
  const { booking, begunAt, amount, balance, of, corrects } = line
  return {
    number: booking.number,
    type: typeOf(line),
    begun_at: isoTime(begunAt),
    booked_at: isoTime(booking.at),
    ...amounts(amount, balance),
    ...(of.kind === 'grant'
      ? {
          id: of.grant.id,
          model: null,
          reason: reasonOf(of.grant.notes),
        }
      : {
          id: of.entry?.notes.entry ?? of.id,
          model: line.model || null,
          reason: of.entry?.notes.reason ?? null,
        }),
    corrects: corrects ?? null,
  }
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
