/**
 * Moves ended exchanges from the store to the records: reads the streams of the shards in order, records their entries,
 * and only then deletes them from the store.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import { lru } from '../lib/lru.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import { assertMoney } from '../money/assertions.ts'
import { NewerTables } from '../records/migrations.ts'
import { type Position, StaleEpoch } from '../records/recorder.ts'
import type { Records } from '../records/records.ts'
import { endOf, KEPT_MS } from './script/buckets.ts'
import type { Continuity } from './recovery/continuity.ts'
import type { Scripts } from './script/scripts.ts'
import { orUnavailable } from '../records/unavailable.ts'
import type { SharedState } from './recovery/store-meta.ts'
import { SHARDS } from './script/store-keys.ts'
import { readStream, type StreamEntry, positionText } from './script/stream.ts'

/**
 * Entries of one shard that are read at once, shards that are read at the same time, and entries that one transaction
 * records. All are small, because requests share the connection and this thread.
 */
const PER_SHARD = 200
const SIDE_BY_SIDE = 8
const PER_TRANSACTION = 1000
/** Number of runs that visit all shards once, whether or not a process announced them. */
const RUNS_OF_A_ROUND = 100
/** Shards that are announced at once. */
const ANNOUNCED_AT_ONCE = 256
/** About how many bytes of the store an entry occupies. */
const ENTRY_BYTES = 400
/** Interval of the look whether another process has recorded something, in milliseconds. */
const LEFT_LOOK_MS = 20
/** Runs that fail before the backlog is measured again. */
const MEASURE_EVERY = 50

/** What waits to be recorded. */
type Waiting = Pick<SharedState, 'backlogBytes' | 'oldestMs'>

/** Records what ended. Several processes may do so at the same time, but one is enough. */
export class Archiver {
  readonly #scripts: Scripts
  readonly #records: Records
  readonly #continuity: Continuity
  readonly #log: Log
  /** Shards in which this process knows of entries. */
  readonly #announced = new Set<number>()
  /** Buckets whose expiry is set. */
  readonly #expiring = lru<string, true>(20_000)
  /** The next shard of the round, and when the round began by the store's clock. */
  #next = 0
  #roundBegan = 0
  /** The epoch of the store that the round belongs to. */
  #epoch = 0
  #failures = 0
  #backlogBytes = 0
  #oldestMs = 0
  /** Whether a newer version of Tollgate records. */
  outdated = false

  constructor(scripts: Scripts, records: Records, continuity: Continuity, log: Log) {
    this.#scripts = scripts
    this.#records = records
    this.#continuity = continuity
    this.#log = log
  }

  /** What waits to be recorded, as far as this process knows, if it is the one that records. */
  get waiting(): Waiting {
    return { backlogBytes: this.#backlogBytes, oldestMs: this.#oldestMs }
  }

  /** Looks up what waits in the store, and announces it. A process that begins to record knows nothing of it. */
  async look(): Promise<void> {
    const { redis, keys } = this.#scripts
    const lengths = await Promise.all(
      Array.from({ length: SHARDS }, (_, shard) => orUnavailable(redis.xlen(keys.stream(shard)))),
    )
    const waiting = lengths.flatMap((length, shard) => (length > 0 ? [shard] : []))
    const firsts = await Promise.all(waiting.map(shard => readStream(this.#scripts, shard, { count: 1 })))
    const oldest = Math.min(...firsts.flatMap(([first]) => (first ? [first.position.ms] : [])))
    this.#backlogBytes = lengths.reduce((sum, length) => sum + length, 0) * ENTRY_BYTES
    this.#oldestMs = Number.isFinite(oldest) ? oldest : 0
    for (const shard of waiting) this.announce(shard)
  }

  /** Announces that a shard has entries. */
  announce(shard: number): void {
    this.#announced.add(shard)
  }

  /** Tells the process that records which shards have entries. */
  async pass(): Promise<void> {
    if (this.#announced.size === 0) return
    const shards = [...this.#announced]
    this.#announced.clear()
    await this.#scripts.write('SADD', this.#scripts.keys.shared('announced'), ...shards)
  }

  /** Records the entries of the announced shards, and of the next few in turn. @throws Error if it cannot */
  async run(): Promise<void> {
    const { redis, keys } = this.#scripts
    const announced = await orUnavailable(redis.spop(keys.shared('announced'), ANNOUNCED_AT_ONCE))
    for (const shard of announced) this.#announced.add(Number(shard))
    const shards = new Set(this.#announced)
    this.#announced.clear()
    const { epoch } = this.#continuity
    if (epoch !== this.#epoch) {
      // What the store had before may be lost, so nothing is known of it.
      this.#epoch = epoch
      this.#next = 0
      this.#expiring.clear()
    }
    if (this.#next === 0) this.#roundBegan = this.#continuity.now()
    const end = Math.min(SHARDS, this.#next + Math.ceil(SHARDS / RUNS_OF_A_ROUND))
    for (let shard = this.#next; shard < end; shard++) shards.add(shard)
    try {
      await this.#record([...shards])
    } catch (cause) {
      for (const shard of shards) this.#announced.add(shard)
      await this.#failed(cause)
      return
    }
    this.#next = end % SHARDS
    this.#backlogBytes = 0
    this.#oldestMs = 0
    // At level warn, so that an operator who has seen the failure also sees its end.
    if (this.#failures > 0) this.#log.warn('ended exchanges are recorded again')
    this.#failures = 0
    // If the store was restored meanwhile, the round may have missed what it lost.
    const same = this.#continuity.open && this.#continuity.epoch === this.#epoch
    if (this.#next === 0 && same) await this.#continuity.meta.share({ recordedUntil: this.#roundBegan })
  }

  /** Records everything that is in the store now. */
  async runAll(): Promise<void> {
    await this.#record(Array.from({ length: SHARDS }, (_, shard) => shard))
  }

  /**
   * Leaves everything that is in the store now to the process that records, and waits until it is recorded.
   * @param ms how long to wait, about
   * @returns whether it was recorded in time
   */
  async leave(ms: number): Promise<boolean> {
    const { redis, keys } = this.#scripts
    let looks = ms / LEFT_LOOK_MS
    const shards = Array.from({ length: SHARDS }, (_, shard) => shard)
    const lasts = new Map<number, string>()
    await Promise.all(
      shards.map(async shard => {
        const [last] = await orUnavailable(redis.xrevrange(keys.stream(shard), '+', '-', 'COUNT', 1))
        if (!last) return
        lasts.set(shard, last[0])
        this.announce(shard)
      }),
    )
    await this.pass()
    for (const [shard, last] of lasts) {
      // What was recorded is deleted.
      while ((await orUnavailable(redis.xrange(keys.stream(shard), '-', last, 'COUNT', 1))).length > 0) {
        if (looks-- <= 0) return false
        await sleep(LEFT_LOOK_MS)
      }
    }
    return true
  }

  async #failed(cause: unknown): Promise<void> {
    if (cause instanceof StaleEpoch) this.#continuity.suspectOutdated()
    if (cause instanceof NewerTables) this.outdated = true
    if (this.#failures++ % MEASURE_EVERY !== 0) return
    this.#log.warn({ err: cause }, 'ended exchanges cannot be recorded; they wait in the store')
    await this.look()
  }

  async #record(shards: readonly number[]): Promise<void> {
    const { epoch } = this.#continuity
    let left = shards
    while (left.length > 0) {
      const again: number[] = []
      let pages: Page[] = []
      let count = 0
      const recordRead = async (): Promise<void> => {
        const read = pages
        pages = []
        count = 0
        if (read.length > 0) await this.#recordPages(read, epoch)
      }
      await sideBySide(left, SIDE_BY_SIDE, async shard => {
        const entries = await readStream(this.#scripts, shard, { count: PER_SHARD })
        if (entries.length === 0) return
        if (entries.length === PER_SHARD) again.push(shard)
        this.#oldestMs = Math.min(this.#oldestMs || Infinity, entries[0]?.position.ms ?? Infinity)
        pages.push({ shard, entries })
        count += entries.length
        if (count >= PER_TRANSACTION) await recordRead()
      })
      await recordRead()
      left = again
    }
  }

  async #recordPages(pages: readonly Page[], epoch: number): Promise<void> {
    const positions = new Map(pages.map(page => [page.shard, lastOf(page)]))
    const all = pages.flatMap(({ entries }) => entries)
    assertGrowing(all)
    await this.#records.recorder.record(all, positions, epoch)
    const { redis, keys } = this.#scripts
    await this.#expire(all)
    await Promise.all(
      // Exactly these: a store that another server took over may have new entries with earlier ids.
      pages.map(({ shard, entries }) =>
        orUnavailable(redis.xdel(keys.stream(shard), ...entries.map(({ position }) => positionText(position)))),
      ),
    )
  }

  /**
   * Lets the outcomes expire some time after their hour. An exchange whose outcome has expired is found in the stream or
   * in the records.
   */
  async #expire(entries: readonly StreamEntry[]): Promise<void> {
    const now = this.#continuity.now()
    const buckets = new Map<string, number>()
    for (const { bucket, outcomes, kind } of entries) {
      const at = Math.max(endOf(bucket) + KEPT_MS, now + KEPT_MS)
      // A bucket may have lost its expiry by a refund, or by an end without a hold.
      const lasting = kind === 'credit' || kind === 'late' || kind === 'orphan'
      if (!lasting && this.#expiring.has(outcomes) && at === endOf(bucket) + KEPT_MS) continue
      buckets.set(outcomes, at)
      this.#expiring.set(outcomes, true)
    }
    await Promise.all([...buckets].map(([key, at]) => orUnavailable(this.#scripts.redis.pexpireat(key, at))))
  }
}

/** Entries of a shard. */
interface Page {
  readonly shard: number
  readonly entries: readonly StreamEntry[]
}

function lastOf({ entries }: Page): Position {
  return (entries.at(-1) as StreamEntry).position
}

/** Asserts that the ordinals of each account grow from entry to entry. */
function assertGrowing(entries: readonly StreamEntry[]): void {
  const last = new Map<string, number>()
  for (const { account, id, ordinal } of entries) {
    const before = last.get(account) ?? 0
    assertMoney(ordinal > before, 'the ordinals of an account grow', () => ({ account, id, ordinal, before }))
    last.set(account, ordinal)
  }
}
