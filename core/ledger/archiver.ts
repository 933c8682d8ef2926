/**
 * Moves ended exchanges from the store to the records: reads the streams of the shards in order, records their entries,
 * and only then deletes them from the store.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from '../lib/log.ts'
import { lru } from '../lib/lru.ts'
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
import { readStreams, type StreamEntry, positionText } from './script/stream.ts'

// The following numbers are small, because requests share the connection and this thread.
/** Shards that one command reads. */
const SHARDS_AT_ONCE = 128
/** About how many entries one command returns. */
const READ_AT_ONCE = 1000
/** Most entries of one shard that one command returns. */
const PER_SHARD = 200
/** Entries that one transaction records. */
const PER_TRANSACTION = 1000
/** Interval of the sweeps through all shards, whether or not a process has announced them, in milliseconds. */
const SWEEP_MS = 60_000
/** The same while exchanges end: a process keeps their settlements in memory until a sweep has passed them. */
const BUSY_SWEEP_MS = 10_000
/** About how many bytes of the store an entry occupies. */
const ENTRY_BYTES = 400
/** Interval of the look whether another process has recorded something, in milliseconds. */
const LEFT_LOOK_MS = 20
/** Runs that fail before the backlog is measured again. */
const MEASURE_EVERY = 50

const ALL_SHARDS: readonly number[] = Array.from({ length: SHARDS }, (_, shard) => shard)

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
  /** When the last sweep began, by the store's clock. */
  #sweepBegan = 0
  /** Whether an exchange has ended since then. */
  #busy = false
  /** The epoch of the store in which the last sweep was. */
  #epoch = 0
  #failures = 0
  #backlogBytes = 0
  #oldestMs = 0
  /** The values that `share` has written last, as a text. */
  #shared = ''
  /** Whether a newer version of Tollgate records. */
  outdated = false
  /** Called when there is something to record. */
  onAnnounced: () => void = () => {}

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

  /** Tells the other processes what waits to be recorded, if that has changed. */
  async share(): Promise<void> {
    const text = `${this.#continuity.epoch} ${this.#backlogBytes} ${this.#oldestMs}`
    if (text === this.#shared) return
    await this.#continuity.meta.share(this.waiting)
    this.#shared = text
  }

  /** Looks up what waits in the store, and announces it. A process that begins to record knows nothing of it. */
  async look(): Promise<void> {
    this.#shared = ''
    const { redis, keys } = this.#scripts
    const firsts = await readStreams(this.#scripts, ALL_SHARDS, 1)
    const lengths = await Promise.all([...firsts.keys()].map(shard => orUnavailable(redis.xlen(keys.stream(shard)))))
    const oldest = Math.min(...[...firsts.values()].flatMap(([first]) => (first ? [first.position.ms] : [])))
    this.#backlogBytes = lengths.reduce((sum, length) => sum + length, 0) * ENTRY_BYTES
    this.#oldestMs = Number.isFinite(oldest) ? oldest : 0
    for (const shard of firsts.keys()) this.announce(shard)
  }

  /** Announces that a shard has entries. */
  announce(shard: number): void {
    this.#announced.add(shard)
    this.onAnnounced()
  }

  /** Whether shards are announced. */
  get hasAnnounced(): boolean {
    return this.#announced.size > 0
  }

  /** Whether all shards are to be read. */
  get isSweepDue(): boolean {
    // What the store had in an earlier epoch may be lost, so nothing is known of it.
    if (this.#continuity.epoch !== this.#epoch) return true
    const passedMs = this.#continuity.now() - this.#sweepBegan
    return passedMs >= (this.#busy ? BUSY_SWEEP_MS : SWEEP_MS) || passedMs < 0
  }

  /** Tells the process that records which shards have entries. */
  async pass(): Promise<void> {
    if (this.#announced.size === 0) return
    const shards = [...this.#announced]
    this.#announced.clear()
    try {
      await this.#scripts.write('SADD', this.#scripts.keys.shared('announced'), ...shards)
    } catch (cause) {
      for (const shard of shards) this.#announced.add(shard)
      throw cause
    }
  }

  /** Takes over what other processes have announced. */
  async collect(): Promise<void> {
    const { redis, keys } = this.#scripts
    for (const shard of await orUnavailable(redis.spop(keys.shared('announced'), SHARDS))) this.announce(Number(shard))
  }

  /** Records the entries of the announced shards, or of all if a sweep is due. @throws Error if it cannot */
  async run(): Promise<void> {
    const isSweep = this.isSweepDue
    const shards = isSweep ? ALL_SHARDS : [...this.#announced]
    const { epoch } = this.#continuity
    const beganAt = this.#continuity.now()
    if (epoch !== this.#epoch) this.#expiring.clear()
    this.#busy = !isSweep && (this.#busy || shards.length > 0)
    this.#announced.clear()
    try {
      await this.#record(shards)
    } catch (cause) {
      for (const shard of shards) this.#announced.add(shard)
      await this.#failed(cause)
      return
    }
    this.#backlogBytes = 0
    this.#oldestMs = 0
    // At level warn, so that an operator who has seen the failure also sees its end.
    if (this.#failures > 0) this.#log.warn('ended exchanges are recorded again')
    this.#failures = 0
    if (!isSweep) return
    this.#epoch = epoch
    this.#sweepBegan = beganAt
    // If the store was restored meanwhile, the sweep may have missed what it lost.
    const same = this.#continuity.open && this.#continuity.epoch === epoch
    if (same) await this.#continuity.meta.share({ recordedUntil: beganAt })
  }

  /** Records everything that is in the store now. */
  async runAll(): Promise<void> {
    await this.#record(ALL_SHARDS)
  }

  /**
   * Leaves everything that is in the store now to the process that records, and waits until it is recorded.
   * @param ms how long to wait, about
   * @returns whether it was recorded in time
   */
  async leave(ms: number): Promise<boolean> {
    const { redis, keys } = this.#scripts
    let looks = ms / LEFT_LOOK_MS
    const lasts = new Map<number, string>()
    await Promise.all(
      ALL_SHARDS.map(async shard => {
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
        if (pages.length > 0) await this.#recordPages(pages, epoch)
        pages = []
        count = 0
      }
      for (let at = 0; at < left.length; at += SHARDS_AT_ONCE) {
        const group = left.slice(at, at + SHARDS_AT_ONCE)
        const each = Math.min(PER_SHARD, Math.ceil(READ_AT_ONCE / group.length))
        for (const [shard, entries] of await readStreams(this.#scripts, group, each)) {
          if (entries.length === each) again.push(shard)
          this.#oldestMs = Math.min(this.#oldestMs || Infinity, entries[0]?.position.ms ?? Infinity)
          pages.push({ shard, entries })
          count += entries.length
        }
        if (count >= PER_TRANSACTION) await recordRead()
      }
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
