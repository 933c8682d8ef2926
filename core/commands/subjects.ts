/** What commands on keys and balances share: finding them, reading amounts and times, and reporting what was done. */
import { duration } from '../config/units.ts'
import type { Keys } from '../keys/keys.ts'
import { isPublicId } from '../keys/secrets.ts'
import type { Reached } from '../keys/recorded.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Environment } from '../lib/environment.ts'
import { formatCredits, MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import type { RecordedAccount } from '../records/account-rows.ts'
import type { Whose } from '../records/entry.ts'
import { type RecordedKey, whoseOf } from '../records/key-records.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { UsageError } from './program.ts'

/** How a command prints its result. */
export interface Output {
  readonly json?: boolean
}

/** What a command is about. */
export interface Subject {
  readonly kind: 'key' | 'balance'
  /** As it was given; of a key, its id or its secret. */
  readonly id: string
}

/** What a command is about, as it was found. */
export interface Found {
  readonly id: string
  readonly account: string
  readonly whose: Whose
}

/** Finds a key or a balance. @throws UsageError for an id that nothing has */
export async function found(ledger: Ledger, keys: Keys, { kind, id }: Subject): Promise<Found> {
  if (kind === 'balance') {
    const account = await findBalance(ledger, id)
    return { id: account.id, account: account.id, whose: { account: account.id } }
  }
  const key = await find(keys, id)
  return { id: key.id, account: key.account, whose: whoseOf(key) }
}

/** Finds a balance by its id. @throws UsageError for an id that no balance has */
export async function findBalance({ records }: Ledger, id: string): Promise<RecordedAccount> {
  const account = await orUnavailable(records.accounts.get(id))
  if (account) return account
  const which = isPublicId(id) ? id : 'with this id'
  throw new UsageError(`there is no balance ${which}; find it with npx tollgate balances list --search TEXT`)
}

/** Finds a key by its id or secret. @throws UsageError if no key has it */
export async function find(keys: Keys, id: string): Promise<RecordedKey> {
  const key = await keys.changes.record(id)
  if (key) return key
  const which = isPublicId(id) ? id : 'with this id or secret'
  throw new UsageError(
    `there is no key ${which}; find a key by its name or the end of its secret with npx tollgate keys list --search TEXT`,
  )
}

/** What to add about a change that is not in force yet. */
const NOT_IN_STORE: Readonly<Record<Reached, string | undefined>> = {
  store: undefined,
  records:
    'The records have this change, but the store did not answer. A running gateway writes it to the store later. Until then, the store has what it had before.',
  unknown:
    'The database failed while this was recorded, so it may or may not have been done. Look at `npx tollgate keys list` before you use it.',
}

/** Reports a change that is not in force yet. */
export function report(environment: Environment, reached: Reached | undefined): void {
  const words = reached && NOT_IN_STORE[reached]
  if (words !== undefined) environment.complain(words)
}

/** Parses an amount of credits. @throws UsageError */
export function amount(text: string): bigint {
  // `parseDecimal` takes at most nine digits before the point. A longer number is an amount, but too large.
  const nano = /^\d{10,}$/.test(text) ? MAX_AMOUNT + 1n : parseDecimal(text)
  if (/^\d+\.\d{10,}$/.test(text))
    throw new UsageError(`"${text}" has too many digits; an amount has at most nine decimal places`)
  if (nano === undefined || nano === 0n)
    throw new UsageError(`"${text}" is not an amount; use a plain decimal above zero, such as 25 or 0.5`)
  if (nano > MAX_AMOUNT)
    throw new UsageError(`"${text}" exceeds the maximum of ${formatCredits(MAX_AMOUNT)} credits at a time`)
  return nano
}

/** Parses `30d`, `12h`, or a date. @throws UsageError unless it is in the future */
export function expiry(text: string | undefined, now: number): number | undefined {
  if (text === undefined) return undefined
  const at = /^\d{1,6}[smhd]$/.test(text) ? now + duration(text) : Date.parse(text)
  if (Number.isNaN(at) || at <= now)
    throw new UsageError(`"${text}" is not a time in the future; use 30d, 12h, or a date such as 2030-01-31`)
  return at
}

/** Returns a member of a view as one text. */
export function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.join(' ')
  if (value === null || value === undefined) return '-'
  return typeof value === 'string' ? value : JSON.stringify(value)
}
