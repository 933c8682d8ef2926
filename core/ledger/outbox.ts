/**
 * The outbox: settlements on disk that the store could not take yet. Each process has its own file, and a starting
 * process takes over the files of dead ones. Repeating a settlement has no effect, so a doubtful one is sent again.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import type { Environment } from '../lib/environment.ts'

/** A settlement as it is sent to the store. */
export interface Settlement {
  readonly account: string
  readonly id: string
  readonly args: readonly string[]
  /** Identifies the request among its retries, if that matters. */
  readonly request?: string | undefined
  /** When it was first sent, in milliseconds since the epoch. */
  readonly at: number
}

/** What an outbox needs. */
export interface OutboxOptions extends Pick<Environment, 'isAlive' | 'log' | 'now' | 'pid'> {
  /** The outbox's folder. It is created when it is first needed. */
  readonly folder: string
  /** How long the store recognises a repeated settlement, in milliseconds. */
  readonly rememberMs: number
  /** Sends a settlement to the store. Rejects if the store did not take it. */
  send(settlement: Settlement): Promise<unknown>
}

/** Milliseconds between two rounds of sending: the first wait and the longest. */
const WAIT_MS = { first: 50, longest: 5000 } as const

/** The outbox of one process. */
export class Outbox {
  readonly #host: OutboxOptions
  readonly #file: string
  readonly #waiting = new Map<string, Settlement>()
  #handle: FileHandle | undefined
  /** The last write to the file. The next write follows it. */
  #writing: Promise<void> = Promise.resolve()
  #lines = ''
  #timer: NodeJS.Timeout | undefined
  #wait: number = WAIT_MS.first
  #closed = false

  constructor(host: OutboxOptions) {
    this.#host = host
    this.#file = join(host.folder, `${host.pid}-${host.now()}.jsonl`)
  }

  /** Number of waiting settlements. */
  get size(): number {
    return this.#waiting.size
  }

  /** Takes over the settlements of earlier processes and starts to send them. */
  async adopt(): Promise<void> {
    const { folder, isAlive, log, now, pid, rememberMs } = this.#host
    const emptied: string[] = []
    const found: Settlement[] = []
    for (const name of filesOf(folder)) {
      const owner = Number.parseInt(name, 10)
      // A living process sends its own settlements, and sending them twice does no harm, but only a dead process's file
      // may be removed. A file with this process's own number is from an earlier process: in a container every process
      // has the same number.
      if (owner === pid || !isAlive(owner)) emptied.push(join(folder, name))
      found.push(...read(join(folder, name)))
    }
    const oldest = now() - rememberMs
    const fresh = found.filter(({ at }) => at > oldest)
    for (const stale of found.filter(({ at }) => at <= oldest)) {
      log.error(
        { exchange: stale.id, account: stale.account, charge: stale.args[1] },
        'a settlement waited longer than ledger.remember and is dropped',
      )
    }
    if (fresh.length > 0) {
      log.warn({ settlements: fresh.length }, 'sending settlements of an earlier process again')
      const kept = await Promise.all(fresh.map(settlement => this.put(settlement)))
      // A settlement that is not yet in this process's file must stay in the old file.
      if (kept.includes(false)) return
    }
    for (const file of emptied) rmSync(file, { force: true })
  }

  /** Stores a settlement until the store takes it. @returns whether it is on disk; otherwise it is only in memory */
  async put(settlement: Settlement): Promise<boolean> {
    const name = nameOf(settlement)
    if (this.#waiting.has(name)) return true
    this.#waiting.set(name, settlement)
    this.#lines += `${JSON.stringify(settlement)}\n`
    this.#schedule()
    // One write and one sync cover everything that arrived during the last write.
    this.#writing = this.#writing.then(() => this.#write())
    await this.#writing
    return this.#lines === ''
  }

  /** Stops sending. Waiting settlements stay on disk for the next start. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#writing
    await this.#handle?.close()
    if (this.#handle && this.#waiting.size === 0) rmSync(this.#file, { force: true })
  }

  async #write(): Promise<void> {
    const lines = this.#lines
    if (lines === '') return
    this.#lines = ''
    try {
      this.#handle ??= await this.#open()
      await this.#handle.appendFile(lines)
      await this.#handle.datasync()
    } catch (cause) {
      // A part may have been written. The next attempt starts a new line with all of it.
      this.#lines = `\n${lines}${this.#lines}`
      this.#host.log.error({ err: cause }, 'cannot write the outbox; settlements wait in memory only')
    }
  }

  #open(): Promise<FileHandle> {
    mkdirSync(this.#host.folder, { recursive: true, mode: 0o700 })
    return open(this.#file, 'a', 0o600)
  }

  #schedule(): void {
    if (!this.#closed) this.#timer ??= setTimeout(() => void this.#round(), this.#wait)
  }

  async #round(): Promise<void> {
    const sent = [...this.#waiting.values()]
    const results = await Promise.allSettled(sent.map(settlement => this.#host.send(settlement)))
    this.#timer = undefined
    const taken = sent.filter((_settlement, index) => results[index]?.status === 'fulfilled')
    for (const settlement of taken) this.#waiting.delete(nameOf(settlement))
    if (this.#waiting.size > 0) {
      this.#host.log.warn({ settlements: this.#waiting.size }, 'settlements are still waiting for the store')
      this.#wait = taken.length === 0 ? Math.min(this.#wait * 2, WAIT_MS.longest) : WAIT_MS.first
      this.#schedule()
      return
    }
    this.#wait = WAIT_MS.first
    this.#host.log.info({ settlements: sent.length }, 'the store has taken all waiting settlements')
    this.#writing = this.#writing.then(() => this.#empty())
    await this.#writing
  }

  /**
   * Empties the file if nothing waits. A settlement that just arrived keeps its line, and repeating the lines before it
   * is harmless.
   */
  async #empty(): Promise<void> {
    if (this.#waiting.size > 0 || this.#closed) return
    await this.#handle
      ?.truncate(0)
      .catch((cause: unknown) => this.#host.log.warn({ err: cause }, 'cannot empty the outbox'))
  }
}

function nameOf({ account, id }: Settlement): string {
  return `${account} ${id}`
}

function filesOf(folder: string): string[] {
  try {
    return readdirSync(folder).filter(name => /^\d+-\d+\.jsonl$/.test(name))
  } catch {
    return []
  }
}

/** Reads the complete lines of a file. A process that died while writing the last line had not acknowledged it. */
function read(file: string): Settlement[] {
  const lines = text(file).split('\n').slice(0, -1)
  return lines.flatMap(line => {
    try {
      return [JSON.parse(line) as Settlement]
    } catch {
      return []
    }
  })
}

/** A missing file was taken over by another process that started at the same time. */
function text(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
