/** Which accounts will be used up soon. */
import { bigintOf, type Database } from './database.ts'
import { dayOf, KINDS } from './entry.ts'

/** An account whose credits will be used up soon. Amounts are nano-credits. */
export interface RunningOut {
  readonly id: string
  readonly name: string
  /** Of the key that it was made with; empty if there was none. */
  readonly hint: string
  readonly balance: bigint
  /** What it used on a day in the mean. */
  readonly daily: bigint
}

/** Days over which the mean is taken, today included; fewer for an account that is used since a later day. */
const MEAN_DAYS = 7

/**
 * Returns the accounts without a valid plan that have credits left and a key that may use them, which last for less than some days at their mean use, the first to be used up
 * first.
 * @param now milliseconds since the epoch
 * @param days a whole number
 */
export async function runningOut(database: Database, now: number, days: number, count: number): Promise<RunningOut[]> {
  const today = dayOf(now)
  const rows = await database.all(
    `SELECT a.id, COALESCE(k.name, a.name) AS name, COALESCE(k.hint, '') AS hint, a.granted - t.settled AS balance, u.charge, u.days FROM
      (SELECT account, CAST(SUM(charge) AS BIGINT) AS charge, ? - MIN(day) AS days FROM day_accounts
       WHERE day > ? AND day <= ? AND charge > 0 GROUP BY account) u
     JOIN accounts a ON a.no = u.account JOIN totals t ON t.account = u.account LEFT JOIN keys k ON k.no = a.no
     WHERE EXISTS (SELECT 1 FROM keys o WHERE o.account = a.no AND o.status = 'active'
      AND (o.expires IS NULL OR o.expires > ?)) AND (a.plan IS NULL OR a.plan_until <= ?) AND a.granted > t.settled
     AND (a.granted - t.settled) * u.days < u.charge * ?
     ORDER BY 1e0 * (a.granted - t.settled) * u.days / u.charge, a.id LIMIT ?`,
    [today + 1, today - MEAN_DAYS, today, now, now, days, count],
  )
  return rows.map(row => ({
    id: String(row['id']),
    name: String(row['name']),
    hint: String(row['hint']),
    balance: bigintOf(row, 'balance'),
    daily: bigintOf(row, 'charge') / bigintOf(row, 'days'),
  }))
}

/** The minute of a row: both databases divide whole numbers without a rest. */
const MINUTE = 'ended / 60000'

/** Requests of a minute. */
export interface Minute {
  /** Minutes since the epoch. */
  readonly minute: number
  /** Exchanges that were served, and requests that failed because of the gateway, an account or a provider. */
  readonly served: number
  readonly errors: number
}

/** Returns the requests of each minute of the last hour, as far as they are recorded. @param since the id of its beginning */
export async function lastHour(database: Database, since: Uint8Array): Promise<Minute[]> {
  const served = await database.all(
    `SELECT ${MINUTE} AS minute, COUNT(*) AS count FROM exchanges WHERE id >= ? AND outcome = 0 AND kind <> ${KINDS.indexOf('credit')} GROUP BY 1`,
    [since],
  )
  const errors = await database.all(
    `SELECT ${MINUTE} AS minute, CAST(SUM(alike) AS BIGINT) AS count FROM failures
     WHERE id >= ? AND who NOT IN ('client', 'key') GROUP BY 1`,
    [since],
  )
  const minutes = new Map<number, { minute: number; served: number; errors: number }>()
  for (const [rows, name] of [
    [served, 'served'],
    [errors, 'errors'],
  ] as const)
    for (const row of rows) {
      const minute = Number(row['minute'])
      const sum = minutes.get(minute) ?? { minute, served: 0, errors: 0 }
      sum[name] += Number(row['count'])
      minutes.set(minute, sum)
    }
  return [...minutes.values()].sort((one, other) => one.minute - other.minute)
}
