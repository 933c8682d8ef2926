/**
 * The records: keys, grants, prices, ended exchanges and their sums, as rows of a SQL database. The store has only what
 * is hot.
 */
import { join } from 'node:path'
import type { StoreConfig } from '../config/config.ts'
import type { Log } from '../lib/log.ts'
import { AccountRecords } from './account-records.ts'
import { AuditLog } from './audit-log.ts'
import { Codes } from './codes.ts'
import { type Database, insertAll, selectIn } from './database.ts'
import { dayOf } from './entry.ts'
import { Failures } from './failures.ts'
import { History } from './history.ts'
import { KeyRecords } from './key-records.ts'
import { beginEpoch, epochOf, epochToRecord, LEFT, leftWords, meta, migrate, NewerTables, STORE } from './migrations.ts'
import { Lineage } from './lineage.ts'
import { Names } from './names.ts'
import { Recorder } from './recorder.ts'
import { Notices } from './notices.ts'
import { Requests } from './requests.ts'
import { deleteBefore, deleteDays, deleteFailures } from './retention.ts'
import { Tokens } from './tokens.ts'

/** Returns the path of the SQLite file; undefined if the records are in PostgreSQL. */
export function fileOf({ data, records }: Pick<StoreConfig, 'data' | 'records'>): string | undefined {
  return records === undefined ? join(data, 'records.sqlite') : undefined
}

/** Opens the database of the records. */
export async function openDatabase(config: StoreConfig, log: Log): Promise<Database> {
  const { records = '', recordsConnections: connections, recordsTimeoutMs: timeoutMs } = config
  const file = fileOf(config)
  if (file !== undefined) return (await import('./sqlite.ts')).openSqlite(file)
  const { openPostgres } = await import('./postgres.ts')
  return openPostgres(records, { connections, timeoutMs, log })
}

/** Open records. */
export class Records {
  readonly database: Database
  /** Identifies these records. A store belongs to the records whose id it has. */
  readonly id: string
  /** The transactions that they must have. */
  readonly lineage: Lineage
  readonly keys: KeyRecords
  readonly accounts: AccountRecords
  readonly history: History
  readonly recorder: Recorder
  /** Why requests failed. */
  readonly failures: Failures
  /** Who changed what. */
  readonly audit: AuditLog
  /** The tokens of operators, and their sessions. */
  readonly tokens: Tokens
  /** What was asked for with an idempotency key. */
  readonly requests: Requests
  readonly codes: Codes
  readonly notices: Notices
  #closing: Promise<void> | undefined

  /**
   * Opens the records and brings their tables up to date.
   * @param evenLeft whether they may have been copied to other records
   * @throws Error for the operator
   */
  static async open(
    config: StoreConfig,
    { log, newId, now }: { readonly log: Log; readonly newId: () => string; readonly now: () => number },
    evenLeft?: 'even left',
  ): Promise<Records> {
    const database = await openDatabase(config, log)
    try {
      const id = await migrate(database, newId)
      const left = evenLeft ? undefined : await meta(database, LEFT)
      if (left !== undefined) throw new Error(leftWords(database.description, left))
      return new Records(database, id, newId, now)
    } catch (cause) {
      await database.close()
      throw cause
    }
  }

  private constructor(opened: Database, id: string, newId: () => string, now: () => number) {
    this.lineage = new Lineage(opened, newId)
    const database = this.lineage.followed()
    this.database = database
    this.id = id
    const names = new Names(database)
    this.keys = new KeyRecords(database)
    this.accounts = new AccountRecords(database)
    this.history = new History(database, names)
    this.recorder = new Recorder(database, names, now)
    this.failures = new Failures(database)
    this.audit = new AuditLog(database)
    this.tokens = new Tokens(database)
    this.requests = new Requests(database)
    this.codes = new Codes(database)
    this.notices = new Notices(database)
    this.lineage.onForget.push(
      () => names.forget(),
      () => this.recorder.forget(),
      () => this.history.forget(),
    )
  }

  /** Describes the records for the operator, without credentials. */
  get description(): string {
    return this.database.description
  }

  /** Writes price versions with their numbers, except those that are recorded already. */
  async addPrices(prices: ReadonlyMap<string, string>): Promise<void> {
    const found = await selectIn(this.database, 'SELECT version FROM prices WHERE version', [...prices.keys()])
    const known = new Set(found.map(row => row['version']))
    const rows = [...prices].filter(([version]) => !known.has(version))
    if (rows.length === 0) return
    await this.database.transaction(sql =>
      insertAll(sql, 'INSERT INTO prices (version, numbers)', rows, 'ON CONFLICT (version) DO NOTHING'),
    )
  }

  /** Returns the number of times that a store was restored from these records. */
  epoch(): Promise<number> {
    return epochOf(this.database)
  }

  /** Whether the tables are those of a newer version of Tollgate. */
  isNewer(): Promise<boolean> {
    return epochToRecord(this.database).then(
      () => false,
      (cause: unknown) => {
        if (cause instanceof NewerTables) return true
        throw cause
      },
    )
  }

  /** Returns the id of the store that is used with these records. Undefined if none was noted. */
  store(): Promise<string | undefined> {
    return meta(this.database, STORE)
  }

  /**
   * Begins a new epoch. Call it before restoring a store from the records. Entries that an archiver read from the
   * store before that are then refused, because the restored store does not contain them.
   * @param store the id of the store if it is used with these records from now on, instead of another one
   */
  async nextEpoch(store?: string): Promise<number> {
    return this.database.transaction(sql => beginEpoch(sql, store))
  }

  /** Returns the numbers of a price version. Undefined if it was never recorded. */
  async price(version: string): Promise<string | undefined> {
    const [row] = await this.database.all('SELECT numbers FROM prices WHERE version = ?', [version])
    return row?.['numbers'] as string | undefined
  }

  /** Deletes the exchanges that began before a time. @returns the number of deleted exchanges */
  deleteBefore(ms: number): Promise<number> {
    return deleteBefore(this.database, ms)
  }

  /** Deletes the sums of accounts of the days before a time. @returns the number of deleted sums */
  deleteDaysBefore(ms: number): Promise<number> {
    return deleteDays(this.database, dayOf(ms))
  }

  /** Deletes why requests failed that began before a time. @returns the number of failures */
  deleteFailuresBefore(ms: number): Promise<number> {
    return deleteFailures(this.database, ms)
  }

  /** Closes the database. A second call does nothing. */
  close(): Promise<void> {
    return (this.#closing ??= this.database.close())
  }
}
