/** The files of the outbox: their names, one while lines are added to it, and the reserve for a full disk. */
import { closeSync, fsyncSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'

/** A file that is being written. Lines that arrive together share a write and a sync. */
export class OpenFile {
  count = 0
  readonly #folder: string
  readonly #name: string
  #number = 0
  #handle: FileHandle | undefined
  #lines: { readonly text: string; readonly written: PromiseWithResolvers<void> }[] = []
  #writing: Promise<void> | undefined
  readonly #makesRoom: (cause: unknown) => boolean

  /** @param makesRoom tells whether a write that failed may succeed now */
  constructor(folder: string, name: string, makesRoom: (cause: unknown) => boolean) {
    this.#folder = folder
    this.#name = name
    this.#makesRoom = makesRoom
  }

  get #path(): string {
    return join(this.#folder, `${this.#name}.${this.#number}.jsonl`)
  }

  add(text: string): Promise<void> {
    const written = Promise.withResolvers<void>()
    this.#lines.push({ text, written })
    this.#writing ??= this.#write()
    return written.promise
  }

  async #write(): Promise<void> {
    while (this.#lines.length > 0) {
      const lines = this.#lines
      this.#lines = []
      try {
        if (!this.#handle) {
          this.#handle = await open(this.#path, 'a', 0o600)
          // A file that is not in its synced folder is lost with the machine.
          syncFolder(this.#folder)
        }
        // A line break comes first, since an earlier write may have been cut off.
        await this.#handle.appendFile(`\n${lines.map(({ text }) => text).join('\n')}\n`)
        await this.#handle.datasync()
        this.count += lines.length
        for (const { written } of lines) written.resolve()
      } catch (cause) {
        if (this.#makesRoom(cause)) this.#lines.unshift(...lines)
        else for (const { written } of lines) written.reject(cause)
      }
    }
    this.#writing = undefined
  }

  /** Ends the file, so that the next line begins another one. @returns undefined if it is empty */
  async seal(): Promise<{ path: string; count: number; closed: Promise<void> } | undefined> {
    while (this.#writing) await this.#writing
    const handle = this.#handle
    if (!handle) return undefined
    // From here on, a line that is added begins the next file.
    const sealed = { path: this.#path, count: this.count, closed: handle.close() }
    this.#handle = undefined
    this.#number++
    this.count = 0
    return sealed
  }

  async close(): Promise<void> {
    await (
      await this.seal()
    )?.closed
  }
}

/** Bytes of the reserve: some thousands of settlements. */
const RESERVE_BYTES = 4 * 1024 * 1024
/** What SQLite, which locks the files, says of a full disk. */
const SQLITE_FULL = 13
/** What a system and SQLite say when there is no room for more bytes. */
const FULL: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', SQLITE_FULL])

function isFull(thrown: unknown): boolean {
  const { code, errcode, cause } = thrown as { code?: string; errcode?: number; cause?: unknown }
  return FULL.has(code) || FULL.has(errcode) || (cause instanceof Error && isFull(cause))
}

/** A file of zeros beside the outbox, which is deleted when the disk is full. All processes share it. */
export class Reserve {
  readonly #path: string

  constructor(folder: string) {
    this.#path = `${folder}.reserve`
  }

  /** Makes the file if it is missing. @throws Error if there is no room for it */
  make(): void {
    try {
      writeFileSync(this.#path, Buffer.alloc(RESERVE_BYTES), { flag: 'wx', mode: 0o600, flush: true })
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'EEXIST') return
      rmSync(this.#path, { force: true })
      throw cause
    }
  }

  /** Gives the file up if a write failed because the disk is full. @returns whether the write may succeed now */
  giveUp(cause: unknown): boolean {
    if (!isFull(cause)) return false
    try {
      rmSync(this.#path)
      return true
    } catch {
      return false
    }
  }
}

function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Returns the names of a folder's files with an ending, in their order. */
export function namesIn(folder: string, ending: string): string[] {
  try {
    return readdirSync(folder)
      .filter(name => name.endsWith(ending))
      .sort()
  } catch {
    return []
  }
}

/** Returns who has written a file: the first part of its name. */
export function ownerOf(name: string): string {
  return name.slice(0, name.indexOf('.'))
}
