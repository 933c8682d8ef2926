/** Imports keys that customers bring from another gateway. */
import { randomBytes } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits, MAX_AMOUNT, NANO } from '../money/credits.ts'
import type { Also } from '../records/database.ts'
import { type Imported, type ImportedKey, importKeys, NotImported, type Refusal } from '../records/key-import.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { isPlain, printable } from '../lib/printable.ts'
import { prefixOf, SECRET_MIN } from '../lib/prefixes.ts'
import { newPlan, planFrom, spanOf } from '../plans/plan.ts'
import { digestsOf } from '../keys/secrets.ts'

/** The columns of a file, all of them texts. A row has a secret or a hash; the others may be empty. */
export const COLUMNS = [
  'secret',
  'hash',
  'hint',
  'type',
  'name',
  'credits',
  'cap',
  'expires',
  'status',
  'balance',
  'external_id',
  'balance_name',
  'plan',
  'plan_ends',
  'plan_used',
] as const
/** A row of a file, by column. */
export type ImportRow = Readonly<Partial<Record<(typeof COLUMNS)[number], string>>>

/** Keys that are written to the store at the same time. */
const SIDE_BY_SIDE = 64
/** Keys that are written to the store before the next are read. */
const PAGE = 500

/** How rows are imported. */
export interface ImportWish {
  readonly config: Pick<Config, 'keyTypes' | 'keys'>
  /** Milliseconds since the epoch. */
  readonly now: number
  /** The line of the first row. */
  readonly firstLine: number
  /** The key type of rows without one. */
  readonly type: string | undefined
  /** How many of the units that amounts are given in make one credit, in billionths. */
  readonly perCredit: bigint
  /** Whether nothing is changed. */
  readonly isTrial: boolean
}

/** What an import has done or would do. */
export interface ImportReport {
  readonly refused: readonly Refusal[]
  /** Rows of deleted keys, which are left out. */
  readonly leftOut: number
  /** Undefined if rows are refused. */
  readonly result: Imported | undefined
  /** Whether the store has all of it, so that it is in force. */
  readonly inForce: boolean
}

/**
 * Imports keys: all rows, or none if one is refused. A key that was imported before stays as it is, so that repeating an
 * import changes nothing.
 * @param also written in the transaction that records it
 * @throws GatewayError unavailable if nothing may have been imported
 */
export async function importRows(
  ledger: Ledger,
  rows: readonly ImportRow[],
  wish: ImportWish,
  also?: (result: Imported) => Also,
): Promise<ImportReport> {
  const refused: Refusal[] = []
  const keys: ImportedKey[] = []
  const lines = new Map<string, number>()
  let leftOut = 0
  const boughtAt = ledger.continuity.now()
  for (const [index, row] of rows.entries()) {
    const line = wish.firstLine + index
    if (row.status === 'deleted') {
      leftOut++
      continue
    }
    const read = readRow(row, line, { ...wish, boughtAt })
    if (typeof read === 'string') {
      refused.push({ line, reason: read })
      continue
    }
    const earlier = read.digests.map(digest => lines.get(digest)).find(found => found !== undefined)
    if (earlier !== undefined) refused.push({ line, reason: `line ${earlier} has the same secret` })
    for (const digest of read.digests) lines.set(digest, line)
    keys.push(read)
  }
  const none = { leftOut, result: undefined, inForce: false }
  if (refused.length > 0) return { ...none, refused }
  const { records } = ledger
  const { isTrial } = wish
  try {
    const terms = { at: boughtAt, newId: () => randomBytes(9).toString('hex'), isTrial }
    const result = await orUnavailable(importKeys(records.database, keys, terms, also))
    // An earlier import may have been interrupted.
    return { refused, leftOut, result, inForce: await inForce(ledger, [...result.ids, ...result.knownIds]) }
  } catch (thrown) {
    if (!(thrown instanceof NotImported)) throw thrown
    return { ...none, refused: thrown.refused, result: thrown.result }
  }
}

/** Writes imported keys to the store. @returns whether it has all of them; otherwise a running gateway writes them later */
async function inForce({ records, restorer, continuity }: Ledger, ids: readonly string[]): Promise<boolean> {
  try {
    for (let from = 0; from < ids.length; from += PAGE) {
      const keys = (await records.keys.withIds(ids.slice(from, from + PAGE))).filter(({ pending }) => pending)
      if (keys.length === 0) continue
      await sideBySide(keys, SIDE_BY_SIDE, key => restorer.restore(key))
      await records.keys.applied(keys, continuity.now())
    }
    return true
  } catch {
    return false
  }
}

/** Reads a row. @returns why it is refused, if it is */
function readRow(
  row: ImportRow,
  line: number,
  {
    config: { keyTypes, keys },
    now,
    type: otherwise,
    perCredit,
    boughtAt,
  }: Pick<ImportWish, 'config' | 'now' | 'type' | 'perCredit'> & { readonly boughtAt: number },
): ImportedKey | string {
  const secret = secretIn(row, keys)
  if (typeof secret === 'string') return secret
  const type = row.type || otherwise
  if (type === undefined) return 'it has no type'
  if (!keyTypes.has(type)) return 'there is no key type with this name'
  const { balance = '', external_id: externalId = '', status = '' } = row
  if (externalId.length > 100 || !isPlain(externalId))
    return 'external_id must have at most 100 characters, in one line'
  if (!/^(?:(?:key|bal)_[\w-]{1,60})?$/.test(balance)) return 'balance must be the id of a balance'
  if (balance !== '' && externalId !== '') return 'give either balance or external_id'
  if (!['', 'active', 'disabled'].includes(status)) return 'status must be active, disabled or deleted'
  const credits = amountIn(row.credits, 'credits', perCredit)
  if (typeof credits === 'string') return credits
  const cap = amountIn(row.cap, 'cap', perCredit)
  if (typeof cap === 'string') return cap
  if (cap !== undefined && cap < 0n) return 'cap must not be below zero'
  const expiresAt = row.expires ? timeIn(row.expires) : undefined
  if (Number.isNaN(expiresAt))
    return 'expires must be a time such as 2030-01-31 or 2030-01-31T12:00:00Z, or the seconds (not milliseconds) of a Unix time'
  const plan = planIn(row, { keyTypes, perCredit, at: boughtAt })
  if (plan && 'refused' in plan) return plan.refused
  const record = {
    id: `key_${randomBytes(9).toString('hex')}`,
    type,
    name: nameFrom(row.name),
    batch: '',
    status: status === 'disabled' ? ('disabled' as const) : ('active' as const),
    expiresAt,
    createdAt: now,
    version: 1,
    digest: secret.digests[0] ?? '',
    label: secret.hint,
    hint: secret.hint,
    rotation: 0,
    cap,
    lifetimeMs: undefined,
    metadata: {},
  }
  return {
    line,
    record,
    digests: secret.digests,
    balanceName: nameFrom(row.balance_name),
    account: balance || undefined,
    externalId,
    credits,
    plan: plan?.json,
  }
}

/**
 * Reads the plan of a row. What was used of the period that runs counts in its widest window until that begins anew.
 * @returns undefined if it has none; why it is refused, if it is
 */
function planIn(
  { plan: type = '', plan_ends: ends = '', plan_used: given = '' }: ImportRow,
  { keyTypes, perCredit, at }: Pick<ImportWish, 'perCredit'> & Pick<Config, 'keyTypes'> & { readonly at: number },
): { readonly json: string } | { readonly refused: string } | undefined {
  if (type === '') return ends + given === '' ? undefined : { refused: 'plan_ends and plan_used need a plan' }
  const terms = keyTypes.get(type)?.plan
  if (!terms) return { refused: 'plan must be the name of a key type that has a plan' }
  const end = ends === '' ? undefined : timeIn(ends)
  if (Number.isNaN(end)) return { refused: 'plan_ends must be a time such as 2030-01-31' }
  const stored = { ...newPlan(terms, at, type), ...(end !== undefined && { until: end }) }
  const plan = planFrom(JSON.stringify(stored))
  const { widest } = plan
  const window = widest === undefined ? undefined : plan.windows[widest]
  if (given === '') return { json: JSON.stringify(stored) }
  const until = widest === undefined ? undefined : spanOf(plan, widest, at)?.until
  if (!window || until === undefined || window.models || window.timing.kind === 'first use')
    return { refused: 'plan_used needs a plan whose widest window begins anew at known times and counts all models' }
  const count = /^\d{1,12}$/.test(given) ? BigInt(given) : ''
  const used = window.unit === 'credits' ? amountIn(given, 'plan_used', perCredit) : count
  if (typeof used === 'string' || used === undefined || used < 0n)
    return { refused: `plan_used must be a number of ${window.unit}, not below zero` }
  // No window allows less than nothing.
  const before = String(used < window.amount ? used : window.amount)
  return { json: JSON.stringify({ ...stored, extras: { [widest ?? 0]: { amount: '0', before, until } } }) }
}

/** Reads the secret of a row, or its hash. @returns why it is refused, if it is */
function secretIn(
  { secret = '', hash = '', hint = '' }: ImportRow,
  { prefixes, importSuffix }: Config['keys'],
): { readonly digests: readonly string[]; readonly hint: string } | string {
  if ((secret === '') === (hash === '')) return 'give either secret or hash'
  if (secret !== '') {
    const prefix = prefixOf(secret, prefixes)
    if (prefix === undefined)
      return `secret must begin with ${['sk-', ...prefixes].join(' or ')}, with ${SECRET_MIN} to 180 letters, digits, - and _ after that; keys.prefixes lists other beginnings`
    return { digests: digestsOf(secret, importSuffix), hint: `${prefix}...${secret.slice(-4)}` }
  }
  const [, how, hex = ''] = /^(sha256|sha256-suffix):([\da-fA-F]{64})$/.exec(hash) ?? []
  if (how === undefined) return 'hash must be sha256: or sha256-suffix: and 64 hexadecimal digits'
  if (how === 'sha256-suffix' && importSuffix === undefined) return 'a hash with a suffix needs keys.importSuffix'
  if (!/^(?:(?:[\w-]{0,17}\.\.\.)?[\w-]{4})?$/.test(hint))
    return 'hint must have the last four characters of the secret'
  const shown = hint.includes('...') ? hint : `...${hint || '????'}`
  return { digests: [Buffer.from(hex, 'hex').toString('base64url')], hint: shown }
}

/** Returns a name as it may stand here: in one line, and not too long. It is for the operator only. */
function nameFrom(text = ''): string {
  return printable(text.toWellFormed().replaceAll(/\s+/g, ' ')).trim().slice(0, 200)
}

/** Reads a time in milliseconds since the epoch. NaN if the text is not a time. */
function timeIn(text: string): number {
  // In new-api, 0 is over.
  if (/^(?:0|\d{9,11})$/.test(text)) return Number(text) * 1000
  const [, day] =
    /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/.exec(text) ?? []
  const ms = Date.parse(`${day}T00:00:00Z`)
  const isDay = !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(day ?? '-')
  return isDay ? Date.parse(text) : Number.NaN
}

/**
 * Reads an amount in nano-credits, rounded down; undefined for an empty one.
 * @returns why it is refused, if it is
 */
function amountIn(text: string | undefined, column: string, perCredit: bigint): bigint | string | undefined {
  if (!text) return undefined
  if (text === 'unlimited') return `${column} must be a number: nothing is unlimited here`
  const [, sign = '', whole, decimals = ''] = /^(-?)(\d{1,18})(?:\.(\d{1,9}))?$/.exec(text) ?? []
  if (whole === undefined) return `${column} must be a plain decimal, such as 12.5`
  const nano = (BigInt(whole) * NANO + BigInt(decimals.padEnd(9, '0'))) * NANO
  const amount = sign === '' ? nano / perCredit : -((nano + perCredit - 1n) / perCredit)
  return amount > MAX_AMOUNT || amount < -MAX_AMOUNT
    ? `${column} must be below a million credits; are the units of one credit given (--per-credit)?`
    : amount
}

/** Returns what the audit log says of an import. */
export function importDetails({ ids, newBalances, plans, added }: Imported) {
  return { keys: ids.length, balances: newBalances, plans, credits: formatCredits(added) }
}

/** Returns the report of an import. Amounts are exact decimals of credits. */
export function importView({ refused, leftOut, result, inForce }: ImportReport, isTrial: boolean) {
  return {
    dry_run: isTrial,
    imported: isTrial ? 0 : (result?.ids.length ?? 0),
    to_import: isTrial ? (result?.ids.length ?? 0) : 0,
    known: result?.knownIds.length ?? 0,
    left_out: leftOut,
    new_balances: result?.newBalances ?? 0,
    joined_balances: result?.joinedBalances ?? 0,
    plans: result?.plans ?? 0,
    credits_before: result ? formatCredits(result.before) : null,
    credits_after: result ? formatCredits(result.before + result.added) : null,
    refused,
    in_force: inForce,
  }
}
