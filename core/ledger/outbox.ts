/**
 * The outbox: settlements on disk that the store could not take yet, and those that the store may lose. They lie in
 * files of a limited size, which are sent one after the other and deleted when all of their settlements are taken. A
 * starting process takes over the files of dead ones. Repeating a settlement has no effect, so a settlement that the
 * store may already have is sent again.
 */
import { mkdirSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Environment } from '../lib/environment.ts'
import { type FileLock, lockFile } from '../lib/file-lock.ts'
import { namesIn, OpenFile, ownerOf, Reserve } from './outbox-file.ts'
import { type Sealed, sendFile, type Sent } from './outbox-sending.ts'
import { RefusedOperation } from './script/scripts.ts'
import { causeOf } from '../records/unavailable.ts'
import type { Settlement } from './settlement.ts'

/** What an outbox needs. */
export interface OutboxOptions extends Pick<Environment, 'log' | 'newId' | 'now'> {
  /** The outbox's folder. It is created when it is first needed. */
  readonly folder: string
  /** Sends a settlement to the store. Rejects if the store did not take it. */
  send(settlement: Settlement): Promise<unknown>
}

/** Milliseconds between two rounds of sending: the first wait and the longest. */
const WAIT_MS = { first: 50, longest: 5000 } as const
/** Settlements of one file. */
const FILE_MAX = 10_000

/** Milliseconds after which a lock file that protects no settlements, and that no process holds, is deleted. */
const ABANDONED_MS = 60_000

/** The outbox of one process. */
export class Outbox {
  readonly #host: OutboxOptions
  readonly #owner: string
  /** Locks on the files of this process, and of dead ones that it took over. */
  readonly #locks = new Map<string, FileLock>()
  /** Files to send, oldest first, and files that are kept in case the store loses something. */
  readonly #sealed: Sealed[] = []
  readonly #kept: Sealed[] = []
  /** Settlements that could not be written. They wait in memory. */
  readonly #unwritten = new Map<string, Settlement>()
  readonly #files: Readonly<Record<'waiting' | 'kept', OpenFile>>
  readonly #reserve: Reserve
  #timer: NodeJS.Timeout | undefined
  #round: Promise<void> = Promise.resolve()
  #wait: number = WAIT_MS.first
  /** Settlements that the store has taken. */
  #taken = 0
  /** When the store took the latest of the kept settlements. */
  #keptAt = 0
  #closed = false

  constructor(host: OutboxOptions) {
    this.#host = host
    this.#owner = host.newId()
    this.#reserve = new Reserve(host.folder)
    const file = (kind: string): OpenFile =>
      new OpenFile(host.folder, `${this.#owner}.${kind}`, cause => this.#makesRoom(cause))
    this.#files = { waiting: file('w'), kept: file('k') }
  }

  /** Number of waiting settlements, as far as they have been counted. */
  get size(): number {
    const sealed = this.#sealed.reduce((sum, { count, taken }) => sum + count - taken.size, 0)
    return sealed + this.#files.waiting.count + this.#unwritten.size
  }

  /** Takes over the files of earlier processes and starts to send them. */
  async adopt(): Promise<void> {
    const { folder, log } = this.#host
    this.#keepReserve()
    for (const owner of new Set(namesIn(folder, '.jsonl').map(ownerOf))) this.#adopt(owner)
    // Before they were locked, another process may have sent and deleted some of them.
    const files = namesIn(folder, '.jsonl').filter(name => this.#locks.has(ownerOf(name)))
    for (const name of files) this.#sealed.push({ path: join(folder, name), taken: new Set(), count: 0, keptUntil: 0 })
    this.#deleteLocks()
    if (files.length === 0) return
    log.warn({ files: files.length }, 'sending settlements of an earlier process again')
    this.#schedule()
  }

  /** Deletes the locks of processes that were killed after their settlements had been sent. */
  #deleteLocks(): void {
    const { folder, now } = this.#host
    for (const name of namesIn(folder, '.lock')) {
      const owner = name.slice(0, -'.lock'.length)
      if (this.#locks.has(owner) || this.#hasFiles(owner)) continue
      // A new process may be about to lock its own.
      const found = statSync(join(folder, name), { throwIfNoEntry: false })
      if (found && now() - found.mtimeMs > ABANDONED_MS && this.#adopt(owner)) this.#unlock(owner)
    }
  }

  /** Stores a settlement until the store takes it. @returns whether it is on disk; otherwise it is only in memory */
  async put(settlement: Settlement): Promise<boolean> {
    const written = await this.#write('waiting', settlement)
    if (!written) this.#unwritten.set(`${settlement.account} ${settlement.id}`, settlement)
    // Only now does a round that ends see that something waits.
    this.#schedule()
    return written
  }

  /**
   * Keeps a settlement that the store has taken but may lose.
   * @param at when the store took it, in milliseconds of its clock
   */
  async keep(settlement: Settlement, at: number): Promise<void> {
    this.#keptAt = Math.max(this.#keptAt, at)
    await this.#write('kept', settlement)
    if (this.#files.kept.count >= FILE_MAX) await this.#seal('kept', this.#keptAt)
  }

  /** Deletes the kept files whose settlements were all taken before a time. */
  dropUntil(ms: number): void {
    while (this.#kept[0] && this.#kept[0].keptUntil < ms) this.#remove((this.#kept.shift() as Sealed).path)
  }

  /** Sends the kept files as well, since the store may have lost them. */
  sendAgain(): void {
    this.#round = this.#round.then(async () => {
      try {
        await this.#seal('kept', Infinity)
      } catch (cause) {
        this.#host.log.error({ err: cause }, 'cannot read the outbox')
      }
      this.#sealed.push(...this.#kept.splice(0))
      if (this.#sealed.length > 0) this.#schedule()
    })
  }

  /** Settlements that are in the memory of this process only. */
  get unwritten(): readonly Settlement[] {
    return [...this.#unwritten.values()]
  }

  /**
   * Stops sending. Waiting settlements stay on disk for the next start. While some could not be written, the disk and the
   * store are tried.
   * @param untilMs by `performance.now()`
   */
  async close(untilMs = 0): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#round
    for (let waitMs: number = WAIT_MS.first; !(await this.#emptyMemory()); waitMs = Math.min(waitMs * 2, 1000)) {
      if (performance.now() + waitMs > untilMs) break
      await sleep(waitMs)
    }
    for (const file of Object.values(this.#files)) await file.close()
    for (const owner of this.#locks.keys()) this.#unlock(owner)
  }

  /** Writes what is only in memory, or sends it. @returns whether nothing is left */
  async #emptyMemory(): Promise<boolean> {
    for (const [name, settlement] of this.#unwritten) {
      const result = (await this.#write('waiting', settlement)) ? 'taken' : await this.#sendOne(settlement)
      if (result === 'away') return false
      if (result === 'taken') this.#unwritten.delete(name)
    }
    return this.#unwritten.size === 0
  }

  #makesRoom(cause: unknown): boolean {
    const hasGiven = this.#reserve.giveUp(cause)
    if (hasGiven) this.#host.log.error('the disk is full; settlements use the reserved room')
    return hasGiven
  }

  #keepReserve(): void {
    try {
      mkdirSync(dirname(this.#host.folder), { recursive: true, mode: 0o700 })
      this.#reserve.make()
    } catch (cause) {
      this.#host.log.warn({ err: cause }, 'cannot reserve room on the disk for settlements')
    }
  }

  /** Releases a lock, and deletes its file if it protects no other one. */
  #unlock(owner: string): void {
    if (!this.#hasFiles(owner)) this.#remove(this.#lockPath(owner))
    this.#locks.get(owner)?.release()
    this.#locks.delete(owner)
  }

  #hasFiles(owner: string): boolean {
    return namesIn(this.#host.folder, '.jsonl').some(name => ownerOf(name) === owner)
  }

  async #write(kind: 'waiting' | 'kept', settlement: Settlement): Promise<boolean> {
    try {
      if (!this.#locks.has(this.#owner)) {
        mkdirSync(this.#host.folder, { recursive: true, mode: 0o700 })
        if (!this.#lock(this.#owner)) throw new Error('another process has locked the file of this one')
      }
      await this.#files[kind].add(JSON.stringify(settlement))
      return true
    } catch (cause) {
      if (this.#makesRoom(cause)) return this.#write(kind, settlement)
      this.#host.log.error({ err: cause }, 'cannot write the outbox; settlements wait in memory only')
      return false
    }
  }

  /** Locks the files of another process. @returns whether that process is dead */
  #adopt(owner: string): boolean {
    try {
      return this.#lock(owner)
    } catch (cause) {
      this.#host.log.error({ err: cause }, 'cannot take over the settlements of an earlier process')
      return false
    }
  }

  #lock(owner: string): boolean {
    const lock = lockFile(this.#lockPath(owner))
    if (lock) this.#locks.set(owner, lock)
    return lock !== undefined
  }

  #lockPath(owner: string): string {
    return join(this.#host.folder, `${owner}.lock`)
  }

  async #seal(kind: 'waiting' | 'kept', keptUntil = 0): Promise<void> {
    const sealed = await this.#files[kind].seal()
    if (!sealed) return
    const { path, count, closed } = sealed
    const file = { path, count, taken: new Set<number>(), keptUntil }
    ;(kind === 'kept' ? this.#kept : this.#sealed).push(file)
    await closed
  }

  #schedule(): void {
    if (this.#closed) return
    this.#timer ??= setTimeout(() => {
      this.#round = this.#round.then(() => this.#sendAll())
    }, this.#wait)
  }

  async #sendAll(): Promise<void> {
    const before = this.#taken
    let result: Sent = 'taken'
    try {
      await this.#seal('waiting')
      result = await this.#sendWaiting()
    } catch (cause) {
      result = 'away'
      this.#host.log.error({ err: cause }, 'cannot read the outbox')
    }
    const sent = this.#taken - before
    this.#timer = undefined
    if (this.#sealed.length === 0 && this.size === 0) {
      this.#wait = WAIT_MS.first
      this.#host.log.info({ settlements: sent }, 'the store has taken all waiting settlements')
      this.#keepReserve()
      return
    }
    if (result !== 'taken')
      this.#host.log.warn({ settlements: this.size }, 'settlements are still waiting for the store')
    this.#wait = result !== 'taken' && sent === 0 ? Math.min(this.#wait * 2, WAIT_MS.longest) : WAIT_MS.first
    this.#schedule()
  }

  /** Sends everything that waits, until the store is away. What is refused for a reason of its own delays no other. */
  async #sendWaiting(): Promise<Sent> {
    let worst: Sent = 'taken'
    for (const [name, settlement] of this.#unwritten) {
      const result = await this.#sendOne(settlement)
      if (result === 'away') return result
      if (result === 'taken') this.#unwritten.delete(name)
      else worst = result
    }
    for (const file of this.#sealed.slice()) {
      if (this.#closed) return worst
      const result = await this.#tryFile(file)
      if (result === 'away') return result
      if (result === 'refused') worst = result
      else {
        this.#sealed.splice(this.#sealed.indexOf(file), 1)
        this.#remove(file.path)
        const owner = ownerOf(basename(file.path))
        if (owner !== this.#owner && !this.#hasFiles(owner)) this.#unlock(owner)
      }
    }
    return worst
  }

  /** Sends a file. One that cannot be read delays no other, and one that is gone was sent by another process. */
  async #tryFile(file: Sealed): Promise<Sent> {
    try {
      return await sendFile(
        file,
        settlement => this.#sendOne(settlement),
        () => this.#closed,
      )
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return 'taken'
      this.#host.log.error({ err: cause }, 'cannot read the outbox')
      return 'refused'
    }
  }

  async #sendOne(settlement: Settlement): Promise<Sent> {
    try {
      await this.#host.send(settlement)
      this.#taken++
      return 'taken'
    } catch (cause) {
      return causeOf(cause) instanceof RefusedOperation ? 'refused' : 'away'
    }
  }

  #remove(path: string): void {
    rmSync(path, { force: true })
  }
}
