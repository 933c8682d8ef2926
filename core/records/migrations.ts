/** The tables of the records, and the numbered steps from one version of them to the next. */
import { type Database, RecordsError, type Sql, type Transaction } from './database.ts'
import { KINDS } from './entry.ts'
import { EXCHANGE_COLUMNS, FIRST_VIEW, MONEY_VIEW } from './exchange-rows.ts'

/**
 * Each step is run once. A word in braces differs between the databases.
 * - An exchange's row is found by its id, which begins with its time. `ordinal` is the number of its latest entry in its
 *   account, and its place in the history. The view `history` shows names instead of their numbers: see exchange-rows.ts.
 * - `replaced` has the earlier ends of exchanges that were reaped and ended again.
 * - `booking` numbers the statement of an account: see bookings.ts and statement.ts; `balance` is what was granted less what
 *   was charged after it. `booked` counts the bookings of entries; each grant is one as well.
 * - An account has credits, and keys spend from it. The key that an account was made with has its id and its number. An account
 *   is `shared` from the moment when another key may spend from it; then the tables of keys have the sums of each.
 * - `external` is what an operator's shop calls an account. `lifetime` is for how long a key is valid from its first use;
 *   `before` is the account that it was moved away from; `manage` is 1 if its owner may create other keys for the account.
 * - `plan` of an account and `limits` of a key are JSON: see plan.ts and limits.ts in core/plans.
 * - `digests` has the hashes by which an import knows the secrets that keys had, beside their present ones.
 * - `pending` is 1 while the store may not know the latest record of a key, or the grants of an account.
 * - `hint` has the beginning and the end of a secret. A key's `label` is the same, unless an operator has chosen one.
 * - `failures` has why requests failed. `alike` counts the requests that a row stands for: see request-sums.ts.
 * - `day_served` has what other models answered than were asked for. It is a part of `day_models`.
 * - `charge` of a sum is what customers pay, from credits or from plans; `costed` is the part of it that has a known cost.
 *   `covered` is what a plan has paid.
 * - `commits` has the latest transactions, by which a database that fell back is noticed: see lineage.ts.
 * - `requests` has what operators asked for with an idempotency key, with the seed of the secrets that were made for it.
 */
const STEPS: readonly (readonly string[])[] = [
  [
    'CREATE TABLE names (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)',
    'CREATE TABLE prices (version TEXT PRIMARY KEY, numbers TEXT NOT NULL)',
    `CREATE TABLE accounts (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, name TEXT NOT NULL,
      batch TEXT NOT NULL, status TEXT NOT NULL, expires BIGINT, created BIGINT NOT NULL, version BIGINT NOT NULL,
      digest TEXT NOT NULL, label TEXT NOT NULL, hint TEXT NOT NULL, rotation INTEGER NOT NULL, grants INTEGER NOT NULL,
      granted BIGINT NOT NULL, pending SMALLINT NOT NULL, changed BIGINT NOT NULL)`,
    'CREATE INDEX accounts_pending ON accounts (no) WHERE pending = 1',
    'CREATE INDEX accounts_changed ON accounts (changed)',
    'CREATE UNIQUE INDEX accounts_digest ON accounts (digest)',
    `CREATE TABLE grants (account INTEGER NOT NULL, n INTEGER NOT NULL, id TEXT NOT NULL, amount BIGINT NOT NULL,
      at BIGINT NOT NULL, notes TEXT NOT NULL, balance BIGINT NOT NULL, booking INTEGER NOT NULL,
      PRIMARY KEY (account, n))`,
    'CREATE UNIQUE INDEX grants_id ON grants (account, id)',
    `CREATE TABLE totals (account INTEGER PRIMARY KEY, ordinal BIGINT NOT NULL, settled BIGINT NOT NULL,
      folded BIGINT NOT NULL, entries BIGINT NOT NULL, requests BIGINT NOT NULL, input BIGINT NOT NULL,
      output BIGINT NOT NULL, quarantined BIGINT NOT NULL, changed BIGINT NOT NULL, booked BIGINT NOT NULL)`,
    'CREATE INDEX totals_changed ON totals (changed)',
    `CREATE TABLE exchanges (${EXCHANGE_COLUMNS}) {PARTITIONED}`,
    'CREATE INDEX exchanges_account ON exchanges (account, ordinal)',
    `CREATE INDEX exchanges_reaped ON exchanges (account) WHERE kind = ${KINDS.indexOf('reaped')}`,
    'CREATE INDEX exchanges_late ON exchanges (account, booking) WHERE booking < 0',
    `CREATE TABLE replaced (account INTEGER NOT NULL, ordinal BIGINT NOT NULL, id {ID} NOT NULL,
      charge BIGINT NOT NULL, ended BIGINT NOT NULL, balance BIGINT NOT NULL, booking INTEGER, booked BIGINT,
      PRIMARY KEY (account, ordinal))`,
    `CREATE TABLE day_accounts (day INTEGER NOT NULL, account INTEGER NOT NULL, {COUNTS}, PRIMARY KEY (day, account))`,
    `CREATE TABLE day_models (day INTEGER NOT NULL, model INTEGER NOT NULL, type INTEGER NOT NULL,
      upstream INTEGER NOT NULL, status INTEGER NOT NULL, code INTEGER NOT NULL, {COUNTS},
      PRIMARY KEY (day, model, type, upstream, status, code))`,
    `CREATE TABLE account_models (account INTEGER NOT NULL, model INTEGER NOT NULL, requests BIGINT NOT NULL,
      input BIGINT NOT NULL, output BIGINT NOT NULL, charge BIGINT NOT NULL, PRIMARY KEY (account, model))`,
    'CREATE TABLE positions (shard INTEGER PRIMARY KEY, ms BIGINT NOT NULL, seq BIGINT NOT NULL)',
    'CREATE INDEX accounts_type ON accounts (type, no)',
    'CREATE INDEX accounts_batch ON accounts (batch, no)',
    `CREATE TABLE day_account_models (account INTEGER NOT NULL, day INTEGER NOT NULL, model INTEGER NOT NULL,
      requests BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL, charge BIGINT NOT NULL,
      PRIMARY KEY (account, day, model)) {CLUSTERED}`,
    `CREATE TABLE tokens (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, scope TEXT NOT NULL,
      digest TEXT NOT NULL UNIQUE, hint TEXT NOT NULL, created BIGINT NOT NULL, used BIGINT, revoked BIGINT)`,
    `CREATE TABLE sessions (digest TEXT PRIMARY KEY, token INTEGER NOT NULL, created BIGINT NOT NULL,
      expires BIGINT NOT NULL)`,
    `CREATE TABLE requests (id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, caller TEXT NOT NULL, seed TEXT NOT NULL, reply TEXT NOT NULL,
      at BIGINT NOT NULL)`,
    'CREATE INDEX requests_at ON requests (at)',
    `CREATE TABLE audit (no INTEGER PRIMARY KEY, at BIGINT NOT NULL, actor TEXT NOT NULL, address TEXT NOT NULL,
      action TEXT NOT NULL, target TEXT NOT NULL, details TEXT NOT NULL)`,
    'CREATE INDEX audit_target ON audit (target, no)',
    `CREATE TABLE codes (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL UNIQUE,
      hint TEXT NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL, batch TEXT NOT NULL, amount BIGINT NOT NULL,
      lifetime BIGINT, created BIGINT NOT NULL, expires BIGINT, cancelled BIGINT, used BIGINT, account INTEGER,
      request TEXT NOT NULL)`,
    'CREATE INDEX codes_batch ON codes (batch, no)',
    `CREATE TABLE notices (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT NOT NULL,
      at BIGINT NOT NULL, due BIGINT NOT NULL, tries INTEGER NOT NULL, state TEXT NOT NULL, last TEXT NOT NULL)`,
    "CREATE INDEX notices_due ON notices (due) WHERE state = 'waiting'",
    // A customer's look-up reads the days of one account.
    'CREATE INDEX day_accounts_account ON day_accounts (account, day)',
    `CREATE TABLE failures (id {ID} NOT NULL PRIMARY KEY, ended BIGINT NOT NULL, account INTEGER NOT NULL,
      alike BIGINT NOT NULL, status SMALLINT, who TEXT NOT NULL, code TEXT NOT NULL, model TEXT NOT NULL,
      upstream_account TEXT NOT NULL, words TEXT, story TEXT NOT NULL) {CLUSTERED}`,
    'CREATE INDEX failures_account ON failures (account, id)',
    'CREATE INDEX failures_code ON failures (code, id)',
    'CREATE TABLE commits (no BIGINT PRIMARY KEY, id TEXT NOT NULL)',
  ],
  [
    `CREATE TABLE keys (no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, account INTEGER NOT NULL, type TEXT NOT NULL,
      name TEXT NOT NULL, batch TEXT NOT NULL, status TEXT NOT NULL, expires BIGINT, created BIGINT NOT NULL,
      version BIGINT NOT NULL, digest TEXT NOT NULL, label TEXT NOT NULL, hint TEXT NOT NULL, rotation INTEGER NOT NULL,
      cap BIGINT, limits TEXT, lifetime BIGINT, before INTEGER, manage SMALLINT NOT NULL, metadata TEXT NOT NULL,
      pending SMALLINT NOT NULL, changed BIGINT NOT NULL)`,
    `INSERT INTO keys SELECT no, id, no, type, name, batch, status, expires, created, version, digest, label, hint, rotation,
      NULL, NULL, NULL, NULL, 0, '{}', pending, changed FROM accounts`,
    'CREATE TABLE digests (digest TEXT PRIMARY KEY, key INTEGER NOT NULL)',
    'DROP VIEW IF EXISTS history',
    ...['digest', 'type', 'batch'].map(name => `DROP INDEX accounts_${name}`),
    ...['type', 'name', 'batch', 'status', 'expires', 'version', 'digest', 'label', 'hint', 'rotation'].map(
      name => `ALTER TABLE accounts DROP COLUMN ${name}`,
    ),
    "ALTER TABLE accounts ADD COLUMN name TEXT NOT NULL DEFAULT ''",
    'ALTER TABLE accounts ADD COLUMN external TEXT',
    'ALTER TABLE accounts ADD COLUMN plan TEXT',
    'ALTER TABLE accounts ADD COLUMN plan_until BIGINT',
    "ALTER TABLE accounts ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}'",
    'ALTER TABLE accounts ADD COLUMN shared SMALLINT NOT NULL DEFAULT 0',
    'CREATE INDEX accounts_external ON accounts (external) WHERE external IS NOT NULL',
    'CREATE INDEX accounts_plan_until ON accounts (plan_until) WHERE plan_until IS NOT NULL',
    FIRST_VIEW,
    'CREATE INDEX keys_account ON keys (account, no)',
    'CREATE INDEX keys_pending ON keys (no) WHERE pending = 1',
    'CREATE INDEX keys_changed ON keys (changed)',
    'CREATE UNIQUE INDEX keys_digest ON keys (digest)',
    'CREATE INDEX keys_type ON keys (type, no)',
    'CREATE INDEX keys_batch ON keys (batch, no)',
    'CREATE INDEX exchanges_key ON exchanges (account, key, ordinal) WHERE key <> account',
    `CREATE TABLE key_totals (account INTEGER NOT NULL, key INTEGER NOT NULL, settled BIGINT NOT NULL,
      requests BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL, quarantined BIGINT NOT NULL,
      PRIMARY KEY (account, key))`,
    'CREATE INDEX key_totals_key ON key_totals (key)',
    `CREATE TABLE day_keys (day INTEGER NOT NULL, account INTEGER NOT NULL, key INTEGER NOT NULL, {COUNTS},
      PRIMARY KEY (day, account, key))`,
    'CREATE INDEX day_keys_key ON day_keys (key, day)',
    `CREATE TABLE key_models (key INTEGER NOT NULL, account INTEGER NOT NULL, model INTEGER NOT NULL,
      requests BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL, charge BIGINT NOT NULL,
      PRIMARY KEY (key, account, model))`,
    `CREATE TABLE day_key_models (key INTEGER NOT NULL, day INTEGER NOT NULL, account INTEGER NOT NULL,
      model INTEGER NOT NULL, requests BIGINT NOT NULL, input BIGINT NOT NULL, output BIGINT NOT NULL,
      charge BIGINT NOT NULL, PRIMARY KEY (key, day, account, model)) {CLUSTERED}`,
    'ALTER TABLE failures RENAME COLUMN account TO key',
    'ALTER TABLE codes RENAME COLUMN account TO key',
  ],
  [
    `CREATE TABLE day_served (day INTEGER NOT NULL, model INTEGER NOT NULL, served INTEGER NOT NULL, {COUNTS},
      PRIMARY KEY (day, model, served))`,
  ],
  [
    'DROP VIEW IF EXISTS history',
    MONEY_VIEW,
    'ALTER TABLE replaced ADD COLUMN covered BIGINT NOT NULL DEFAULT 0',
    ...['day_accounts', 'day_keys', 'day_models', 'day_served'].flatMap(table => [
      `ALTER TABLE ${table} ADD COLUMN costed BIGINT NOT NULL DEFAULT 0`,
      `UPDATE ${table} SET costed = charge WHERE cost <> 0`,
    ]),
  ],
]

/** The names of all tables. */
export const TABLES: readonly string[] = [
  'meta',
  ...STEPS.flat().flatMap(text => /^CREATE TABLE (\w+)/.exec(text)?.[1] ?? []),
]

/** Name of where records were copied to. They are not used any more. */
export const LEFT = 'left'

/** Note in records into which a copy has not been finished. */
export const UNFINISHED = 'unfinished'

/** Says why records are not used. @param left where they were copied to */
export function leftWords(description: string, left: string): string {
  return left === UNFINISHED
    ? `a copy of records to ${description} was not finished; run npx tollgate records copy again`
    : `the records in ${description} were copied to ${left}, and are not used any more; set store.records (DATABASE_URL) to those`
}

/** The version of the tables that the first step makes. Earlier ones were never released. */
export const FIRST = 8

/** The version of the tables that all steps make. */
const LATEST = FIRST + STEPS.length - 1

/** What is counted by day: numbers, and two histograms. */
const COUNTS = `requests BIGINT NOT NULL, billed BIGINT NOT NULL, errors BIGINT NOT NULL, refused BIGINT NOT NULL, input BIGINT NOT NULL,
  cache_read BIGINT NOT NULL, cache_write BIGINT NOT NULL, output BIGINT NOT NULL, reasoning BIGINT NOT NULL,
  charge BIGINT NOT NULL, cost BIGINT NOT NULL, durations {BYTES} NOT NULL, first_bytes {BYTES} NOT NULL`

/** The text of an id that SQLite keeps as bytes. */
const ID_OF_BYTES = [
  [1, 8],
  [9, 4],
  [13, 4],
  [17, 4],
  [21, 12],
]
  .map(([from, length]) => `substr(lower(hex(e.id)), ${from}, ${length})`)
  .join(" || '-' || ")

const WORDS = {
  sqlite: {
    BYTES: 'BLOB',
    ID: 'BLOB',
    PARTITIONED: 'WITHOUT ROWID',
    CLUSTERED: 'WITHOUT ROWID',
    COUNTS,
    TIME: "strftime('%Y-%m-%dT%H:%M:%fZ', e.ended / 1000.0, 'unixepoch')",
    TEXT_ID: ID_OF_BYTES,
    COVERED: "COALESCE(CAST(json_extract(e.rest, '$.plan') AS INTEGER), 0)",
    WAIVED: "COALESCE(CAST(json_extract(e.rest, '$.waived') AS INTEGER), 0)",
  },
  postgres: {
    BYTES: 'BYTEA',
    ID: 'UUID',
    PARTITIONED: 'PARTITION BY RANGE (id)',
    CLUSTERED: '',
    COUNTS,
    TIME: "to_timestamp(e.ended / 1000.0) AT TIME ZONE 'UTC'",
    TEXT_ID: 'e.id::text',
    COVERED: "COALESCE(split_part(e.rest::json->>'plan', ',', 1)::bigint, 0)",
    WAIVED: "COALESCE((e.rest::json->>'waived')::bigint, 0)",
  },
} as const

/**
 * Brings the tables to the current version. Processes that start together take turns.
 * @param to an earlier version, for a test
 * @returns the id of these records, by which a store knows them
 * @throws Error if the tables are from a newer version of Tollgate
 */
export async function migrate(database: Database, newId: () => string, to = LATEST): Promise<string> {
  return database.transaction(async sql => {
    await sql.all('CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)')
    const text = await meta(sql, 'version')
    const version = text === undefined ? FIRST - 1 : Number(text)
    if (text !== undefined && version < FIRST)
      throw new Error('the records were made by a version that was never released; begin with new ones')
    if (version > LATEST)
      throw new Error(`the records are from a newer version of Tollgate (tables ${version}, known ${LATEST})`)
    for (const step of STEPS.slice(version - FIRST + 1, to - FIRST + 1))
      for (const text of step) await sql.all(spelled(text, database.dialect))
    if (version < to) await setMeta(sql, 'version', String(to))
    const found = await meta(sql, 'id')
    if (found !== undefined) return found
    const id = newId()
    await setMeta(sql, 'id', id)
    return id
  })
}

function spelled(text: string, dialect: Database['dialect']): string {
  const words: Readonly<Record<string, string>> = WORDS[dialect]
  let done = text
  while (/\{[A-Z_]+\}/.test(done)) done = done.replaceAll(/\{([A-Z_]+)\}/g, (_, word: string) => words[word] ?? '')
  return done
}

/** Reads a value that belongs to the whole database. */
export async function meta(sql: Sql, name: string): Promise<string | undefined> {
  const [row] = await sql.all('SELECT value FROM meta WHERE name = ?', [name])
  return row?.['value'] as string | undefined
}

/** Writes such a value. */
export async function setMeta(sql: Sql, name: string, value: string): Promise<void> {
  await sql.all(
    'INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
    [name, value],
  )
}

/**
 * Changes a value that belongs to the whole database in a transaction.
 * @param change takes the current value, or undefined if there is none, and returns the new one
 */
export async function changeTold(
  { database }: { readonly database: Database },
  name: string,
  change: (sql: Transaction, value: unknown) => Promise<unknown>,
): Promise<void> {
  await database.transaction(async sql => {
    const text = await meta(sql, name)
    const next = JSON.stringify(await change(sql, text === undefined ? undefined : JSON.parse(text)))
    if (next !== text) await setMeta(sql, name, next)
  })
}

/**
 * Name of the epoch: how often a store was restored from these records. It is the word of the first version, in the records
 * and in the store; a generation is something else today.
 */
const EPOCH = 'generation'

/** Name of the id of the store that is used with these records. */
export const STORE = 'store'

/** A newer version of Tollgate has changed the tables. What this version would record might lack something. */
export class NewerTables extends RecordsError {
  constructor() {
    super('a newer version of Tollgate uses the records; gateways of that version record what ends')
  }
}

/**
 * Returns the epoch if this version may record exchanges.
 * @throws NewerTables if the tables are those of a newer one
 */
export async function epochToRecord(sql: Sql): Promise<number> {
  const rows = await sql.all('SELECT name, value FROM meta WHERE name IN (?, ?)', [EPOCH, 'version'])
  const numbers = new Map(rows.map(row => [row['name'], Number(row['value'])]))
  if ((numbers.get('version') ?? 0) > LATEST) throw new NewerTables()
  return numbers.get(EPOCH) ?? 0
}

/** Returns the epoch. */
export async function epochOf(sql: Sql): Promise<number> {
  return Number((await meta(sql, EPOCH)) ?? 0)
}

/**
 * Begins an epoch.
 * @param store the id of the store if it is used with these records from now on
 * @param after an earlier epoch of that store
 */
export async function beginEpoch(sql: Sql, store?: string, after = 0): Promise<number> {
  const next = Math.max(after, await epochOf(sql)) + 1
  await setMeta(sql, EPOCH, String(next))
  if (store !== undefined) await setMeta(sql, STORE, store)
  return next
}
