/** The numbers under which the records have accounts and keys. An account and the key of its name have one number. */
import { lru } from '../lib/lru.ts'
import { ACCOUNT_PREFIX, insertRows, nextNumber } from './account-rows.ts'
import { selectIn, type Sql } from './database.ts'
import { insertKeys } from './key-rows.ts'

/** Numbers of accounts that are kept in memory, and of keys. */
const KEPT_MAX = 100_000

/** The record of an account or of a key that has none. Its entries are recorded all the same. */
const UNKNOWN = { name: '', createdAt: 0, pending: false, changed: 0 } as const
const UNKNOWN_ACCOUNT = { ...UNKNOWN, externalId: '', metadata: {}, grants: 0, granted: 0n } as const
const UNKNOWN_KEY = {
  ...UNKNOWN,
  type: '?',
  batch: '',
  status: 'disabled',
  expiresAt: undefined,
  version: 0,
  label: '',
  hint: '',
  rotation: 0,
  cap: undefined,
  lifetimeMs: undefined,
  metadata: {},
} as const

/** Accounts and keys that the records have, with their numbers by their ids. */
export interface Numbered {
  readonly accounts: ReadonlyMap<string, number>
  readonly keys: ReadonlyMap<string, number>
}

/** Reads which of some ids accounts and keys have, and their numbers. */
export async function numbered(sql: Sql, ids: readonly string[]): Promise<Numbered> {
  const read = async (table: string): Promise<ReadonlyMap<string, number>> => {
    const rows = await selectIn(sql, `SELECT no, id FROM ${table} WHERE id`, ids)
    return new Map(rows.map(row => [String(row['id']), Number(row['no'])]))
  }
  return { accounts: await read('accounts'), keys: await read('keys') }
}

/** Returns the number of each id: the one that its account or its key has, or a new one. */
export async function numbersFor(
  sql: Sql,
  ids: Iterable<string>,
  { accounts, keys }: Numbered,
): Promise<(id: string) => number> {
  let next = await nextNumber(sql)
  const numbers = new Map([...new Set(ids)].map(id => [id, accounts.get(id) ?? keys.get(id) ?? next++]))
  return id => numbers.get(id) as number
}

/** The numbers of accounts and keys, with a cache. They change only if the database falls back. */
export class Numbering {
  readonly #accounts = lru<string, number>(KEPT_MAX)
  readonly #keys = lru<string, number>(KEPT_MAX)

  /** Returns the numbers of those that are charged. Those without a record get one. */
  async of(
    sql: Sql,
    all: readonly { readonly account: string; readonly key?: string | undefined }[],
  ): Promise<Numbered> {
    const found = { accounts: new Map<string, number>(), keys: new Map<string, number>() }
    /** The accounts of the keys that were not read yet. */
    const unread = { accounts: new Set<string>(), keys: new Map<string, string>() }
    for (const { account, key } of all) {
      const no = this.#accounts.get(account)
      if (no === undefined) unread.accounts.add(account)
      else found.accounts.set(account, no)
      if (key === undefined || key === account) continue
      const keyNo = this.#keys.get(key)
      if (keyNo === undefined) unread.keys.set(key, account)
      else found.keys.set(key, keyNo)
    }
    const ids = [...unread.accounts, ...unread.keys.keys()]
    if (ids.length === 0) return found
    const recorded = await numbered(sql, ids)
    const missing = {
      accounts: [...unread.accounts].filter(id => !recorded.accounts.has(id)),
      keys: [...unread.keys].filter(([id]) => !recorded.keys.has(id)),
    }
    const numberOf = await numbersFor(sql, ids, recorded)
    await insertUnknown(sql, { ...missing, recorded }, id => found.accounts.get(id) ?? numberOf(id))
    for (const id of unread.accounts) found.accounts.set(id, numberOf(id))
    for (const id of unread.keys.keys()) found.keys.set(id, numberOf(id))
    return found
  }

  /** Remembers what a transaction has found, when it is committed. */
  keep({ accounts, keys }: Numbered): void {
    for (const [id, no] of accounts) this.#accounts.set(id, no)
    for (const [id, no] of keys) this.#keys.set(id, no)
  }

  /** Forgets what was read from the database: it lacks some of it now. */
  forget(): void {
    this.#accounts.clear()
    this.#keys.clear()
  }
}

/** Inserts accounts and keys of which nothing is known but their ids. */
async function insertUnknown(
  sql: Sql,
  {
    accounts,
    keys,
    recorded,
  }: { readonly accounts: readonly string[]; readonly keys: readonly [string, string][]; readonly recorded: Numbered },
  numberOf: (id: string) => number,
): Promise<void> {
  const newAccounts = accounts.map(id => {
    const isAlone = id.startsWith(ACCOUNT_PREFIX)
    return { ...UNKNOWN_ACCOUNT, no: numberOf(id), id, shared: isAlone || recorded.keys.has(id) }
  })
  await insertRows(sql, newAccounts)
  // An account that was not made with a key has none of its name.
  const made = accounts
    .filter(id => !id.startsWith(ACCOUNT_PREFIX) && !recorded.keys.has(id))
    .map(id => [id, id] as const)
  const accountsOf = new Map([...keys, ...made])
  await insertKeys(
    sql,
    [...accountsOf].map(([id, account]) => ({
      ...UNKNOWN_KEY,
      no: numberOf(id),
      id,
      digest: id,
      account: numberOf(account),
    })),
  )
}
