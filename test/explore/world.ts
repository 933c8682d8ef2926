/**
 * The parts that an exploration drives: one account in a real store with the real scripts, and real records in a SQLite
 * file in memory. Both can be put back to any content that they had.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import type { Test } from 'tap'
import { OF_SUMS } from '../../core/ledger/buckets.ts'
import { Keys } from '../../core/ledger/keys.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { Scripts } from '../../core/ledger/scripts.ts'
import { readStream, type StreamEntry } from '../../core/ledger/stream.ts'
import { timedId } from '../../core/lib/ids.ts'
import { KINDS } from '../../core/records/entry.ts'
import type { Store } from '../../core/store/store.ts'
import { openLedger } from '../ledger/open.ts'
import type { RealRedis } from '../redis.ts'

/** The number of the kind of reaped exchanges in the records. */
const REAPED = String(KINDS.indexOf('reaped'))
/** What the account was granted, in nano-credits. */
export const GRANTED = 1000n
const HOUR_MS = 3_600_000

/** The content of the store, as far as it matters. */
export interface StoreView {
  readonly balance: bigint
  readonly held: bigint
  readonly settled: bigint
  readonly count: number
  /** The number of its last entry, of the last one that it was filled with, and how many sums of lost entries it knows. */
  readonly numbers: string
  /** By the index of the request: amount and floor. */
  readonly holds: Readonly<Record<number, { readonly amount: bigint; readonly floor: bigint }>>
  readonly leases: Readonly<Record<number, 'live' | 'over'>>
  /** Entries that wait to be recorded, in their order. */
  readonly entries: readonly string[]
  readonly outcomes: Readonly<Record<number, string>>
}

interface StoreSnapshot {
  readonly view: StoreView
  readonly dumps: readonly (Buffer | null)[]
}

type Rows = ReadonlyMap<string, readonly Record<string, SQLInputValue>[]>

interface RecordsSnapshot {
  readonly settled: bigint
  /** Requests whose last word is recorded. */
  readonly final: ReadonlySet<number>
  readonly rows: Rows
}

/** Contents by number. The same content has the same number. */
class Contents<T> {
  readonly #numbers = new Map<string, number>()
  readonly all: T[] = []

  numberOf(text: string, make: () => T): number {
    const known = this.#numbers.get(text)
    if (known !== undefined) return known
    this.#numbers.set(text, this.all.length)
    return this.all.push(make()) - 1
  }
}

/** One account in a store and in records. */
export class World {
  readonly ledger: Ledger
  readonly scripts: Scripts
  readonly account: string
  /** The ids of requests. */
  readonly ids: readonly string[]
  readonly bucket = `${Math.floor(Date.now() / HOUR_MS)}.0`
  readonly #raw: DatabaseSync
  readonly #tables: readonly string[]
  readonly #stores = new Contents<StoreSnapshot>()
  readonly #records = new Contents<RecordsSnapshot>()
  #now = { store: -1, records: -1 }

  private constructor(ledger: Ledger, store: Store, prefix: string, account: string, raw: DatabaseSync) {
    this.ledger = ledger
    this.scripts = new Scripts(store, prefix)
    this.account = account
    this.ids = [timedId(Date.now()), timedId(Date.now() + 1)]
    this.#raw = raw
    // The lineage of the records only grows.
    this.#tables = raw
      .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
      .all()
      .map(row => String(row['name']))
      .filter(name => name !== 'commits' && name !== 'audit')
  }

  /** Opens a world of its own. @param change changes the text of the scripts */
  static async open(t: Test, redis: RealRedis, prefix: string, change?: (lua: string) => string): Promise<World> {
    const data = mkdtempSync(join(process.platform === 'linux' ? '/dev/shm' : tmpdir(), 'tollgate-explore-'))
    t.teardown(() => rmSync(data, { recursive: true, force: true }))
    const { ledger, store } = await openLedger(t, redis, prefix, { commandTimeoutMs: 60_000, data })
    const { redis: client } = store
    const define = client.defineCommand.bind(client)
    if (change) client.defineCommand = (name, { lua, ...how }) => define(name, { ...how, lua: change(lua) })
    const keys = new Keys(ledger, 0, Date.now)
    const { key } = await keys.create({ type: 'famC', name: '', credits: GRANTED, expiresAt: undefined })
    const raw = new DatabaseSync(join(data, 'records.sqlite'))
    t.teardown(() => raw.close())
    raw.exec('PRAGMA busy_timeout=10000; PRAGMA synchronous=OFF')
    return new World(ledger, store, prefix, key.id, raw)
  }

  get #names(): string[] {
    const { keys } = this.scripts
    const own = keys.of(this.account)
    const holds = this.ids.map(id => keys.hold(this.account, id))
    // Sums of lost entries have a bucket of their own.
    const outcomes = [this.bucket, OF_SUMS].map(bucket => keys.outcomes(this.account, bucket))
    return [own.account, own.leases, own.stream, own.places, ...outcomes, ...holds]
  }

  view(store: number): StoreView {
    return (this.#stores.all[store] as StoreSnapshot).view
  }

  recorded(records: number): RecordsSnapshot {
    return this.#records.all[records] as RecordsSnapshot
  }

  /** Returns the number of the store's content now. */
  async saveStore(): Promise<number> {
    const names = this.#names
    const [account = '', leases = '', stream = '', , outcomes = '', ofSums = '', ...holds] = names
    const pipeline = this.scripts.redis.pipeline()
    pipeline
      .hmget(account, 'bal', 'rsv', 'n', 'gra', 'sq', 'fr')
      .zrange(leases, '0', '-1', 'WITHSCORES')
      .xrange(stream, '-', '+')
    pipeline
      .hgetall(outcomes)
      .mget(...holds)
      .hlen(ofSums)
    for (const name of names) pipeline.dumpBuffer(name)
    const answers = ((await pipeline.exec()) ?? []).map(([cause, answer]) => {
      if (cause) throw cause
      return answer
    })
    const [sums, scored, rows, ended, texts, lost] = answers as [
      string[],
      string[],
      [string, string[]][],
      object,
      string[],
      number,
    ]
    const [balance = 0n, held = 0n, count = 0n, granted = 0n, ordinal = 0n, from = 0n] = sums.map(sum =>
      BigInt(sum ?? 0),
    )
    const index = (id: string): number => this.ids.indexOf(id)
    const view: StoreView = {
      balance,
      held,
      settled: granted - balance - held,
      count: Number(count),
      numbers: `${ordinal} ${from} ${lost}`,
      holds: Object.fromEntries(
        texts.flatMap((text, at) => {
          const [amount = 0, floor = 0] = text?.split(' ') ?? []
          return text ? [[at, { amount: BigInt(amount), floor: BigInt(floor) }]] : []
        }),
      ),
      leases: Object.fromEntries(
        scored.flatMap((lease, at) =>
          at % 2 === 0 ? [[index(lease.split(' ')[1] ?? ''), Number(scored[at + 1]) > 1 ? 'live' : 'over']] : [],
        ),
      ),
      entries: rows.map(([, [, text = '']]) => this.nameOf(text)),
      outcomes: Object.fromEntries(Object.entries(ended).map(([id, outcome]) => [index(id), String(outcome)])),
    }
    const text = JSON.stringify(view, (_name, value: unknown) => (typeof value === 'bigint' ? String(value) : value))
    this.#now.store = this.#stores.numberOf(text, () => ({ view, dumps: answers.slice(6) as (Buffer | null)[] }))
    return this.#now.store
  }

  /** The name of an entry, without what differs from run to run: kind, number, request, charge, earlier charge. */
  nameOf(text: string): string {
    const [kind = '', , ordinal = '', id = '', charge = '', before = ''] = text.split(' ')
    return [kind, ordinal, this.ids.indexOf(id), charge, before].join(' ')
  }

  /** Returns the number of the records' content now. */
  saveRecords(): number {
    const rows = new Map(
      this.#tables.map(table => {
        const statement = this.#raw.prepare(`SELECT * FROM ${table}`)
        statement.setReadBigInts(true)
        return [table, statement.all()]
      }),
    )
    const hex = (id: unknown): string => Buffer.from(id as Uint8Array).toString('hex')
    const index = (id: unknown): number => this.ids.findIndex(each => each.replaceAll('-', '') === hex(id))
    const exchanges = (rows.get('exchanges') ?? []).map(({ id, ordinal, charge, kind, ended }) => [
      index(id),
      ...[ordinal, charge, kind].map(String),
      Number(ended) < Date.now() - 2 * HOUR_MS ? 'old' : 'recent',
    ])
    const replaced = (rows.get('replaced') ?? []).map(({ ordinal, charge }) => [ordinal, charge].map(String))
    const totals = (rows.get('totals') ?? []).map(({ ordinal, settled }) => [ordinal, settled].map(String))
    const text = JSON.stringify([exchanges.map(String).sort(), replaced, totals])
    this.#now.records = this.#records.numberOf(text, () => ({
      settled: BigInt(totals[0]?.[1] ?? 0),
      final: new Set(exchanges.filter(([, , , kind]) => kind !== REAPED).map(([at]) => Number(at))),
      rows,
    }))
    return this.#now.records
  }

  /** Puts both back to a content. */
  async to(store: number, records: number): Promise<void> {
    if (this.#now.records !== records) {
      const { rows } = this.recorded(records)
      this.#raw.exec('BEGIN IMMEDIATE')
      for (const [table, all] of rows) {
        this.#raw.exec(`DELETE FROM ${table}`)
        for (const row of all) {
          const columns = Object.keys(row)
          const places = columns.map(() => '?').join(',')
          this.#raw.prepare(`INSERT INTO ${table} (${columns.join(',')}) VALUES (${places})`).run(...Object.values(row))
        }
      }
      this.#raw.exec('COMMIT')
      for (const forget of this.ledger.records.lineage.onForget) forget()
      this.#now.records = records
    }
    if (this.#now.store === store) return
    const names = this.#names
    const pipeline = this.scripts.redis.pipeline().del(...names)
    this.#stores.all[store]?.dumps.forEach((dump, at) => dump && pipeline.restore(names[at] as string, 0, dump))
    for (const [cause] of (await pipeline.exec()) ?? []) if (cause) throw cause
    this.#now.store = store
  }

  /** Notes that an operation may have changed the store, or the records. */
  changed(): void {
    this.#now = { store: -1, records: -1 }
  }

  entries(): Promise<StreamEntry[]> {
    return readStream(this.scripts, this.scripts.keys.of(this.account).shard, { count: 100 })
  }

  /** Deletes entries of the stream by their names. */
  async trim(names: readonly string[]): Promise<void> {
    const { stream } = this.scripts.keys.of(this.account)
    const rows = await this.scripts.redis.xrange(stream, '-', '+')
    const ids = rows.flatMap(([id, [, text = '']]) => (names.includes(this.nameOf(text)) ? [id] : []))
    if (ids.length > 0) await this.scripts.redis.xdel(stream, ...ids)
  }

  /** Lets the outcomes expire. */
  async forgetOutcomes(): Promise<void> {
    await this.scripts.redis.del(this.scripts.keys.outcomes(this.account, this.bucket))
  }

  /** Deletes everything of the account. */
  async empty(): Promise<void> {
    await this.scripts.redis.del(...this.#names)
  }
}
