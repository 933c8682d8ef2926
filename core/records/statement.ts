/** Reads the statement of an account: its bookings, newest first. */
import { idFromBytes, timeOfId } from '../lib/ids.ts'
import type { Booking } from './bookings.ts'
import { bigintOf, type Database, type Row, type SqlValue } from './database.ts'
import type { HistoryEntry, Whose } from './entry.ts'
import { ENTRY_COLUMNS } from './exchange-rows.ts'
import { rowsWithIds } from './recorder.ts'
import type { Grant } from './account-records.ts'
import { moneyLine } from './money-line.ts'

/** One line of a statement. Amounts are nano-credits. */
export interface StatementLine {
  readonly booking: Booking
  /** When what is booked began, in milliseconds since the epoch. */
  readonly begunAt: number
  /** What it adds to the balance: negative for a charge. */
  readonly amount: bigint
  /** What it gives back to the plan of the account: negative for what the plan has paid. */
  readonly ofPlan: bigint
  /** What was granted less what was charged after it. */
  readonly balance: bigint
  /** What is booked. An exchange whose end was replaced has no entry any more, only its id. Its key is undefined if nothing names it. */
  readonly of:
    | { readonly kind: 'grant'; readonly grant: Pick<Grant, 'id' | 'notes'> }
    | {
        readonly kind: 'exchange'
        readonly id: string
        readonly key: string | undefined
        readonly entry: HistoryEntry | undefined
      }
  /** The model of an exchange. */
  readonly model: string | undefined
  /** The number of the line that it corrects: the same exchange ended before. */
  readonly corrects: number | undefined
}

/** A part of a statement, newest first. */
export interface StatementPage {
  readonly lines: readonly StatementLine[]
  /** The place of the next part. Undefined at the end of the statement. */
  readonly next: StatementPlace | undefined
  /** The sum of the bookings before the lines that are kept, at the end of the statement. */
  readonly opening: { readonly number: number; readonly balance: bigint } | undefined
}

/** A place in a statement: only lines with smaller numbers, and exchanges with smaller ordinals, follow it. */
export interface StatementPlace {
  readonly number: number
  readonly ordinal: number
  /** The balance after the line with the next smaller number. Undefined at the beginning. */
  readonly balance: bigint | undefined
}

/** The beginning: the newest line. */
export const NEWEST: StatementPlace = {
  number: Number.MAX_SAFE_INTEGER,
  ordinal: Number.MAX_SAFE_INTEGER,
  balance: undefined,
}

const OF_ACCOUNT = 'account = (SELECT no FROM accounts WHERE id = ?)'
const OF_KEY = 'key = (SELECT no FROM keys WHERE id = ?)'
const COLUMNS = ENTRY_COLUMNS.join(', ')

/** An end of an exchange that a later one has replaced. */
interface Replaced {
  readonly id: string
  readonly charge: bigint
  readonly covered: bigint
  readonly number: number | undefined
  readonly row: Row
}

/**
 * Returns a part of the statement of an account, or the lines of one of the keys that share it.
 * @param entriesOf reads rows of exchanges
 */
export async function statementOf(
  database: Database,
  entriesOf: (rows: readonly Row[]) => Promise<HistoryEntry[]>,
  { whose, place, count }: { readonly whose: Whose; readonly place: StatementPlace; readonly count: number },
): Promise<StatementPage> {
  const { account, key } = whose
  const isWhole = key === undefined
  // The index of keys with other numbers than their accounts has this condition.
  const own = isWhole ? '' : `AND ${OF_KEY} ${key === account ? '' : 'AND key <> account'}`
  const read = (text: string, ...values: readonly SqlValue[]): Promise<Row[]> =>
    database.all(`${text} LIMIT ?`, [account, ...values, count + 1])
  const ofKey = isWhole ? [] : [key]
  const [newest] = await database.all(
    `SELECT a.grants + COALESCE(t.booked, 0) AS number, COALESCE(t.booked, 0) AS booked,
     a.granted - COALESCE(t.settled, 0) AS balance FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.id = ?`,
    [account],
  )
  // What is booked while this reads is left out, so that no line is missing between others.
  const below = Math.min(place.number, Number(newest?.['number'] ?? 0) + 1)
  // A key of free models may have many exchanges and no booking of one.
  const hasCharges = Number(newest?.['booked'] ?? 0) > 0
  const [usual, late, grants] = await Promise.all([
    hasCharges
      ? read(
          `SELECT ${COLUMNS} FROM exchanges WHERE ${OF_ACCOUNT} ${own} AND ordinal < ? AND booking > 0 AND booking < ? ORDER BY ordinal DESC`,
          ...ofKey,
          place.ordinal,
          below,
        )
      : [],
    read(
      `SELECT ${COLUMNS} FROM exchanges WHERE ${OF_ACCOUNT} ${own} AND booking < 0 AND booking > ? ORDER BY booking`,
      ...ofKey,
      -below,
    ),
    isWhole
      ? read(
          `SELECT id, amount, at, notes, balance, booking FROM grants WHERE ${OF_ACCOUNT} AND booking < ? ORDER BY n DESC`,
          below,
        )
      : [],
  ])
  // There are few: one for each exchange whose gateway died, and that ended all the same. An exchange that is replaced
  // meanwhile is in both.
  const ends = await database.all(
    `SELECT id, charge, covered, balance, booking, booked FROM replaced WHERE ${OF_ACCOUNT} ORDER BY ordinal`,
    [account],
  )
  const replaced = ends.map(replacedOf)
  const ids = replaced.filter(({ number }) => number !== undefined && number < below).map(({ id }) => id)
  const later = new Map((await entriesOf(await rowsWithIds(database, ids))).map(entry => [entry.id, entry]))
  const lines = new Map<number, StatementLine>()
  for (const line of [
    ...(await entriesOf([...usual, ...late])).map(entry => exchangeLine(entry, replaced)),
    ...replaced
      .filter(({ id }) => isWhole || (later.get(id)?.key ?? account) === key)
      .flatMap(end => replacedLine(end, replaced, later.get(end.id))),
    ...grants.map(grantLine),
  ])
    if (line.booking.number < below) lines.set(line.booking.number, line)
  const from = { number: below, ordinal: place.ordinal, balance: place.balance ?? bigintOf(newest, 'balance') }
  const sorted = [...lines.values()].sort((one, other) => other.booking.number - one.booking.number)
  return isWhole ? pageOf(sorted, from, count) : pageOfKey(sorted, from, count)
}

/** Returns the lines of one key. Those of the others are missing between them. */
function pageOfKey(
  all: readonly StatementLine[],
  from: StatementPlace & { readonly balance: bigint },
  count: number,
): StatementPage {
  const lines = all.slice(0, count)
  const last = lines.at(-1)
  if (all.length <= count || !last) return { lines, next: undefined, opening: undefined }
  const ordinals = lines.map(
    ({ of }) => (of.kind === 'exchange' && of.entry?.bookedLate !== true && of.entry?.ordinal) || from.ordinal,
  )
  const next = { number: last.booking.number, ordinal: Math.min(...ordinals), balance: last.balance - last.amount }
  return { lines, next, opening: undefined }
}

/** Returns the lines up to the first that is missing. What was booked before is folded into the opening. */
function pageOf(
  all: readonly StatementLine[],
  from: StatementPlace & { readonly balance: bigint },
  count: number,
): StatementPage {
  const lines: StatementLine[] = []
  let { ordinal, balance } = from
  let number = from.number - 1
  for (const line of all) {
    if (line.booking.number !== number) break
    if (lines.length === count) return { lines, next: { number: number + 1, ordinal, balance }, opening: undefined }
    lines.push(line)
    number--
    balance = line.balance - line.amount
    if (line.of.kind === 'exchange' && line.of.entry?.bookedLate !== true)
      ordinal = Math.min(ordinal, line.of.entry?.ordinal ?? ordinal)
  }
  return { lines, next: undefined, opening: number > 0 ? { number, balance } : undefined }
}

function replacedOf(row: Row): Replaced {
  return {
    id: idFromBytes(row['id'] as Uint8Array),
    charge: bigintOf(row, 'charge'),
    covered: bigintOf(row, 'covered'),
    number: row['booking'] === null ? undefined : Number(row['booking']),
    row,
  }
}

/** One booking of an exchange: what it was charged then, of credits and of a plan. */
type End = Pick<Replaced, 'id' | 'charge' | 'covered'> & Pick<StatementLine, 'booking' | 'balance'>

/** Returns the line of a booking of an exchange. @param now its entry @param isLast whether no later end has replaced this one */
function lineOf(
  { id, charge, covered, booking, balance }: End,
  before: readonly Replaced[],
  now: HistoryEntry | undefined,
  isLast: boolean,
): StatementLine {
  const booked = before.filter(({ number }) => number !== undefined)
  const last = booked.at(-1)
  return {
    booking,
    begunAt: timeOfId(id),
    amount: (last?.charge ?? 0n) - charge,
    ofPlan: (last?.covered ?? 0n) - covered,
    balance,
    of: { kind: 'exchange', id, key: now?.key, entry: isLast ? now : undefined },
    model: now?.notes.model,
    corrects: booked[0]?.number,
  }
}

function exchangeLine(entry: HistoryEntry, replaced: readonly Replaced[]): StatementLine {
  const { credits: charge, plan: covered } = moneyLine(entry)
  const end = { ...entry, charge, covered, booking: entry.booking as Booking }
  return lineOf(
    end,
    replaced.filter(({ id }) => id === entry.id),
    entry,
    true,
  )
}

/** @param now the entry that has replaced this end */
function replacedLine(end: Replaced, replaced: readonly Replaced[], now: HistoryEntry | undefined): StatementLine[] {
  if (end.number === undefined) return []
  const own = replaced.filter(({ id }) => id === end.id)
  const booking = { number: end.number, at: Number(end.row['booked']) }
  return [
    lineOf({ ...end, booking, balance: bigintOf(end.row, 'balance') }, own.slice(0, own.indexOf(end)), now, false),
  ]
}

function grantLine(row: Row): StatementLine {
  const at = Number(row['at'])
  const notes = JSON.parse(String(row['notes'])) as Grant['notes']
  return {
    booking: { number: Number(row['booking']), at },
    begunAt: at,
    amount: bigintOf(row, 'amount'),
    ofPlan: 0n,
    balance: bigintOf(row, 'balance'),
    of: { kind: 'grant', grant: { id: String(row['id']), notes } },
    model: undefined,
    corrects: undefined,
  }
}
