/**
 * The parts that an exploration drives: one account in a real store with the real scripts, and real records in a SQLite
 * file in memory. Both can be put back to any content that they had. The same work in the same contents gives the same, so
 * it is done once.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { OF_SUMS } from '../../core/ledger/script/buckets.ts'
import { Keys } from '../../core/keys/keys.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { type HoldBounds, NO_CLAIMS, UNBOUNDED } from '../../core/ledger/hold.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { leaseName } from '../../core/ledger/script/store-keys.ts'
import { Scripts } from '../../core/ledger/script/scripts.ts'
import type { Operation } from '../../core/ledger/script/names.ts'
import { readStream, type StreamEntry } from '../../core/ledger/script/stream.ts'
import { askedOf, newPlan, type Plan, planFrom } from '../../core/plans/plan.ts'
import { statesIn } from '../../core/plans/state.ts'
import { writePlan } from '../../core/records/account-rows.ts'
import { timedId } from '../../core/lib/ids.ts'
import { isForGood, latestEndMs } from '../../core/records/entry.ts'
import type { Store } from '../../core/store/store.ts'
import { openLedger } from '../ledger/open.ts'
import { type Rows, SqliteRows } from '../records/sqlite-rows.ts'
import type { RealRedis } from '../redis.ts'

/** What the account was granted, in nano-credits. */
export const GRANTED = 1000n
const HOUR_MS = 3_600_000
/** The time from one comparison of the store to the next. Outcomes may have expired then. */
const COMPARISON_MS = 4 * HOUR_MS

/** A plan that pays for all that the requests of a scope cost, since long ago. */
const PLAN = { then: 'refuse', windows: [{ credits: '0.000001', per: 'month', anchor: 'purchase' }, { requests: 5, per: 'month', anchor: 'purchase' }] } as const // prettier-ignore
const PURCHASED_MS_AGO = 10 * 24 * HOUR_MS

/** The content of the store, as far as it matters. */
export interface StoreView {
  readonly balance: bigint
  /** Of the balance and of the plan. */
  readonly held: bigint
  readonly settled: bigint
  /** Requests that the plan has counted. */
  readonly requests: bigint
  readonly count: number
  /** The number of its last entry, of the last one that it was filled with, and how many sums of lost entries it knows. */
  readonly numbers: string
  /** By the index of the request: amount, floor, and what an earlier end charged. */
  readonly holds: Readonly<Record<number, { readonly amount: bigint; readonly floor: bigint; readonly before: string }>>
  readonly leases: Readonly<Record<number, 'live' | 'over'>>
  /** Entries that wait to be recorded, in their order. */
  readonly entries: readonly string[]
  readonly outcomes: Readonly<Record<number, string>>
}

interface StoreSnapshot {
  readonly view: StoreView
  readonly dumps: readonly (Buffer | null)[]
}

interface RecordsSnapshot {
  readonly settled: bigint
  /** Requests whose last word is recorded. */
  readonly final: ReadonlySet<number>
  readonly rows: Rows
}

/** What work gave, and the contents after it. */
interface Done {
  readonly store: number
  readonly records: number
  readonly answer?: unknown
  readonly thrown?: unknown
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
  /** The time, which stands still. */
  readonly now = Date.now()
  /** The ids of requests. */
  readonly ids: readonly string[] = [timedId(this.now), timedId(this.now + 1)]
  readonly bucket = `${Math.floor(this.now / HOUR_MS)}.0`
  readonly #rows: SqliteRows
  readonly #stores = new Contents<StoreSnapshot>()
  readonly #records = new Contents<RecordsSnapshot>()
  readonly #done = new Map<string, Done>()
  /** The contents that the exploration is in. The parts follow when something is done in them. */
  #at = { store: -1, records: -1 }
  /** The contents that the parts have. */
  #now = { store: -1, records: -1 }

  /** Another key that spends from the account. Undefined if it is not shared. */
  readonly second: string | undefined
  /** The claims of a hold that has not grown, if a plan pays. */
  #claims: string | undefined
  /** The windows in which requests need room. Undefined without a plan. */
  readonly bounds: HoldBounds | undefined

  private constructor(
    ledger: Ledger,
    store: Store,
    prefix: string,
    { account, second, plan }: Pick<World, 'account' | 'second'> & { readonly plan: Plan | undefined },
    rows: SqliteRows,
  ) {
    this.ledger = ledger
    this.scripts = new Scripts(store, prefix)
    this.account = account
    this.second = second
    this.bounds = plan && { ...UNBOUNDED, plan, credits: false, windows: now => askedOf(plan, ['m'], new Map(), now) }
    this.#rows = rows
  }

  /**
   * Opens a world of its own.
   * @param isShared whether the first request is of another key than the second
   * @param hasPlan whether a plan pays for the requests
   * @param change changes the text of the scripts
   */
  static async open(
    t: Test,
    redis: RealRedis,
    prefix: string,
    {
      isShared = false,
      hasPlan = false,
      change,
    }: { readonly isShared?: boolean; readonly hasPlan?: boolean; readonly change?: (lua: string) => string } = {},
  ): Promise<World> {
    const data = mkdtempSync(join(process.platform === 'linux' ? '/dev/shm' : tmpdir(), 'tollgate-explore-'))
    t.teardown(() => rmSync(data, { recursive: true, force: true }))
    const { ledger, store } = await openLedger(t, redis, prefix, { commandTimeoutMs: 60_000, data })
    const { redis: client } = store
    const define = client.defineCommand.bind(client)
    if (change) client.defineCommand = (name, { lua, ...how }) => define(name, { ...how, lua: change(lua) })
    const keys = new Keys(ledger, 0, Date.now)
    const wish = { type: 'famC', name: '', expiresAt: undefined }
    const { key } = await keys.changes.create({ ...wish, credits: GRANTED })
    const account = key.id
    const second = isShared ? (await keys.changes.create({ ...wish, credits: 0n, account })).key.id : undefined
    const plan = hasPlan ? await givePlan(ledger, account) : undefined
    // The lineage of the records, and the log of changes, only grow.
    const rows = new SqliteRows(t, join(data, 'records.sqlite'), 'commits', 'audit')
    const world = new World(ledger, store, prefix, { account, second, plan }, rows)
    world.#at = { store: await world.#saveStore(), records: await world.#saveRecords() }
    return world
  }

  /** The key of a request; undefined for the one with the name of the account. */
  keyOf(x: number): string | undefined {
    return x === 0 ? this.second : undefined
  }

  /** The numbers of the contents now. */
  get at(): { readonly store: number; readonly records: number } {
    return this.#at
  }

  /** Goes to contents. */
  to(store: number, records: number): void {
    this.#at = { store, records }
  }

  /**
   * Does work in the contents of now, or returns what the same work gave in them before.
   * @param name the same for the same work
   * @param of what the work reads and changes
   * @throws what the work throws
   */
  async once<T>(name: string, of: 'store' | 'both', work: () => Promise<T>): Promise<T> {
    const { store, records } = this.#at
    const key = `${store} ${of === 'both' ? records : ''} ${name}`
    const done = this.#done.get(key) ?? (await this.#do(of, work))
    this.#done.set(key, done)
    this.#at = { store: done.store, records: of === 'both' ? done.records : records }
    if (done.thrown !== undefined) throw done.thrown
    return done.answer as T
  }

  async #do(of: 'store' | 'both', work: () => Promise<unknown>): Promise<Done> {
    await this.#putStoreBack(this.#at.store)
    if (of === 'both') this.#putRecordsBack(this.#at.records)
    const given = await work().then(
      answer => ({ answer }),
      (thrown: unknown) => ({ thrown }),
    )
    return { store: await this.#saveStore(), records: of === 'both' ? await this.#saveRecords() : -1, ...given }
  }

  /** Runs an operation. @throws GatewayError */
  run(operation: Operation): Promise<readonly string[]> {
    const { name, keys, args } = operation
    return this.once([name, ...keys, ...args].join(' '), 'store', () => {
      const answer = this.scripts.run(operation)
      this.scripts.flush()
      return answer
    })
  }

  get #names(): string[] {
    const { keys } = this.scripts
    const own = keys.of(this.account)
    const holds = this.ids.map(id => keys.hold(this.account, id))
    // Sums of lost entries have a bucket of their own.
    const outcomes = [this.bucket, OF_SUMS].map(bucket => keys.outcomes(this.account, bucket))
    const record = keys.record({ account: this.account, key: this.second })
    const others = this.second === undefined ? [] : [record]
    return [own.account, own.leases, own.stream, own.slots, ...outcomes, ...holds, ...others]
  }

  view(store: number): StoreView {
    return (this.#stores.all[store] as StoreSnapshot).view
  }

  recorded(records: number): RecordsSnapshot {
    return this.#records.all[records] as RecordsSnapshot
  }

  async #saveStore(): Promise<number> {
    const names = this.#names
    const [account = '', leases = '', stream = '', , outcomes = '', ofSums = '', ...rest] = names
    const holds = rest.slice(0, this.ids.length)
    const pipeline = this.scripts.redis.pipeline()
    pipeline
      .hmget(account, 'bal', 'rsv', 'n', 'gra', 'sq', 'fr', 'u:', `u:${this.second}`, FIELDS.windows)
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
    const [balance = 0n, held = 0n, count = 0n, granted = 0n, ordinal = 0n, from = 0n] = sums
      .slice(0, 6)
      .map(sum => BigInt(sum ?? 0))
    const parts = sums.slice(6, 8).join(', ')
    const [ofPlan, requests] = [0, 1].map(place => statesIn(sums[8]).byPlace.get(place))
    const index = (id: string): number => this.ids.indexOf(id)
    const view: StoreView = {
      balance,
      held: held + (ofPlan?.held ?? 0n),
      settled: granted - balance - held + (ofPlan?.used ?? 0n),
      requests: requests?.used ?? 0n,
      count: Number(count),
      numbers: `${ordinal} ${from} ${lost} ${parts}`,
      holds: Object.fromEntries(
        texts.flatMap((text, at) => {
          const [amount = 0, floor = 0, , before = '', , claims = ''] = text?.split(' ') ?? []
          const covered = /^p[^:]+:(\d+)/.exec(claims)?.[1] ?? 0
          if (covered !== 0) this.#claims ??= claims
          return text ? [[at, { amount: BigInt(amount) + BigInt(covered), floor: BigInt(floor), before }]] : []
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

  /** The name of an entry, without what differs from run to run: kind, number, request, charge, earlier charge, plan. */
  nameOf(text: string): string {
    const [kind = '', , ordinal = '', id = '', charge = '', before = '', , , , plan = ''] = text.split(' ')
    return [kind, ordinal, this.ids.indexOf(id), charge, before, plan.split(',')[0]].join(' ')
  }

  async #saveRecords(): Promise<number> {
    const rows = this.#rows.read()
    const ageOf = (ms: number): string => String(Math.round((this.now - ms) / COMPARISON_MS))
    const entries = await this.ledger.records.history.entries({ account: this.account }, { count: 100 })
    const exchanges = entries.map(entry => [
      this.ids.indexOf(entry.id),
      ...[entry.ordinal, entry.charge, entry.plan?.covered ?? 0, entry.kind].map(String),
      ...[entry.at, latestEndMs(entry)].map(ageOf),
    ])
    const replaced = (rows.get('replaced') ?? []).map(({ ordinal, charge, ended }) => [
      ...[ordinal, charge].map(String),
      ageOf(Number(ended)),
    ])
    const totals = (rows.get('totals') ?? []).map(({ ordinal, settled }) => [ordinal, settled].map(String))
    const ofKeys = (rows.get('key_totals') ?? []).map(({ key, settled }) => [key, settled].map(String))
    const text = JSON.stringify([exchanges.map(String).sort(), replaced, totals, ofKeys])
    this.#now.records = this.#records.numberOf(text, () => ({
      settled: entries.reduce((sum, { plan }) => sum + BigInt(plan?.covered ?? 0), BigInt(totals[0]?.[1] ?? 0)),
      final: new Set(entries.filter(({ kind }) => isForGood(kind)).map(({ id }) => this.ids.indexOf(id))),
      rows,
    }))
    return this.#now.records
  }

  #putRecordsBack(records: number): void {
    if (this.#now.records === records) return
    this.#rows.putBack(this.recorded(records).rows)
    for (const forget of this.ledger.records.lineage.onForget) forget()
    this.#now.records = records
  }

  async #putStoreBack(store: number): Promise<void> {
    if (this.#now.store === store) return
    const names = this.#names
    const pipeline = this.scripts.redis.pipeline().del(...names)
    this.#stores.all[store]?.dumps.forEach((dump, at) => dump && pipeline.restore(names[at] as string, 0, dump))
    for (const [cause] of (await pipeline.exec()) ?? []) if (cause) throw cause
    this.#now.store = store
  }

  entries(): Promise<StreamEntry[]> {
    return readStream(this.scripts, this.scripts.keys.of(this.account).shard, { count: 100 })
  }

  /** Deletes entries of the stream by their names. */
  trim(names: readonly string[]): Promise<void> {
    return this.once(`trim ${names.join(',')}`, 'store', async () => {
      const { stream } = this.scripts.keys.of(this.account)
      const rows = await this.scripts.redis.xrange(stream, '-', '+')
      const ids = rows.flatMap(([id, [, text = '']]) => (names.includes(this.nameOf(text)) ? [id] : []))
      if (ids.length > 0) await this.scripts.redis.xdel(stream, ...ids)
    })
  }

  /** Lets the lease of a request end. */
  expire(x: number): Promise<void> {
    const { account, bucket } = this
    const lease = leaseName({ account, id: this.ids[x] ?? '' }, bucket)
    return this.once(`expire ${x}`, 'store', async () => {
      await this.scripts.redis.zadd(this.scripts.keys.of(account).leases, 'XX', 1, lease)
    })
  }

  /** Writes the hold of a request and its lease, and nothing else. */
  bringBack(x: number, amount: bigint): Promise<void> {
    const { account, bucket } = this
    const { redis, keys } = this.scripts
    const id = this.ids[x] ?? ''
    return this.once(`bring back ${x}`, 'store', async () => {
      const key = this.keyOf(x)
      const slot = key === undefined ? '0' : `0:${key}`
      const claims = this.#claims ?? NO_CLAIMS
      const ofCredits = claims === NO_CLAIMS ? amount : 0n
      await redis.set(keys.hold(account, id), `${ofCredits} 0 ${bucket} - ${slot} ${claims} []`)
      await redis.zadd(keys.of(account).leases, '9'.repeat(13), leaseName({ account, id }, bucket))
    })
  }

  /** Lets the outcomes expire. */
  forgetOutcomes(): Promise<void> {
    return this.once('forget outcomes', 'store', async () => {
      await this.scripts.redis.del(this.scripts.keys.outcomes(this.account, this.bucket))
    })
  }

  /** Returns a time that lies before what has ended since a number of comparisons ago. */
  comparedMs(comparisons: number): number {
    return this.now - (comparisons + 0.5) * COMPARISON_MS
  }

  /** Lets what is recorded have ended one comparison ago. */
  age(): Promise<void> {
    return this.once('age', 'both', () =>
      this.ledger.records.database.transaction(async sql => {
        for (const table of ['exchanges', 'replaced'])
          await sql.all(`UPDATE ${table} SET ended = ended - ?`, [COMPARISON_MS])
      }),
    )
  }

  /** Deletes everything of the account. */
  empty(): Promise<void> {
    return this.once('empty', 'store', async () => {
      await this.scripts.redis.del(...this.#names)
    })
  }
}

/** Gives the account a plan that was bought long ago. */
async function givePlan({ records, restorer }: Ledger, account: string): Promise<Plan> {
  const text = JSON.stringify(newPlan(PLAN, Date.now() - PURCHASED_MS_AGO))
  await records.database.transaction(sql => writePlan(sql, account, text))
  const recorded = await records.accounts.get(account)
  if (recorded) await restorer.restoreAccount(recorded)
  return planFrom(text)
}
