/** The rows of accounts: their columns, how they are inserted and read, and how an account becomes one of several keys. */
import { bigintOf, insertAll, nextNo, type Row, type Sql, type SqlValue } from './database.ts'
import { DAY_COLUMNS } from './day-sums.ts'

/** Prefix of the ids of accounts that were not made with a key. */
export const ACCOUNT_PREFIX = 'bal_'

/** What an operator notes of a key or of a balance. */
export type Metadata = Readonly<Record<string, string>>

/** An account with the sums that the records know of it. */
export interface RecordedAccount {
  readonly id: string
  /** The operator's own name for it, and what a shop calls it; both may be empty. */
  readonly name: string
  readonly externalId: string
  readonly metadata: Metadata
  /** Its plan as JSON. Undefined for none. */
  readonly plan: string | undefined
  readonly createdAt: number
  /** Whether several keys may spend from it. */
  readonly shared: boolean
  /** The number of its grants, and their sum in nano-credits. */
  readonly grants: number
  readonly granted: bigint
  /** What its recorded exchanges were charged, and the number of the latest of its recorded entries. */
  readonly settled: bigint
  readonly ordinal: number
  /** When its latest recorded exchange ended, in milliseconds since the epoch. */
  readonly endedAt: number
  /** True until the store has all its grants. */
  readonly pending: boolean
}

/** The sums of an account, as far as they are recorded. */
export type AccountSums = Pick<
  RecordedAccount,
  'id' | 'plan' | 'shared' | 'grants' | 'granted' | 'settled' | 'ordinal' | 'endedAt'
>

/** The columns of an account `a` with its totals `t`. */
export const SUMS = `a.name AS account_name, a.plan, a.external, a.metadata AS account_metadata, a.created AS account_created,
  a.shared, a.grants, a.granted, COALESCE(t.settled, 0) AS settled, COALESCE(t.ordinal, 0) AS ordinal,
  COALESCE(t.changed, 0) AS ended_at`

/** What is written of an account and of a key that the records only have. */
export interface Changed {
  readonly pending: boolean
  /** When it was changed last, in milliseconds since the epoch. */
  readonly changed: number
}

/** Adds grants. @param rows account, number, id, amount, time, notes, balance after it, booking */
export function insertGrants(sql: Sql, rows: readonly (readonly SqlValue[])[]): Promise<void> {
  return insertAll(sql, 'INSERT INTO grants (account, n, id, amount, at, notes, balance, booking)', rows)
}

/** An account as it is inserted. */
export interface NewAccount
  extends
    Changed,
    Pick<RecordedAccount, 'id' | 'grants' | 'granted' | 'createdAt' | 'shared' | 'name' | 'externalId' | 'metadata'> {
  readonly no: number
  readonly plan?: string | undefined
}

/** Returns the first number that neither an account nor a key has. An account and the key of its name have one number. */
export async function nextNumber(sql: Sql): Promise<number> {
  return Math.max(await nextNo(sql, 'accounts'), await nextNo(sql, 'keys'))
}

/** Inserts accounts. */
export async function insertRows(sql: Sql, accounts: readonly NewAccount[]): Promise<void> {
  await insertAll(
    sql,
    'INSERT INTO accounts (no, id, name, external, plan, plan_until, metadata, shared, created, grants, granted, pending, changed)',
    accounts.map((account): SqlValue[] => [
      account.no,
      account.id,
      account.name,
      account.externalId || null,
      account.plan ?? null,
      untilOf(account.plan),
      JSON.stringify(account.metadata),
      account.shared ? 1 : 0,
      account.createdAt,
      account.grants,
      account.granted,
      account.pending ? 1 : 0,
      account.changed,
    ]),
    '',
  )
}

/** What a new account is given, before its number is known. */
type Given = Pick<NewAccount, 'id' | 'granted' | 'plan'>

/** Returns the first grants of a new account: its credits, and its plan, which adds none. */
export function firstGrants({ id, granted, plan }: Given, notes: Metadata = { reason: 'created' }) {
  const bought = { ...notes, reason: 'plan', change: 'bought' }
  return [
    ...(granted === 0n ? [] : [{ id: `${id}-first`, amount: granted, notes }]),
    ...(plan === undefined ? [] : [{ id: `${id}-plan`, amount: 0n, notes: bought }]),
  ]
}

/** Inserts new accounts with their first grants. @param at the time of these by the store's clock, in milliseconds since the epoch */
export async function insertNew(
  sql: Sql,
  accounts: readonly Omit<NewAccount, 'grants'>[],
  { at, notes }: { readonly at: number; readonly notes?: Metadata },
): Promise<void> {
  const given = accounts.map(account => ({ ...account, first: firstGrants(account, notes) }))
  await insertRows(
    sql,
    given.map(({ first, ...account }) => ({ ...account, grants: first.length })),
  )
  await insertGrants(
    sql,
    given.flatMap(({ no, granted, first }) =>
      first.map((grant, i) => [no, i + 1, grant.id, grant.amount, at, JSON.stringify(grant.notes), granted, i + 1]),
    ),
  )
}

/** Returns when a plan ends. Null for none, and for one that does not end. */
function untilOf(plan: string | undefined): number | null {
  return (plan === undefined ? undefined : (JSON.parse(plan) as { readonly until?: number }).until) ?? null
}

/** Returns the plan of an account as JSON. Undefined for none. */
export async function planIn(sql: Sql, account: string): Promise<string | undefined> {
  const [row] = await sql.all('SELECT plan FROM accounts WHERE id = ?', [account])
  return (row?.['plan'] as string | null | undefined) ?? undefined
}

/** Changes the plan of an account. */
export async function writePlan(sql: Sql, account: string, plan: string): Promise<void> {
  await sql.all('UPDATE accounts SET plan = ?, plan_until = ? WHERE id = ?', [plan, untilOf(plan), account])
}

/**
 * Returns the accounts whose plans end after a time and until another, with the credits that they have in nano-credits, the first one first, without those whose only key is deleted.
 * Times are in milliseconds since the epoch.
 */
export async function plansEnding(
  sql: Sql,
  { after, until }: { readonly after: number; readonly until: number },
): Promise<{ readonly account: string; readonly plan: string; readonly balance: bigint }[]> {
  const rows = await sql.all(
    `SELECT a.id, a.plan, a.granted - COALESCE(t.settled, 0) AS balance FROM accounts a
     LEFT JOIN totals t ON t.account = a.no WHERE a.plan_until > ? AND a.plan_until <= ?
     AND NOT EXISTS (SELECT 1 FROM keys k WHERE k.no = a.no AND a.shared = 0 AND k.status = 'deleted')
     ORDER BY a.plan_until, a.no`,
    [after, until],
  )
  return rows.map(row => ({ account: String(row['id']), plan: String(row['plan']), balance: bigintOf(row, 'balance') }))
}

/** The tables that have sums by key, with what is copied to them when an account is shared. */
const SUMS_BY_KEY = [
  `INSERT INTO key_totals (account, key, settled, requests, input, output, quarantined)
   SELECT account, account, settled, requests, input, output, quarantined FROM totals WHERE account = ?`,
  `INSERT INTO day_keys (key, account, {COLUMNS}) SELECT account, account, {COLUMNS} FROM day_accounts WHERE account = ?`,
  `INSERT INTO key_models (key, account, model, requests, input, output, charge)
   SELECT account, account, model, requests, input, output, charge FROM account_models WHERE account = ?`,
  `INSERT INTO day_key_models (key, account, day, model, requests, input, output, charge)
   SELECT account, account, day, model, requests, input, output, charge FROM day_account_models WHERE account = ?`,
] as const

/**
 * Lets several keys spend from an account. What was charged until now, was charged by the key that it was made with.
 * @param at the time by the store's clock, in milliseconds since the epoch
 * @returns the number of the account; undefined if the records have no such account
 */
export async function share(sql: Sql, account: string, at: number): Promise<number | undefined> {
  const [row] = await sql.all('SELECT no, shared FROM accounts WHERE id = ?', [account])
  if (!row) return undefined
  const no = Number(row['no'])
  if (Number(row['shared']) === 1) return no
  for (const copy of SUMS_BY_KEY) await sql.all(copy.replaceAll('{COLUMNS}', DAY_COLUMNS), [no])
  await sql.all('UPDATE accounts SET shared = 1, pending = 1, changed = ? WHERE no = ?', [at, no])
  return no
}

/** Notes that the store knows the grants of an account as they were read. */
export async function noteApplied(
  sql: Sql,
  { id, grants }: Pick<RecordedAccount, 'id' | 'grants'>,
  at: number,
): Promise<void> {
  await sql.all(
    `UPDATE accounts SET pending = 0, changed = CASE WHEN changed > ? THEN changed ELSE ? END
     WHERE id = ? AND grants = ? AND pending = 1`,
    [at, at, id, grants],
  )
}

/** Reads the sums of an account from a row with SUMS. */
export function accountOf(row: Row): RecordedAccount {
  return {
    id: String(row['id']),
    name: String(row['account_name']),
    externalId: String(row['external'] ?? ''),
    plan: row['plan'] === null ? undefined : String(row['plan']),
    metadata: JSON.parse(String(row['account_metadata'])) as Metadata,
    createdAt: Number(row['account_created']),
    shared: Number(row['shared']) === 1,
    grants: Number(row['grants']),
    granted: bigintOf(row, 'granted'),
    settled: bigintOf(row, 'settled'),
    ordinal: Number(row['ordinal']),
    endedAt: Number(row['ended_at']),
    pending: Number(row['pending']) === 1,
  }
}
