/**
 * Notices when the store has lost what it acknowledged: its server was restarted, or another one took over. Then nothing
 * is held or settled until the store knows again what the records know. A change that does not interrupt the connection,
 * behind a proxy, is noticed within a second; what is settled in that second counts.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Environment } from '../../lib/environment.ts'
import type { Log } from '../../lib/log.ts'
import { reasonOf } from '../../lib/reason.ts'
import { OnceInAWhile } from '../../lib/once-in-a-while.ts'
import { Serial } from '../../lib/serial.ts'
import type { Records } from '../../records/records.ts'
import type { Store } from '../../store/store.ts'
import { Duty } from './duty.ts'
import { BeingRestored, Recovery, RESTORING_MS } from './recovery.ts'
import { Fallback } from './fallback.ts'
import { EMPTY_STORE, NOT_EMPTY, OTHER_STORE, otherLayout, otherRecords } from './refusals.ts'
import type { Restorer } from './restore.ts'
import type { Scripts } from '../script/scripts.ts'
import { causeOf, orUnavailable } from '../../records/unavailable.ts'
import { serversOf, serversText } from './servers.ts'
import { SHARDS } from '../script/store-keys.ts'
import { commitFrom, REPLACED, type SharedState, StoreMeta } from './store-meta.ts'

/** The layout of the store's keys. */
const LAYOUT = '3'
/** Milliseconds between two attempts to check a store. */
const RETRY_MS = 250
/** Milliseconds for which a request waits for a check that runs. */
const WAIT_MS = 2000
/** Looks at the shared state after which the records are asked whether this is still their store. */
const SUSPECT_EVERY = 10
/** Time after a store was restored in which other processes restore their holds, in milliseconds. */
const OTHERS_MS = 1500
/** What a check reads of what the processes share. The field `generation` has the epoch, as in the first version. */
const FIELDS = 'records store shards layout servers lostAt generation beat commit fallen'.split(' ')

/** What watching a store needs. */
export interface ContinuityNeeds {
  readonly scripts: Scripts
  readonly records: Records
  readonly restorer: Restorer
  readonly store: Pick<Store, 'redis' | 'kind' | 'replicated'>
  readonly environment: Pick<Environment, 'log' | 'newId' | 'now'>
}

/** Watches one store. */
export class Continuity {
  readonly #scripts: Scripts
  readonly #records: Records
  readonly #store: Pick<Store, 'redis' | 'kind' | 'replicated'>
  readonly #log: Log
  readonly #now: () => number
  readonly #recovery: Recovery
  readonly #fallback: Fallback
  readonly meta: StoreMeta
  readonly #checks = new Serial()
  /** Whether this process checks the store. The host of workers leaves that to them. */
  watching = false
  #open = false
  #closed = false
  #isCheckQueued = false
  #retry: NodeJS.Timeout | undefined
  #interruptions = 0
  #lostAt = 0
  #epoch = 0
  /** The id of the store, which the records have too. Undefined if it has none. */
  #id: string | undefined
  readonly #newId: () => string
  #looks = 0
  /** Whether the records may know of a later epoch than the store, and whether they certainly do. */
  #mayBeOutdated = true
  #outdated = false
  /** The epoch in which this process has repeated what it knows. */
  #repeated = 0
  #offsetMs = 0
  readonly #reports = new OnceInAWhile()
  /** Called before this process uses a store that was restored, and when it uses it again. */
  beforeReopening: () => Promise<void> = () => Promise.resolve()
  onReopened: () => void = () => {}

  constructor({ scripts, records, restorer, store, environment }: ContinuityNeeds) {
    const { log, newId, now } = environment
    this.#scripts = scripts
    this.#records = records
    this.meta = new StoreMeta(scripts)
    this.#store = store
    this.#log = log
    this.#now = now
    this.#newId = newId
    const duty = new Duty(scripts, scripts.keys.shared('restoring'), newId(), RESTORING_MS)
    this.#recovery = new Recovery({ scripts, records, restorer, duty, isReplicated: store.replicated, log })
    this.#fallback = new Fallback({ scripts, records, meta: this.meta, recovery: this.#recovery, log, newId })
    records.lineage.onFellBack = () => this.suspectOutdated()
  }

  /** Whether the store is known to have everything that it acknowledged. */
  get open(): boolean {
    return this.#open
  }

  /** Waits for a check that runs, as long as a request waits for the store. @returns whether the store may be used then */
  async whenOpen(): Promise<boolean> {
    if (!this.#open && this.#store.redis.status === 'ready')
      await Promise.race([this.#checks.run(() => Promise.resolve()), sleep(WAIT_MS, undefined, { ref: false })])
    return this.#open
  }

  /** The number of times that the store was restored from the records. */
  get epoch(): number {
    return this.#epoch
  }

  /** The time by the store's clock, in milliseconds since the epoch. */
  now(): number {
    return this.#now() + this.#offsetMs
  }

  /** Milliseconds for which new holds wait until other processes have restored theirs. A clock may go back. */
  get restoringMs(): number {
    const leftMs = this.#lostAt + OTHERS_MS - this.now()
    return leftMs > OTHERS_MS ? 0 : leftMs
  }

  /** Whether outcomes since a time may be missing, because the store lost some, in milliseconds since the epoch. */
  mayLackOutcomes(ms: number): boolean {
    return ms <= this.#lostAt
  }

  /**
   * Checks the store, and from now on whenever its connection was interrupted. Waits while another process restores it.
   * @param mayRebuild whether an empty store is filled from the records
   * @throws Error for the operator if the store cannot be used with these records
   */
  async start(mayRebuild: boolean): Promise<void> {
    while (!(await this.#checks.run(() => this.#checked(mayRebuild)))) {
      if (this.#closed) throw new BeingRestored()
      await sleep(RETRY_MS)
    }
    this.#open = true
    if (this.watching) return
    this.#repeated = this.#epoch
    this.watching = true
    const { redis } = this.#store
    const interrupted = (): void => {
      this.#interruptions++
      this.#open = false
      this.#mayBeOutdated = true
    }
    for (const event of ['close', 'end', '-node']) redis.on(event as 'close', interrupted)
    for (const event of ['ready', '+node', '-node']) redis.on(event as 'ready', () => this.recheck())
  }

  /** Checks the store. @returns false if another process restores it */
  async #checked(mayRebuild: boolean): Promise<boolean> {
    try {
      await this.#check(mayRebuild)
      return true
    } catch (cause) {
      if (!(cause instanceof BeingRestored)) throw cause
      this.#report(cause)
      return false
    }
  }

  /** Checks again whether the store still has everything. */
  recheck(): void {
    if (this.#isCheckQueued) return
    this.#isCheckQueued = true
    void this.#checks.run(async () => {
      this.#isCheckQueued = false
      if (this.#closed) return
      const interruptions = this.#interruptions
      try {
        await this.#check(false)
        const isRestored = this.#epoch !== this.#repeated
        if (isRestored) await this.beforeReopening()
        // Another check follows when the connection is back.
        if (this.#interruptions !== interruptions) return
        this.#open = true
        this.#repeated = this.#epoch
        if (isRestored) this.onReopened()
      } catch (cause) {
        this.#open = false
        if (this.#closed) return
        this.#report(cause)
        clearTimeout(this.#retry)
        this.#retry = setTimeout(() => this.recheck(), RETRY_MS).unref()
      }
    })
  }

  /** Checks the store again because the records refuse what was read from it: they know of a later epoch. */
  suspectOutdated(): void {
    this.#mayBeOutdated = true
    this.recheck()
  }

  #report(cause: unknown): void {
    if (this.#reports.due('store', reasonOf(causeOf(cause)), this.#now()))
      this.#log.warn({ err: cause }, 'the store cannot be used yet')
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#retry)
  }

  /** Reads what the processes share, and compares the servers with the known ones. */
  async state(): Promise<SharedState> {
    const names = ['records', 'store', 'generation', 'recordedUntil', 'backlog', 'oldest', 'fallen', 'commit']
    const [owner, id, epoch, until, backlog, oldest, fallen, commit] = await this.meta.get(...names)
    this.#records.lineage.expect(commitFrom(commit))
    // Another store may be used with the records, although nothing is recorded that would tell.
    if ((id ?? undefined) !== this.#id || fallen || ++this.#looks % SUSPECT_EVERY === 0) this.#mayBeOutdated = true
    // Somebody has emptied the store or restored it, or its database fell back.
    const changed = owner === null || fallen || Number(epoch) !== this.#epoch
    if (changed) this.#open = false
    // A proxy may keep the connection while the server behind it is another one.
    this.recheck()
    return { recordedUntil: Number(until ?? 0), backlogBytes: Number(backlog ?? 0), oldestMs: Number(oldest ?? 0) }
  }

  async #check(mayRebuild: boolean): Promise<void> {
    const { redis, keys } = this.#scripts
    const [seconds = 0, micros = 0] = (await orUnavailable(redis.time())).map(Number)
    this.#offsetMs = seconds * 1000 + Math.floor(micros / 1000) - this.#now()
    const askedAt = this.now()
    const [{ identities, complete }, fields] = await Promise.all([
      serversOf(this.#store.redis),
      this.meta.get(...FIELDS),
    ])
    const [owner, id, shards, layout, known, lostAt, epoch, beat, commit, fallen] = fields
    if (owner === null || owner === undefined) {
      await orUnavailable(this.#records.lineage.follow())
      const lost = await orUnavailable(this.#records.keys.any())
      if (lost && !mayRebuild) throw new Error(EMPTY_STORE)
      await this.#fill(lost)
      return
    }
    if (layout !== LAYOUT || Number(shards) !== SHARDS)
      throw new Error(otherLayout(`layout ${layout} with ${shards} shards`, `layout ${LAYOUT} with ${SHARDS}`))
    if (owner !== this.#records.id) throw new Error(otherRecords(this.#records.description))
    // Another process may have learnt that the records are used with another store.
    this.#mayBeOutdated ||= (id ?? undefined) !== this.#id
    this.#id = id ?? undefined
    this.#lostAt = Number(lostAt ?? 0)
    if (Number(epoch) < this.#epoch) this.#outdated = true
    this.#epoch = Number(epoch)
    const seen = (known ?? '').split(' ')
    const changed = identities.some(server => !seen.includes(server))
    this.#mayBeOutdated ||= changed
    const noted = commitFrom(commit)
    const lacks = fallen || (this.#mayBeOutdated && (await this.#fallback.hasHappened(noted).catch(() => false)))
    if (lacks && noted) {
      this.#open = false
      const state = { id: this.#id, commit: noted, epoch: this.#epoch, nowMs: askedAt }
      this.#epoch = await this.#fallback.recover(state)
    }
    if ((await this.#isOutdated(changed)) || changed) {
      await this.#restoreLost([...new Set([...seen, ...identities])], Number(beat ?? 0))
    } else if (
      complete &&
      !this.#mayBeOutdated &&
      (await orUnavailable(redis.exists(keys.shared('restoring')))) === 0
    ) {
      // Whatever is lost from now on was written since. A process that restores the store may know of an earlier loss.
      await this.meta.set({ beat: String(askedAt) })
    }
  }

  /** Whether the records know of a later epoch than the store: it was being restored, and is another one again. */
  async #isOutdated(changed: boolean): Promise<boolean> {
    if (!this.#mayBeOutdated && !this.#outdated) return false
    let current: string | undefined
    try {
      this.#outdated = (await orUnavailable(this.#records.epoch())) !== this.#epoch
      current = await orUnavailable(this.#records.store())
    } catch (cause) {
      // A mere suspicion does not close a store while the records are away.
      if (this.#outdated || changed || this.#id === REPLACED) throw cause
      return false
    }
    if (current !== this.#id) {
      // All processes that use this store must learn of it.
      if (this.#id !== undefined) await this.meta.replace(this.#id)
      throw new Error(OTHER_STORE)
    }
    this.#mayBeOutdated = false
    return this.#outdated
  }

  /** Makes an empty store the store of these records. @param lost whether they have keys @returns the number of keys */
  async #fill(lost: boolean): Promise<number> {
    const id = this.#newId()
    const isEmpty = async (): Promise<boolean> => (await this.meta.get('records'))[0] === null
    return this.#recovery.rebuild(id, isEmpty, async epoch => {
      if (lost) this.#lostAt = this.now()
      await this.meta.set({
        records: this.#records.id,
        store: id,
        shards: String(SHARDS),
        layout: LAYOUT,
        servers: (await serversOf(this.#store.redis)).identities.join(' '),
        lostAt: String(this.#lostAt),
        generation: String(epoch),
        beat: String(this.now()),
      })
      this.#epoch = epoch
      this.#id = id
    })
  }

  /** Fills an empty store for `tollgate rebuild`. @returns the number of keys @throws Error for the operator */
  async rebuildAll(): Promise<number> {
    const [owner, id] = await this.meta.get('records', 'store')
    if (owner === null) return this.#fill(true)
    if (owner !== this.#records.id) throw new Error(otherRecords(this.#records.description))
    throw new Error((id ?? undefined) === (await orUnavailable(this.#records.store())) ? NOT_EMPTY : OTHER_STORE)
  }

  /** Restores what a store lost that was restarted, or whose place another server took. One process does it. */
  async #restoreLost(servers: readonly string[], beatMs: number): Promise<void> {
    this.#open = false
    // Until it is done, the records know of a later epoch.
    this.#outdated = true
    const loss = { beatMs, lostAtMs: this.#lostAt, nowMs: this.now() }
    const accounts = await this.#recovery.restore(loss, async epoch => {
      const lostAt = this.now()
      await this.meta.set({
        servers: serversText(servers),
        lostAt: String(lostAt),
        generation: String(epoch),
      })
      this.#lostAt = lostAt
      this.#epoch = epoch
      this.#mayBeOutdated = false
      this.#outdated = false
    })
    this.#log.info({ accounts }, 'the store runs in a new server process; compared it with the records')
  }
}
