/** Reads entries and sums of an account from the records. */
import { bytesOfId, idFromBytes } from '../lib/ids.ts'
import { bigintOf, type Database, type Row, selectIn, Where } from './database.ts'
import { lru } from '../lib/lru.ts'
import type { Count, HistoryEntry, Summary, Whose } from './entry.ts'
import { DAY_MS, KINDS } from './entry.ts'
import { boundOf } from './months.ts'
import type { Names } from './names.ts'
import { ENTRY_COLUMNS, entryOf } from './exchange-rows.ts'
import { type Position, rowsWithIds } from './recorder.ts'
import { type StatementPage, type StatementPlace, statementOf } from './statement.ts'

/** Which entries of an account to read, newest first. */
export interface HistoryRange {
  /** Only entries with a smaller ordinal. */
  readonly before?: number | undefined
  /** The times between which they ended, in milliseconds since the epoch, both inclusive. */
  readonly from?: number | undefined
  readonly to?: number | undefined
  readonly count: number
}

/** What the records know of an account's sums. */
export interface Totals {
  /** The number of the latest recorded entry. */
  readonly ordinal: number
  readonly settled: bigint
  /** What entries that are no longer kept were charged, which is a part of `settled`. */
  readonly folded: bigint
  readonly entries: number
  readonly requests: number
}

/** An account's usage of one day. Days before version 4 of the tables have no models. */
export interface DayUsage {
  /** Days since the epoch. */
  readonly day: number
  readonly all: Count
  readonly models: ReadonlyMap<string, Count>
}

/** Selects the rows of the account with an id, and of the key with one. */
const OF_ACCOUNT = 'account = (SELECT no FROM accounts WHERE id = ?)'
const OF_KEY = 'key = (SELECT no FROM keys WHERE id = ?)'
/** The index of keys with other numbers than their accounts has this condition. */
const OF_OTHER_KEY = `${OF_KEY} AND key <> account`

/** The tables with the sums of accounts, and of keys that share one. */
const SUMS_OF = {
  account: { ids: 'accounts', days: 'day_accounts', models: 'account_models', dayModels: 'day_account_models' },
  key: { ids: 'keys', days: 'day_keys', models: 'key_models', dayModels: 'day_key_models' },
} as const

/** A key that was moved has sums on several accounts. */
const SUMS_OF_DAY = summed([
  ['requests', 'requests'],
  ['input', 'input + cache_read + cache_write'],
  ['output', 'output'],
  ['charge', 'charge'],
])
const SUMS_OF_MODEL = summed(['requests', 'input', 'output', 'charge'].map(name => [name, name]))

function summed(columns: readonly (readonly [name: string, of: string])[]): string {
  return columns.map(([name, of]) => `CAST(SUM(${of}) AS BIGINT) AS ${name}`).join(', ')
}

/** Ids of keys that are kept in memory. */
const IDS_MAX = 10_000

/** What is read of an exchange. */
const COLUMNS = ENTRY_COLUMNS.join(', ')

/** Returns the smallest id of an exchange that begins at a time. @param ms milliseconds since the epoch */
function boundAt(ms: number | undefined): Buffer | undefined {
  return ms === undefined ? undefined : Buffer.from(boundOf(ms), 'hex')
}

/** How many days a summary covers. */
const DAYS = 31
/** How often a summary is read again while its account is being recorded. */
const TRIES = 20

/** Reads what was recorded. */
export class History {
  readonly #database: Database
  readonly #names: Names
  /** Ids of keys with other names than their accounts, by number. They change only if the database falls back. */
  readonly #ids = lru<number, string>(IDS_MAX)

  constructor(database: Database, names: Names) {
    this.#database = database
    this.#names = names
  }

  /** Returns entries, newest first. */
  async entries({ account, key }: Whose, { before, from, to, count }: HistoryRange): Promise<HistoryEntry[]> {
    const where = new Where()
      .add(OF_ACCOUNT, account)
      .addIf(key === account ? OF_KEY : OF_OTHER_KEY, key)
      .addIf('ordinal < ?', before)
      .addIf('ended >= ?', from)
      .addIf('ended <= ?', to)
    const rows = await this.#database.all(
      `SELECT ${COLUMNS} FROM exchanges ${where.text} ORDER BY ordinal DESC LIMIT ?`,
      [...where.values, count],
    )
    return this.#read(rows)
  }

  /** Returns the entries of an account after an ordinal, oldest first. */
  async entriesAfter(account: string, ordinal: number, count: number): Promise<HistoryEntry[]> {
    const rows = await this.#database.all(
      `SELECT ${COLUMNS} FROM exchanges
       WHERE ${OF_ACCOUNT} AND ordinal > ? ORDER BY ordinal LIMIT ?`,
      [account, ordinal, count],
    )
    return this.#read(rows)
  }

  /** Returns the exchanges of an account that were reaped, and have not ended otherwise since. */
  async reaped(account: string): Promise<HistoryEntry[]> {
    const rows = await this.#database.all(
      `SELECT ${COLUMNS} FROM exchanges WHERE ${OF_ACCOUNT} AND kind = ${KINDS.indexOf('reaped')}`,
      [account],
    )
    return this.#read(rows)
  }

  /**
   * Returns what exchanges that ended more than once were charged by their latest ends up to an ordinal, and before a
   * time in milliseconds since the epoch.
   */
  async chargedBefore(account: string, ordinal: number, ms: number): Promise<Map<string, bigint>> {
    const rows = await this.#database.all(
      `SELECT id, charge FROM replaced WHERE ${OF_ACCOUNT} AND ordinal <= ? AND ended < ? ORDER BY ordinal`,
      [account, ordinal, Math.min(ms, Number.MAX_SAFE_INTEGER)],
    )
    return new Map(rows.map(row => [idFromBytes(row['id'] as Uint8Array), bigintOf(row, 'charge')]))
  }

  /** Returns the entry of an exchange with the account that it belongs to. */
  async entry(id: string): Promise<(HistoryEntry & { readonly account: string }) | undefined> {
    const rows = await this.#database.all(
      `SELECT ${COLUMNS}, (SELECT a.id FROM accounts a WHERE a.no = exchanges.account) AS owner FROM exchanges
       WHERE id = ?`,
      [bytesOfId(id)],
    )
    const [entry] = await this.#read(rows)
    return entry && { ...entry, account: String(rows[0]?.['owner']) }
  }

  /** Returns the recorded entries among some exchanges, by id. */
  async withIds(ids: readonly string[]): Promise<Map<string, HistoryEntry>> {
    const rows = await rowsWithIds(this.#database, ids)
    return new Map((await this.#read(rows)).map(entry => [entry.id, entry]))
  }

  /**
   * Returns the latest exchanges of all accounts, newest first.
   * @param before the id of the last exchange of the page before
   * @param from times between which they began, in milliseconds since the epoch
   */
  async latest(
    { before, from, to }: { before?: string | undefined; from?: number | undefined; to?: number | undefined },
    count: number,
  ): Promise<(HistoryEntry & { readonly account: string })[]> {
    const where = new Where()
      .addIf('e.id < ?', before === undefined ? undefined : bytesOfId(before))
      .addIf('e.id >= ?', boundAt(from))
      .addIf('e.id < ?', boundAt(to === undefined ? undefined : to + 1))
    const rows = await this.#database.all(
      `SELECT ${ENTRY_COLUMNS.map(name => `e.${name}`).join(', ')}, a.id AS owner
       FROM exchanges e JOIN accounts a ON a.no = e.account ${where.text} ORDER BY e.id DESC LIMIT ?`,
      [...where.values, count],
    )
    const entries = await this.#read(rows)
    return entries.map((entry, index) => ({ ...entry, account: String(rows[index]?.['owner']) }))
  }

  /** Returns the usage of each day and each model, from one day since the epoch to another, both included. */
  async days(whose: Whose, from: number, to: number): Promise<DayUsage[]> {
    const { of, no } = await this.#numberOf(whose)
    const { days: table, dayModels } = SUMS_OF[of]
    const range = [no, from, to]
    const days = await this.#database.all(
      `SELECT day, ${SUMS_OF_DAY} FROM ${table} WHERE ${of} = ? AND day >= ? AND day <= ? GROUP BY day ORDER BY day`,
      range,
    )
    const models = await this.#database.all(
      `SELECT d.day, n.name, ${SUMS_OF_MODEL} FROM ${dayModels} d JOIN names n ON n.no = d.model
       WHERE d.${of} = ? AND d.day >= ? AND d.day <= ? GROUP BY d.day, n.name`,
      range,
    )
    return days.map(row => {
      const own = models.filter(({ day }) => day === row['day'])
      const byModel = new Map(own.map(each => [String(each['name']), countOf(each)]))
      return { day: Number(row['day']), all: countOf(row), models: byModel }
    })
  }

  /** Returns the number by which sums are found. */
  async #numberOf({ account, key }: Whose): Promise<{ readonly of: keyof typeof SUMS_OF; readonly no: number }> {
    const of = key === undefined ? 'account' : 'key'
    const [found] = await this.#database.all(`SELECT no FROM ${SUMS_OF[of].ids} WHERE id = ?`, [key ?? account])
    return { of, no: Number(found?.['no'] ?? 0) }
  }

  /** Returns a part of a statement. */
  statement(whose: Whose, place: StatementPlace, count: number): Promise<StatementPage> {
    return statementOf(this.#database, rows => this.#read(rows), { whose, place, count })
  }

  async #read(rows: readonly Row[]): Promise<HistoryEntry[]> {
    // A key has the number of the account that it was made with.
    const others = new Set(rows.filter(({ account, key }) => account !== key).map(({ key }) => Number(key)))
    const unknown = [...others].filter(no => !this.#ids.has(no))
    for (const row of await selectIn(this.#database, 'SELECT no, id FROM keys WHERE no', unknown))
      this.#ids.set(Number(row['no']), String(row['id']))
    const read = (row: Row): HistoryEntry => {
      const key = row['account'] === row['key'] ? undefined : this.#ids.get(Number(row['key']))
      return { ...entryOf(row, this.#names), ...(key !== undefined && { key }) }
    }
    try {
      return rows.map(read)
    } catch (cause) {
      if (!(cause instanceof RangeError)) throw cause
      // Another process has recorded names that this one does not know.
      await this.#names.load()
      return rows.map(read)
    }
  }

  /** Forgets what was read from the database: it lacks some of it now. */
  forget(): void {
    this.#ids.clear()
  }

  /** Returns an account's totals. */
  async totals(account: string): Promise<Totals> {
    const [row] = await this.#database.all(
      `SELECT t.ordinal, t.settled, t.folded, t.entries, t.requests FROM totals t JOIN accounts a ON a.no = t.account
       WHERE a.id = ?`,
      [account],
    )
    return {
      ordinal: Number(row?.['ordinal'] ?? 0),
      settled: bigintOf(row, 'settled'),
      folded: bigintOf(row, 'folded'),
      entries: Number(row?.['entries'] ?? 0),
      requests: Number(row?.['requests'] ?? 0),
    }
  }

  /** Returns the number of the kept entries of a key that shares an account. */
  async entriesOfKey({ account, key }: Required<Whose>): Promise<number> {
    const [row] = await this.#database.all(
      `SELECT COUNT(*) AS count FROM exchanges WHERE ${OF_ACCOUNT} AND ${key === account ? OF_KEY : OF_OTHER_KEY}`,
      [account, key ?? account],
    )
    return Number(row?.['count'] ?? 0)
  }

  /** Returns the sum of the charges of an account's kept entries. */
  async charges(account: string): Promise<bigint> {
    const [row] = await this.#database.all(
      `SELECT CAST(COALESCE(SUM(charge), 0) AS BIGINT) AS sum FROM exchanges
       WHERE ${OF_ACCOUNT}`,
      [account],
    )
    return bigintOf(row, 'sum')
  }

  /** Returns counters up to an ordinal of the account: in total, of the last days, and by model. */
  async summary(whose: Whose, nowMs: number): Promise<{ summary: Summary; ordinal: number }> {
    for (let tries = 1; ; tries++) {
      const before = await this.totals(whose.account)
      const summary = await this.#summary(whose, nowMs)
      const after = await this.totals(whose.account)
      // What is recorded between the queries would be in some of the sums only.
      if (tries === TRIES || (after.ordinal === before.ordinal && after.requests === before.requests))
        return { summary, ordinal: before.ordinal }
    }
  }

  async #summary(whose: Whose, nowMs: number): Promise<Summary> {
    const { of, no } = await this.#numberOf(whose)
    const tables = SUMS_OF[of]
    const sums = ['requests', 'input', 'output', 'quarantined'] as const
    const added = sums.map(name => `CAST(COALESCE(SUM(${name}), 0) AS BIGINT) AS ${name}`).join(', ')
    const [totals] = await this.#database.all(
      of === 'account'
        ? `SELECT ${sums.join(', ')} FROM totals WHERE account = ?`
        : `SELECT ${added} FROM key_totals WHERE key = ?`,
      [no],
    )
    const days = await this.#database.all(
      `SELECT day, ${SUMS_OF_DAY} FROM ${tables.days} WHERE ${of} = ? AND day > ? GROUP BY day`,
      [no, Math.floor(nowMs / DAY_MS) - DAYS],
    )
    const models = await this.#database.all(
      `SELECT n.name, ${SUMS_OF_MODEL} FROM ${tables.models} m JOIN names n ON n.no = m.model
       WHERE m.${of} = ? GROUP BY n.name`,
      [no],
    )
    const byModel = new Map(models.map(row => [String(row['name']), countOf(row)]))
    // The totals have what credits have paid; a plan may have paid more.
    const charge = [...byModel.values()].reduce((sum, model) => sum + model.charge, 0n)
    return {
      total: totals ? countOf({ ...totals, charge }) : { requests: 0, input: 0, output: 0, charge },
      days: new Map(days.map(row => [Number(row['day']), countOf(row)])),
      models: byModel,
      quarantined: Number(totals?.['quarantined'] ?? 0),
    }
  }

  /** Returns how far the streams of the shards are recorded. */
  async positions(): Promise<Map<number, Position>> {
    const rows = await this.#database.all('SELECT shard, ms, seq FROM positions')
    return new Map(rows.map(row => [Number(row['shard']), { ms: Number(row['ms']), seq: Number(row['seq']) }]))
  }
}

function countOf(row: Row): Count {
  return {
    requests: Number(row['requests']),
    input: Number(row['input']),
    output: Number(row['output']),
    charge: bigintOf(row, 'charge'),
  }
}
