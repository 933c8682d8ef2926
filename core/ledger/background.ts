/**
 * The work in the background that one process does for all that use a store: it records what ended, ends expired holds,
 * writes to the store what is pending, and deletes old exchanges. When the process dies, another one takes the duty.
 * Two processes may do any of this work at the same time without harm.
 */
import { forgetAhead, knownFirst } from './known-first.ts'
import { sideBySide } from '../lib/side-by-side.ts'
import type { LedgerConfig } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import type { Log } from '../lib/log.ts'
import { reasonOf } from '../lib/reason.ts'
import { OnceInAWhile } from '../lib/once-in-a-while.ts'
import { Archiver } from './archiver.ts'
import type { Continuity } from './recovery/continuity.ts'
import type { SharedState } from './recovery/store-meta.ts'
import { Duty } from './recovery/duty.ts'
import { reapOperation } from './operations.ts'
import { recount } from './recovery/recount.ts'
import type { Restorer } from './recovery/restore.ts'
import type { Scripts } from './script/scripts.ts'
import { causeOf, orUnavailable } from '../records/unavailable.ts'
import { rewriteFiles } from './recovery/servers.ts'
import type { RecordedKey } from '../records/key-records.ts'
import type { Records } from '../records/records.ts'

/** How long a process has the duty without a renewal, in milliseconds. */
const DUTY_MS = 3000
/** Interval of the renewal of the duty and of reading the shared state. */
const BEAT_MS = 1000
/** Interval of the look whether something is pending that could not be done at once. */
const PENDING_MS = 5000
/** Heartbeats after which a process that may not record looks up what waits. */
const LOOK_EVERY = 3
/** How long a process waits for the one that has the duty to record what ended, in milliseconds. */
const LEFT_MS = 5000
const RETENTION_EVERY_MS = 3_600_000
/** Pending keys, and balances, that are read at once, and keys that are written to the store at the same time. */
const PENDING_AT_ONCE = 200
const SIDE_BY_SIDE = 16
/** Expired holds of a shard that are read at once. */
const EXPIRED_AT_ONCE = 1000
/** Holds that are ended at once. Requests need not wait for more. */
const REAPED_AT_ONCE = 32

/** What the background work needs. */
export interface BackgroundNeeds {
  readonly scripts: Scripts
  readonly records: Records
  readonly restorer: Restorer
  readonly continuity: Continuity
  readonly config: LedgerConfig
  readonly environment: Pick<Environment, 'log' | 'newId'>
}

/** The background work of one process. */
export class Background {
  readonly archiver: Archiver
  /** What the processes share. */
  state: SharedState = { recordedUntil: 0, backlogBytes: 0, oldestMs: 0 }
  readonly #scripts: Scripts
  readonly #records: Records
  readonly #continuity: Continuity
  readonly #restorer: Restorer
  readonly #config: LedgerConfig
  readonly #log: Log
  readonly #duty: Duty
  /** The shards that this process has put on the list of those with holds. */
  readonly #open = new Set<number>()
  readonly #running = new Set<string>()
  readonly #reports = new OnceInAWhile()
  readonly #work = new Set<Promise<unknown>>()
  #leading = false
  #beats = 0
  /** The epoch of the store in which what is held was compared with the holds. */
  #recounted: number | undefined
  /** The epoch in which the files of the store were written anew. */
  #rewritten: number | undefined
  #isStopping = false
  /** Set while something waits to be recorded. */
  #archiving: NodeJS.Timeout | undefined
  #timers: readonly NodeJS.Timeout[] = []

  constructor({ scripts, records, restorer, continuity, config, environment }: BackgroundNeeds) {
    const { log, newId } = environment
    this.#scripts = scripts
    this.#records = records
    this.#continuity = continuity
    this.#restorer = restorer
    this.#config = config
    this.#log = log
    this.#duty = new Duty(scripts, scripts.keys.shared('lease'), newId(), DUTY_MS)
    this.archiver = new Archiver(scripts, records, continuity, log)
    this.archiver.onAnnounced = () => this.#archiveSoon()
  }

  /** Milliseconds since the oldest exchange ended that waits to be recorded, to about a second; 0 if none waits. */
  get unrecordedMs(): number {
    const { oldestMs } = this.state
    return oldestMs === 0 ? 0 : Math.max(0, this.#continuity.now() - oldestMs)
  }

  /** Why no new request can be served, in words for operators: more waits to be recorded than the file allows. */
  get behind(): string | undefined {
    const { backlogBytes } = this.state
    if (backlogBytes > this.#config.backlogBytes) return `${backlogBytes} bytes wait to be recorded; see ledger.backlog`
    const seconds = Math.floor(this.unrecordedMs / 1000)
    if (this.unrecordedMs > this.#config.unrecordedMs)
      return `what ended ${seconds} seconds ago is not recorded yet; see ledger.unrecorded`
    return undefined
  }

  /** Whether this process does the work. */
  get leading(): boolean {
    return this.#leading
  }

  /**
   * Starts to work, or to wait until the process that works ends.
   * @param alone whether the duty can only belong to a process that has died
   */
  async start(alone: boolean): Promise<void> {
    if (alone) await this.#duty.revoke()
    await this.#beat()
    const { reapEveryMs } = this.#config
    this.#timers = [
      this.#every(BEAT_MS, 'the heartbeat', () => this.#beat()),
      this.#every(reapEveryMs, 'ending expired holds', () => this.#whenLeading(() => this.reap())),
      this.#every(PENDING_MS, 'writing to the store what is pending', () =>
        this.#whenLeading(() => this.applyPending()),
      ),
      this.#every(BEAT_MS, 'comparing what is held', () => this.#whenLeading(() => this.#recount())),
      this.#every(BEAT_MS, 'recording how requests ended', () => this.#recordRequests()),
      this.#every(RETENTION_EVERY_MS, 'deleting old exchanges', () => this.#whenLeading(() => this.deleteOld())),
    ]
  }

  /** Ends the work. What ended meanwhile is recorded if the database answers. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer)
    this.#isStopping = true
    clearTimeout(this.#archiving)
    await Promise.all(this.#work)
    const wasLeading = this.#leading
    this.#leading = false
    await (wasLeading ? this.#collected() : this.archiver.pass()).catch(() => {})
    await this.#recordRequests().catch(() => {})
    if (wasLeading) await this.#duty.release().catch(() => {})
  }

  /** Puts an account's shard on the list of those with holds. */
  noteHold(account: string): void {
    const { shard } = this.#scripts.keys.of(account)
    if (this.#open.has(shard)) return
    this.#open.add(shard)
    this.#scripts.write('SADD', this.#scripts.keys.shared('holding'), shard).catch(() => this.#open.delete(shard))
  }

  /** Forgets which shards the store knows to have holds, since it may have lost that. */
  forgetHolds(): void {
    this.#open.clear()
  }

  async #whenLeading(work: () => Promise<unknown>): Promise<void> {
    if (this.#leading && this.#continuity.open) await work()
  }

  /** Records what ended, or tells the process that does where to look. */
  async archive(): Promise<void> {
    if (!this.#continuity.open) return
    await (this.#leading ? this.archiver.run() : this.archiver.pass())
  }

  /** Records what all processes have announced. */
  async #collected(): Promise<void> {
    await this.archiver.collect()
    await this.archiver.run()
  }

  /** Records what has ended after `ledger.archiveEvery`. Nothing runs while nothing ends. */
  #archiveSoon(): void {
    if (this.#isStopping) return
    this.#archiving ??= setTimeout(() => {
      this.#run('recording what ended', () =>
        this.archive().finally(() => {
          this.#archiving = undefined
          if (this.archiver.hasAnnounced) this.#archiveSoon()
        }),
      )
    }, this.#config.archiveEveryMs).unref()
  }

  /** Records the requests of this process that have ended and were not recorded with entries. */
  async #recordRequests(): Promise<void> {
    // In a rolling upgrade, only processes of the new version record.
    if (!this.archiver.outdated) await orUnavailable(this.#records.recorder.recordRequests())
  }

  /** Ends the holds whose leases are over. @returns the number of holds */
  async reap(): Promise<number> {
    const { redis, keys } = this.#scripts
    let ended = 0
    for (const shard of await orUnavailable(redis.smembers(keys.shared('holding'))))
      ended += await this.#reapShard(Number(shard))
    if (ended > 0) this.#log.warn({ holds: ended }, 'ended expired holds and charged what was delivered')
    return ended
  }

  async #reapShard(shard: number): Promise<number> {
    const { redis, keys } = this.#scripts
    let ended = 0
    for (;;) {
      const now = String(this.#continuity.now())
      const leases = await orUnavailable(
        redis.zrangebyscore(keys.leases(shard), '-inf', now, 'LIMIT', 0, EXPIRED_AT_ONCE),
      )
      const answers: string[] = []
      for (let at = 0; at < leases.length; at += REAPED_AT_ONCE)
        answers.push(...(await Promise.all(leases.slice(at, at + REAPED_AT_ONCE).map(lease => this.#reapHold(lease)))))
      const over = answers.filter(answer => answer !== 'live').length
      ended += answers.filter(answer => answer === 'reaped').length
      if (over > 0) this.archiver.announce(shard)
      if (leases.length < EXPIRED_AT_ONCE || over === 0) return ended
    }
  }

  async #reapHold(lease: string): Promise<string> {
    const [answer = ''] = await this.#scripts.run(reapOperation(lease, this.#scripts.keys))
    return answer
  }

  /** Writes pending records and grants to the store, and records the keys that were disabled without the records. */
  async applyPending(): Promise<void> {
    const { redis, keys } = this.#scripts
    // One that cannot be written must not keep others from it.
    const apply = async (facts: object, failed: string, work: () => Promise<void>): Promise<void> =>
      work().catch((cause: unknown) => this.#log.warn({ err: cause, ...facts }, failed))
    const applyKey = (key: RecordedKey): Promise<void> =>
      apply({ key: key.id }, 'the record of a key cannot be written to the store', async () => {
        if ((await this.#restorer.restore(key)) === 'running') return
        await orUnavailable(this.#records.keys.applied([key], this.#continuity.now()))
      })
    for await (const page of this.#records.keys.pending(PENDING_AT_ONCE)) await sideBySide(page, SIDE_BY_SIDE, applyKey)
    for (const account of await orUnavailable(this.#records.accounts.pending(PENDING_AT_ONCE)))
      await apply({ balance: account.id }, 'the grants of a balance cannot be written to the store', async () => {
        await this.#restorer.restoreAccount(account)
        await orUnavailable(this.#records.accounts.applied([account], this.#continuity.now()))
      })
    const ahead = await orUnavailable(redis.smembers(keys.shared('disabled')))
    for (const id of ahead) await this.recordChanged(id)
  }

  /** Notes that a key was used for the first time, and has an expiry since then. */
  async noteFirstUse(id: string): Promise<void> {
    await this.#scripts.write('SADD', this.#scripts.keys.shared('disabled'), id).catch(() => {})
  }

  /**
   * Records what the store knows first of a key: that it is disabled, and its expiry since its first use.
   * @returns its record before that, if there is one
   */
  async recordChanged(id: string): Promise<RecordedKey | undefined> {
    const { redis, keys } = this.#scripts
    for (;;) {
      const key = await orUnavailable(this.#records.keys.get(id))
      const known = key && (await knownFirst(this.#scripts, key))
      if (key && known && (known.isDisabled || known.expiresAt !== undefined)) {
        const changedKey = {
          ...key,
          ...(known.isDisabled && { status: 'disabled' as const }),
          ...(known.expiresAt !== undefined && { expiresAt: known.expiresAt }),
          version: Math.max(key.version, known.version) + 1,
        }
        const how = { from: key.version, at: this.#continuity.now(), pending: true }
        // Somebody else may have changed it meanwhile.
        if (!(await orUnavailable(this.#records.keys.change(id, changedKey, how)))) continue
        // The store gets this record, which takes the place of what it knew first.
        await this.#restorer.restoreKey({ ...key, ...changedKey })
      } else if (key && key.status !== 'active') await forgetAhead(this.#scripts, key)
      await orUnavailable(redis.srem(keys.shared('disabled'), id))
      return key
    }
  }

  /** Compares what accounts have held with their holds, once in each epoch of the store. */
  async #recount(): Promise<void> {
    const { epoch, meta } = this.#continuity
    if (this.#recounted === epoch) return
    const [done] = await meta.get('recounted')
    if (done === String(epoch)) {
      this.#recounted = epoch
      return
    }
    if (this.#rewritten !== epoch) {
      this.#rewritten = epoch
      await rewriteFiles(this.#scripts.redis).catch((cause: unknown) =>
        this.#log.warn(
          { err: cause },
          'the store does not rewrite its append-only file (BGREWRITEAOF); if the file is torn, the next restart may bring back a hold that is over, which is corrected then',
        ),
      )
    }
    const goesOn = (): boolean => this.#leading && !this.#isStopping && this.#continuity.epoch === epoch
    await recount(this.#scripts, this.#config.leaseMs, {
      goesOn,
      corrected: correction =>
        this.#log.warn(correction, 'the held sum of an account did not agree with its holds; it is corrected'),
      failed: (account, cause) =>
        this.#log.warn({ account, err: cause }, 'the held sum of an account cannot be compared with its holds'),
    })
    if (!goesOn()) return
    await meta.set({ recounted: String(epoch) })
    this.#recounted = epoch
  }

  /** Deletes exchanges, failures and sums of days that are older than their histories. @returns the number of exchanges */
  async deleteOld(): Promise<number> {
    await orUnavailable(this.#records.deleteFailuresBefore(this.#continuity.now() - this.#config.failureHistoryMs))
    await orUnavailable(this.#records.deleteDaysBefore(this.#continuity.now() - this.#config.dayHistoryMs))
    return orUnavailable(this.#records.deleteBefore(this.#continuity.now() - this.#config.historyMs))
  }

  /** Whether a gateway has the duty. @throws GatewayError unavailable */
  isTaken(): Promise<boolean> {
    return this.#duty.isTaken()
  }

  /** Records everything that is in the store now, or waits until the process that has the duty has done so. */
  async archiveAll(): Promise<void> {
    await this.#scripts.answered()
    // Only that process has the stages that watch what is recorded.
    const left = !this.#leading && (await this.#duty.isTaken()) && (await this.archiver.leave(LEFT_MS))
    if (!left) await orUnavailable(this.archiver.runAll())
    await this.#recordRequests()
  }

  #every(ms: number, name: string, work: () => Promise<unknown>): NodeJS.Timeout {
    return setInterval(() => this.#run(name, work), ms).unref()
  }

  /** Begins work, unless the run before has not ended. */
  #run(name: string, work: () => Promise<unknown>): void {
    if (this.#running.has(name)) return
    this.#running.add(name)
    const run = work()
      .catch((cause: unknown) => {
        if (this.#reports.due(name, reasonOf(causeOf(cause)), this.#continuity.now()))
          this.#log.warn({ err: cause }, `${name} failed`)
      })
      .finally(() => {
        this.#running.delete(name)
        this.#work.delete(run)
      })
    this.#work.add(run)
  }

  async #beat(): Promise<void> {
    const { failure } = this.#records.database
    if (failure !== undefined && this.#reports.due('records', failure, this.#continuity.now()))
      this.#log.error({ reason: failure }, 'the records cannot be used')
    // In a rolling upgrade, a process of the new version does the work.
    if (this.archiver.outdated && this.#leading) await this.#duty.release()
    const [leads] = await Promise.all([
      !this.archiver.outdated && this.#duty.take(),
      this.#leading && this.archiver.collect(),
    ])
    // Somebody has to look what waits, also while no process of the new version runs.
    const isAlone = this.archiver.outdated && ++this.#beats % LOOK_EVERY === 0 && !(await this.#duty.isTaken())
    if (isAlone) this.archiver.outdated = await orUnavailable(this.#records.isNewer())
    if ((leads && !this.#leading) || isAlone) await this.archiver.look()
    if (leads || isAlone) await this.archiver.share()
    // Nothing is recorded before it is known what the records must have.
    this.state = await this.#continuity.state()
    this.#leading = leads
    if (leads && this.archiver.isSweepDue) this.#archiveSoon()
  }
}
