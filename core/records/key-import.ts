/** Records keys that customers bring from another gateway: all of a file, or none. */
import { NANO } from '../money/credits.ts'
import { ACCOUNT_PREFIX, firstGrants, insertNew, nextNumber, share } from './account-rows.ts'
import { type Also, bigintOf, type Database, insertAll, selectIn, type Sql, Undone } from './database.ts'
import { insertKeys, type KeyRecord } from './key-rows.ts'
import { planFrom } from '../plans/plan.ts'
import { sumOf } from './key-search.ts'

/** A key of a file. */
export interface ImportedKey {
  /** Where it stands in the file. */
  readonly line: number
  readonly record: Omit<KeyRecord, 'account' | 'before'>
  /** The hashes by which its secret may be known already. */
  readonly digests: readonly string[]
  /** The balance that it spends from, if that exists. */
  readonly account: string | undefined
  /** What the shop calls its balance. Keys with the same one have one balance. Empty for one of its own. */
  readonly externalId: string
  /** The operator's own name for a new balance; may be empty. */
  readonly balanceName: string
  /** What the balance begins with, in nano-credits. It may be below zero. Undefined if another key of the balance says so. */
  readonly credits: bigint | undefined
  /** The plan of its balance, as JSON. Undefined for none, or if another key of the balance says so. */
  readonly plan: string | undefined
}

/** Why a line of a file is refused. */
export interface Refusal {
  readonly line: number
  readonly reason: string
}

/** What an import does. */
export interface Imported {
  /** The ids of the new keys. */
  readonly ids: readonly string[]
  /** Keys that were imported before, or that have a secret of the file already. They stay as they are. */
  readonly knownIds: readonly string[]
  /** Balances that are new, and that exist and get keys. */
  readonly newBalances: number
  readonly joinedBalances: number
  /** Balances that are new, and have a plan. */
  readonly plans: number
  /** The sum of all balances in nano-credits, as far as exchanges are recorded: before, and what the new ones add. */
  readonly before: bigint
  readonly added: bigint
}

/** What new balances get. */
interface ImportTerms {
  /** The time by the store's clock, in milliseconds since the epoch. */
  readonly at: number
  readonly newId: () => string
}

/** The notes of the first grant of an imported balance. */
const IMPORTED = { reason: 'imported', note: 'imported' }
/** The notes of the first grant of an imported balance, in SQL. */
const FIRST_NOTES = firstGrants({ id: '', granted: 1n, plan: '' }, IMPORTED)
  .map(({ notes }) => `'${JSON.stringify(notes)}'`)
  .join(', ')

/** Thrown by the transaction of an import that must not be committed. */
export class NotImported extends Undone {
  readonly refused: readonly Refusal[]
  /** What would have been done; undefined if lines are refused. */
  readonly result: Imported | undefined

  constructor(refused: readonly Refusal[], result?: Imported) {
    super('nothing was imported')
    this.refused = refused
    this.result = result
  }
}

/**
 * Records keys and their balances, unless they were recorded before. Repeating it changes nothing.
 * @param wish `isTrial` finds out what would be done
 * @throws NotImported if lines are refused, and after a trial
 */
export function importKeys(
  database: Database,
  keys: readonly ImportedKey[],
  wish: ImportTerms & { readonly isTrial: boolean },
  also?: (result: Imported) => Also,
): Promise<Imported> {
  return database.transaction(async sql => {
    const { fresh, knownIds } = await unknownAmong(sql, keys)
    const existing = await existingBalances(sql, fresh)
    const refused: Refusal[] = []
    const groups = Map.groupBy(fresh, key => balanceOf(key, existing))
    for (const [balance, group] of groups) refused.push(...problemsOf(balance, group, existing))
    if (refused.length > 0) throw new NotImported(refused.sort((one, other) => one.line - other.line))
    const [sum] = await sql.all(
      `SELECT ${sumOf('(a.granted - COALESCE(t.settled, 0))', 'sum')} FROM accounts a LEFT JOIN totals t ON t.account = a.no`,
    )
    const fromNew = [...groups].filter(([balance]) => !existing.ids.has(balance))
    const result = {
      ids: fresh.map(({ record }) => record.id),
      knownIds,
      newBalances: fromNew.length,
      joinedBalances: groups.size - fromNew.length,
      plans: fromNew.filter(([, group]) => planOf(group) !== undefined).length,
      before: bigintOf(sum, 'sum_high') * NANO + bigintOf(sum, 'sum_low'),
      added: fromNew.reduce((all, [, group]) => all + creditsOf(group), 0n),
    }
    if (wish.isTrial) throw new NotImported([], result)
    const places = await addBalances(sql, fromNew, wish)
    for (const balance of groups.keys())
      if (existing.ids.has(balance))
        places.set(balance, { no: (await share(sql, balance, wish.at)) ?? 0, isLone: false })
    await addKeys(sql, groups, places, wish.at)
    await also?.(result)(sql)
    return result
  })
}

/** Returns what a new balance begins with. */
function creditsOf(group: readonly ImportedKey[]): bigint {
  return group.find(({ credits }) => credits !== undefined)?.credits ?? 0n
}

/** Returns the plan of a new balance, as JSON. */
function planOf(group: readonly ImportedKey[]): string | undefined {
  return group.find(({ plan }) => plan !== undefined)?.plan
}

/** Leaves out the keys that were imported before, and those whose secret a key has. */
async function unknownAmong(
  sql: Sql,
  keys: readonly ImportedKey[],
): Promise<{ readonly fresh: ImportedKey[]; readonly knownIds: readonly string[] }> {
  const digests = keys.flatMap(key => key.digests)
  const ids = new Map<string, string>()
  // A key that was rotated or used since has another digest.
  const selects = [
    'SELECT digest, id FROM keys WHERE digest',
    'SELECT i.digest, k.id FROM digests i JOIN keys k ON k.no = i.key WHERE i.digest',
  ]
  for (const select of selects)
    for (const row of await selectIn(sql, select, digests)) ids.set(String(row['digest']), String(row['id']))
  const known = new Set<string>()
  const fresh = keys.filter(key => {
    const id = key.digests.map(digest => ids.get(digest)).find(found => found !== undefined)
    if (id !== undefined) known.add(id)
    return id === undefined
  })
  return { fresh, knownIds: [...known] }
}

/** Balances that exist. */
interface Existing {
  readonly ids: ReadonlySet<string>
  /** What those began with that were imported, in nano-credits, and the plans that they have. */
  readonly imported: ReadonlyMap<string, { readonly amount: bigint; readonly plan: string | undefined }>
  /** Their ids by what the shop calls them. */
  readonly byExternalId: ReadonlyMap<string, readonly string[]>
}

async function existingBalances(sql: Sql, keys: readonly ImportedKey[]): Promise<Existing> {
  const ids = new Set<string>()
  const named = [...new Set(keys.flatMap(({ account }) => account ?? []))]
  for (const row of await selectIn(sql, 'SELECT id FROM accounts WHERE id', named)) ids.add(String(row['id']))
  const externalIds = [...new Set(keys.flatMap(({ externalId }) => externalId || []))]
  const rows = await selectIn(sql, 'SELECT id, external FROM accounts WHERE external', externalIds)
  for (const row of rows) ids.add(String(row['id']))
  const grants = await selectIn(
    sql,
    `SELECT a.id, a.plan, g.amount FROM accounts a JOIN grants g ON g.account = a.no AND g.n = 1 AND g.notes IN (${FIRST_NOTES}) WHERE a.id`,
    [...ids],
  )
  const imported = new Map(
    grants.map(row => [String(row['id']), { amount: bigintOf(row, 'amount'), plan: typeIn(row['plan']) }]),
  )
  const grouped = Map.groupBy(rows, row => String(row['external']))
  return {
    ids,
    imported,
    byExternalId: new Map([...grouped].map(([name, found]) => [name, found.map(row => String(row['id']))])),
  }
}

/** Returns the key type that a plan is of. @param plan as JSON */
function typeIn(plan: unknown): string | undefined {
  return typeof plan === 'string' ? planFrom(plan).type : undefined
}

/** Returns the id of the balance that a key spends from, if that exists, or else what the keys of it have in common. */
function balanceOf({ account, externalId, record }: ImportedKey, { byExternalId }: Existing): string {
  if (account !== undefined) return account
  if (externalId === '') return record.id
  return byExternalId.get(externalId)?.[0] ?? `external ${externalId}`
}

function problemsOf(
  balance: string,
  group: readonly ImportedKey[],
  { ids, imported, byExternalId }: Existing,
): Refusal[] {
  const first = group.find(({ credits }) => credits !== undefined)
  const planned = group.find(({ plan }) => plan !== undefined)
  return group.flatMap(({ line, account, externalId, credits, plan }) => {
    const refuse = (reason: string): Refusal[] => [{ line, reason }]
    if (account !== undefined && !ids.has(account)) return refuse('there is no such balance')
    const found = byExternalId.get(externalId)?.length ?? 0
    if (found > 1) return refuse(`${found} balances have the external id ${externalId}; name one in the column balance`)
    const known = imported.get(balance)
    if (plan !== undefined && ids.has(balance) && (!known || typeIn(plan) !== known.plan))
      return refuse('its balance exists already; leave plan empty, and set the plan instead')
    if (plan !== undefined && plan !== planned?.plan)
      return refuse(`line ${planned?.line} gives another plan to the same balance`)
    if (credits === undefined) return []
    // A longer file states again what the balance began with.
    if (ids.has(balance) && (credits === 0n || credits === known?.amount)) return []
    if (ids.has(balance))
      return refuse('its balance exists already; leave credits empty, and top the balance up instead')
    return credits === first?.credits ? [] : refuse(`line ${first?.line} gives other credits to the same balance`)
  })
}

/** The number of a balance, and whether it is made with its only key. */
interface Place {
  readonly no: number
  readonly isLone: boolean
}

/** Adds balances, each with its first grant. */
async function addBalances(
  sql: Sql,
  groups: readonly (readonly [balance: string, keys: readonly ImportedKey[]])[],
  { at, newId }: ImportTerms,
): Promise<Map<string, Place>> {
  const first = await nextNumber(sql)
  const accounts = groups.map(([balance, group], index) => {
    const [{ record, externalId } = {}] = group as readonly Partial<ImportedKey>[]
    const isLone = group.length === 1
    return {
      balance,
      isLone,
      no: first + index,
      // The balance of a lone key has its id.
      id: isLone ? (record?.id ?? '') : `${ACCOUNT_PREFIX}${newId()}`,
      plan: planOf(group),
      name: group.find(key => key.balanceName !== '')?.balanceName ?? '',
      externalId: externalId ?? '',
      metadata: {},
      createdAt: record?.createdAt ?? at,
      shared: !isLone,
      granted: creditsOf(group),
      pending: true,
      changed: at,
    }
  })
  await insertNew(sql, accounts, { at, notes: IMPORTED })
  return new Map(accounts.map(({ balance, no, isLone }) => [balance, { no, isLone }]))
}

async function addKeys(
  sql: Sql,
  groups: ReadonlyMap<string, readonly ImportedKey[]>,
  places: ReadonlyMap<string, Place>,
  at: number,
): Promise<void> {
  let next = await nextNumber(sql)
  const keys = [...groups].flatMap(([balance, group]) =>
    group.map(({ record, digests }) => {
      const { no: account = 0, isLone = false } = places.get(balance) ?? {}
      // An account has the number of the key that it was made with.
      return { ...record, digests, no: isLone ? account : next++, account, pending: true, changed: at }
    }),
  )
  await insertKeys(sql, keys)
  await insertAll(
    sql,
    'INSERT INTO digests (digest, key)',
    keys.flatMap(({ digests, no }) => digests.map(digest => [digest, no])),
    'ON CONFLICT (digest) DO NOTHING',
  )
}
