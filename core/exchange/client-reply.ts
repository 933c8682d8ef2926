/** One client's response: where the bytes of a reply go out. */
import type { ServerResponse } from 'node:http'
import { SLICE_BYTES, turn } from '../lib/turns.ts'

export type Headers = Readonly<Record<string, string>>

/** Bytes of a body that is sent as one with its head. */
const ONE_WRITE_MAX = 16 * 1024

/** Bytes of a slice for a client that does not take a large one at once. */
const SLOW_SLICE_BYTES = 64 * 1024

/** The exchange whose client a reply is for. */
export interface ReplyRecipient {
  readonly id: string
  /** Whose long work its reply is. */
  readonly owner: string
  /** Milliseconds for which a client may take nothing. */
  readonly limits: { readonly writeIdle: number }
  /** Headers to add when the connection must close behind the reply. */
  closing(): Headers
}

/** One client's response. */
export class ClientReply {
  readonly res: ServerResponse
  /** Called when the client leaves before it has the whole reply. */
  onLeave: ((reply: ClientReply) => void) | undefined
  readonly #asker: ReplyRecipient
  /** The headers, until they go out. */
  #head: Headers | undefined
  #closed: (() => void) | undefined

  constructor(res: ServerResponse, asker: ReplyRecipient) {
    this.res = res
    this.#asker = asker
    res.on('close', () => {
      this.#closed?.()
      if (!res.writableFinished) this.onLeave?.(this)
    })
  }

  /** The client has left before it had the whole reply. */
  get gone(): boolean {
    return this.res.closed && !this.res.writableFinished
  }

  /** It has been given more than it takes at once. */
  get full(): boolean {
    return this.res.writableNeedDrain && !this.res.destroyed
  }

  /** Begins the reply. Its head goes out with the first of its bytes; where these are all there are, with their length. */
  begin(status: number, headers: Headers): void {
    this.res.statusCode = status
    this.#head = headers
  }

  /** @param length of all that follows, in bytes, where it is known */
  sendHead(length?: number): void {
    if (!this.#head) return
    const { id } = this.#asker
    const known = length !== undefined && { 'content-length': length }
    this.res.writeHead(this.res.statusCode, {
      'x-request-id': id,
      'request-id': id,
      ...this.#head,
      ...known,
      ...this.#asker.closing(),
    })
    this.#head = undefined
  }

  /** @returns false where the client has enough for now */
  write(bytes: Buffer): boolean {
    this.sendHead()
    return this.res.destroyed || this.res.write(bytes)
  }

  /**
   * Ends the reply; resolves when its last byte has been handed to the system, or the client has gone. A client that takes
   * none of it for the limit is cut.
   */
  async end(bytes: Buffer): Promise<void> {
    const { res } = this
    const inOneWrite = this.#head !== undefined && bytes.length <= ONE_WRITE_MAX
    this.sendHead(bytes.length)
    const last = bytes.length > SLICE_BYTES ? await this.#writeSlices(bytes) : bytes
    const closed = new Promise<void>(resolve => {
      if (res.destroyed) resolve()
      // It closes right after its last byte has gone, also where its connection stays.
      else this.#closed = resolve
    })
    if (last.length === 0) res.end()
    // Node sends a text as one with the head, and bytes beside it, which costs more than to copy a few.
    else if (inOneWrite) res.end(last.toString('latin1'), 'latin1')
    else res.end(last)
    const stop = this.#watch()
    await closed
    stop()
  }

  /** Writes large bytes slice by slice, between which others have their turn. @returns the last slice, which is not written */
  async #writeSlices(bytes: Buffer): Promise<Buffer> {
    let left = bytes
    let length = SLICE_BYTES
    while (left.length > length && !this.res.destroyed) {
      const taken = this.res.write(left.subarray(0, length))
      left = left.subarray(length)
      // A slow client is seen to take something by small slices.
      length = taken ? SLICE_BYTES : SLOW_SLICE_BYTES
      if (!taken) await new Promise<void>(resolve => this.whenReady(resolve))
      await turn(this.#asker.owner)
    }
    return left
  }

  /** Calls back when the client takes more, or has gone; one that takes nothing for the limit is cut. @returns what takes the wish back */
  whenReady(callback: () => void): () => void {
    const { res } = this
    const unwatch = this.#watch()
    const stop = (): void => {
      unwatch()
      res.off('drain', ready).off('close', ready)
    }
    const ready = (): void => {
      stop()
      callback()
    }
    res.on('drain', ready).on('close', ready)
    return stop
  }

  /** Cuts a client that takes nothing of what waits for it. @returns what ends the watch */
  #watch(): () => void {
    const { socket } = this.res
    if (!socket || socket.writableLength === 0) return () => {}
    let taken = socket.bytesWritten - socket.writableLength
    const watch = setInterval(() => {
      const now = socket.bytesWritten - socket.writableLength
      if (now === taken) this.res.destroy()
      taken = now
    }, this.#asker.limits.writeIdle)
    return () => clearInterval(watch)
  }
}
