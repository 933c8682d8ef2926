/** Which keys to list, in which order, as SQL. */
import { bigintOf, type Database, type Sql, type SqlValue, Where } from './database.ts'

/** What a key can be found by: its state, as an operator sees it. Exhausted and expired keys are not disabled. */
export const KEY_STATES = ['active', 'disabled', 'expired', 'exhausted', 'deleted'] as const
/** One of them. */
export type KeyState = (typeof KEY_STATES)[number]

/** The orders of a list. Without a minus sign, the smallest come first. */
export const KEY_ORDERS = ['created', '-created', 'balance', '-balance', 'used', '-used', 'expires', '-active'] as const
/** One of them. `-active`: the keys that were used last come first. */
export type KeyOrder = (typeof KEY_ORDERS)[number]

/** Which keys to list. */
export interface KeySearch {
  /** Part of the id, the name, the batch, the label or the hint, or of the external id of the balance. */
  readonly text?: string | undefined
  readonly type?: string | undefined
  readonly batch?: string | undefined
  /** The id of the balance that they spend from. */
  readonly account?: string | undefined
  /** Without a state, all keys that are not deleted. */
  readonly state?: KeyState | undefined
  /** The current time in milliseconds since the epoch. A key whose expiry is before it is expired. */
  readonly now: number
  /** `created` by default. */
  readonly sort?: KeyOrder | undefined
  /** Where the page before ended. */
  readonly after?: KeyCursor | undefined
  readonly count: number
}

/** A place in a list of keys: a key, and what the order compared of it then. */
export interface KeyCursor {
  readonly id: string
  /** Undefined if the keys are in the order of their creation. */
  readonly value: bigint | undefined
}

/** The number of keys, and their sums in nano-credits. */
export interface KeyTotals {
  readonly keys: number
  readonly granted: bigint
  readonly settled: bigint
}

/** The keys `k`, with their accounts `a` and the totals `t` of these. */
export const KEYS = 'keys k JOIN accounts a ON a.no = k.account LEFT JOIN totals t ON t.account = a.no'

/** The columns that a search looks in. */
const SEARCHED = ['id', 'name', 'batch', 'label', 'hint'] as const

const BALANCE = 'a.granted - COALESCE(t.settled, 0)'
/** What a key was charged on other accounts than its present one. */
export const ELSEWHERE =
  '(SELECT CAST(COALESCE(SUM(e.settled), 0) AS BIGINT) FROM key_totals e WHERE e.key = k.no AND e.account <> k.account)'
/** What a key was charged in its life. */
export const USED = `(CASE WHEN a.shared = 0 THEN COALESCE(t.settled, 0)
  ELSE (SELECT CAST(COALESCE(SUM(u.settled), 0) AS BIGINT) FROM key_totals u WHERE u.key = k.no) END)`
const SPENT = `(${BALANCE} <= 0 OR (k.cap IS NOT NULL AND ${USED} >= k.cap))`
/** Whether a key that has not expired has neither credits nor a plan. A window that is used up renews, so it does not count. */
const EXHAUSTED = `(${SPENT} AND (a.plan IS NULL OR (a.plan_until IS NOT NULL AND a.plan_until <= ?)))`
const UNEXPIRED = "k.status = 'active' AND (k.expires IS NULL OR k.expires > ?)"

const STATES: Readonly<Record<KeyState, (now: number) => readonly [condition: string, ...values: SqlValue[]]>> = {
  active: now => [`${UNEXPIRED} AND NOT ${EXHAUSTED}`, now, now],
  disabled: () => ["k.status = 'disabled'"],
  expired: now => ["k.status = 'active' AND k.expires <= ?", now],
  exhausted: now => [`${UNEXPIRED} AND ${EXHAUSTED}`, now, now],
  deleted: () => ["k.status = 'deleted'"],
}

/** What each order compares. Keys without an expiry come last. */
const ORDERS: Readonly<Record<string, string>> = {
  balance: BALANCE,
  used: USED,
  expires: `COALESCE(k.expires, ${Number.MAX_SAFE_INTEGER})`,
  active: 'COALESCE(t.changed, 0)',
}

/** What orders compare of a key. */
interface Compared {
  readonly id: string
  readonly granted: bigint
  readonly settled: bigint
  readonly used: bigint
  readonly expiresAt: number | undefined
  readonly endedAt: number
}

/** Returns the place after a key in a list. */
export function cursorAt(key: Compared, sort: KeyOrder): KeyCursor {
  const values: Readonly<Record<string, bigint>> = {
    balance: key.granted - key.settled,
    used: key.used,
    expires: BigInt(key.expiresAt ?? Number.MAX_SAFE_INTEGER),
    active: BigInt(key.endedAt),
  }
  return { id: key.id, value: values[sort.replace('-', '')] }
}

/** Returns the conditions and the order of a search over KEYS. */
export function searchOf(
  dialect: Database['dialect'],
  { text, type, batch, account, state, now, sort = 'created', after }: Omit<KeySearch, 'count'>,
): { where: string; order: string; values: SqlValue[] } {
  const where = new Where()
  const descending = sort.startsWith('-')
  const column = ORDERS[sort.replace('-', '')]
  const [than, direction] = descending ? ['<', 'DESC'] : ['>', 'ASC']
  if (after !== undefined) {
    const number = '(SELECT no FROM keys WHERE id = ?)'
    const { id, value } = after
    if (column === undefined || value === undefined) where.add(`k.no ${than} ${number}`, id)
    else where.add(`(${column} ${than} ? OR (${column} = ? AND k.no ${than} ${number}))`, value, value, id)
  }
  const [condition, ...values] = state === undefined ? ["k.status <> 'deleted'"] : STATES[state](now)
  where
    .addIf('k.type = ?', type)
    .addIf('k.batch = ?', batch)
    .addIf('k.account = (SELECT no FROM accounts WHERE id = ?)', account)
    .add(condition, ...values)
    .search(dialect, text, [...SEARCHED.map(name => `k.${name}`), 'a.external'])
  return {
    where: where.text,
    order: `ORDER BY ${column === undefined ? '' : `${column} ${direction}, `}k.no ${direction}`,
    values: where.values,
  }
}

/** Counts the keys of each type that are not deleted. */
export async function countByType(sql: Sql): Promise<Map<string, number>> {
  const rows = await sql.all("SELECT type, COUNT(*) AS keys FROM keys WHERE status <> 'deleted' GROUP BY type")
  return new Map(rows.map(row => [String(row['type']), Number(row['keys'])]))
}

/** Counts the keys that spend from an account, and those that were created since a time and deleted. */
export async function countOn(sql: Sql, account: string, sinceMs: number): Promise<number> {
  const text = `SELECT COUNT(*) AS keys FROM keys WHERE account = (SELECT no FROM accounts WHERE id = ?)
    AND (status <> 'deleted' OR created > ?)`
  const [row] = await sql.all(text, [account, sinceMs])
  return Number(row?.['keys'])
}

/** Counts the keys of a search, and adds up what their accounts were granted and charged. */
export async function keyTotals(
  database: Database,
  search: Omit<KeySearch, 'count' | 'after' | 'sort'>,
): Promise<KeyTotals> {
  const { where, values } = searchOf(database.dialect, search)
  // What several keys share counts once.
  const [row] = await database.all(
    `SELECT (SELECT COUNT(*) FROM ${KEYS} ${where}) AS keys, ${sumOf('a.granted', 'granted')}, ${sumOf('t.settled', 'settled')}
     FROM accounts a LEFT JOIN totals t ON t.account = a.no WHERE a.no IN (SELECT k.account FROM ${KEYS} ${where})`,
    [...values, ...values],
  )
  const sum = (name: string): bigint => bigintOf(row, `${name}_high`) * 1_000_000_000n + bigintOf(row, `${name}_low`)
  return { keys: Number(row?.['keys']), granted: sum('granted'), settled: sum('settled') }
}

/** Adds up a column in two parts, since the sum may exceed 64 bits. */
export function sumOf(column: string, name: string): string {
  return `${whole(`${column} / 1000000000`)} AS ${name}_high, ${whole(`${column} % 1000000000`)} AS ${name}_low`
}

function whole(text: string): string {
  return `CAST(COALESCE(SUM(${text}), 0) AS BIGINT)`
}
