/** The response to one client: where the bytes of a reply go out. */
import type { ServerResponse } from 'node:http'
import { SLICE_BYTES, turn } from '../lib/turns.ts'

/** Headers of a reply, by lower-case name. */
export type Headers = Readonly<Record<string, string>>

/** Most bytes of a body that is sent in one piece with its head. */
const ONE_WRITE_MAX = 16 * 1024

/** Bytes of a slice for a client that does not take a large one at once. */
const SLOW_SLICE_BYTES = 64 * 1024

/** The exchange that the response belongs to. */
export interface ReplyExchange {
  readonly id: string
  /** Whose long work it is to send the reply. */
  readonly owner: string
  /** `writeIdleMs`: milliseconds for which a client may take nothing. */
  readonly limits: { readonly writeIdleMs: number }
  /** Headers to add if the connection must close after the reply. */
  closing(): Headers
}

/** The response to one client. */
export class ClientReply {
  readonly res: ServerResponse
  /** Called when the client leaves before it has the whole reply. */
  onLeave: ((reply: ClientReply) => void) | undefined
  readonly #exchange: ReplyExchange
  /** The headers, until they are sent. */
  #head: Headers | undefined
  #closed: (() => void) | undefined

  constructor(res: ServerResponse, exchange: ReplyExchange) {
    this.res = res
    this.#exchange = exchange
    res.on('close', () => {
      this.#closed?.()
      if (!res.writableFinished) this.onLeave?.(this)
    })
  }

  /** The client has left before it had the whole reply. */
  get gone(): boolean {
    return this.res.closed && !this.res.writableFinished
  }

  /** The client has closed its side of the connection, or reset it. The response closes some turns later. */
  get isLeaving(): boolean {
    const { socket } = this.res
    return socket === null || socket.destroyed || socket.readableEnded
  }

  /** The client has not taken what it was sent. */
  get full(): boolean {
    return this.res.writableNeedDrain && !this.res.destroyed
  }

  /** Begins the reply. The head is sent with the first bytes of the body; with its length, if these are all of it. */
  begin(status: number, headers: Headers): void {
    this.res.statusCode = status
    // A reply that could not be sent may have left its own reason phrase.
    this.res.statusMessage = ''
    this.#head = headers
  }

  /** Sends the head. @param length bytes of the whole body, if known */
  sendHead(length?: number): void {
    if (!this.#head) return
    const { id } = this.#exchange
    const known = length !== undefined && { 'content-length': length }
    this.res.writeHead(this.res.statusCode, {
      'x-request-id': id,
      'request-id': id,
      ...this.#head,
      ...known,
      ...this.#exchange.closing(),
    })
    this.#head = undefined
  }

  /** Sends bytes. @returns false if the client should be sent no more for now */
  write(bytes: Buffer): boolean {
    this.sendHead()
    return this.res.destroyed || this.res.write(bytes)
  }

  /**
   * Ends the reply. Resolves when the operating system has its last byte, or the client has left. A client that takes
   * nothing for `writeIdleMs` is disconnected.
   * @param decided called before the last bytes go out, which wait for it
   */
  async end(bytes: Buffer, decided?: () => Promise<void>): Promise<void> {
    const { res } = this
    const inOneWrite = this.#head !== undefined && bytes.length <= ONE_WRITE_MAX
    this.sendHead(bytes.length)
    const last = bytes.length > SLICE_BYTES ? await this.#writeSlices(bytes) : bytes
    if (decided) await decided()
    const closed = new Promise<void>(resolve => {
      if (res.destroyed) resolve()
      // The response closes when its last byte was written, even if the connection stays open.
      else this.#closed = resolve
    })
    if (last.length === 0) res.end()
    // Node writes text in one piece with the head, and a buffer separately. For few bytes, copying is cheaper than a
    // second write.
    else if (inOneWrite) res.end(last.toString('latin1'), 'latin1')
    else res.end(last)
    const stop = this.#watch()
    await closed
    stop()
  }

  /** Writes all but the last slice of a large body. Other work gets its turn between slices. @returns the last slice */
  async #writeSlices(bytes: Buffer): Promise<Buffer> {
    let left = bytes
    let length = SLICE_BYTES
    while (left.length > length && !this.res.destroyed) {
      const taken = this.res.write(left.subarray(0, length))
      left = left.subarray(length)
      // Small slices show that a slow client takes something.
      length = taken ? SLICE_BYTES : SLOW_SLICE_BYTES
      if (!taken) await new Promise<void>(resolve => this.whenReady(resolve))
      await turn(this.#exchange.owner)
    }
    return left
  }

  /**
   * Calls back when the client takes more, or has left. A client that takes nothing for `writeIdleMs` is disconnected.
   * @returns a function that cancels the call
   */
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

  /** Disconnects a client that takes nothing of what it was sent. @returns a function that stops the watch */
  #watch(): () => void {
    const { socket } = this.res
    if (!socket || socket.writableLength === 0) return () => {}
    let taken = socket.bytesWritten - socket.writableLength
    const watch = setInterval(() => {
      const now = socket.bytesWritten - socket.writableLength
      if (now === taken) this.res.destroy()
      taken = now
    }, this.#exchange.limits.writeIdleMs)
    return () => clearInterval(watch)
  }
}

/** Headers of a reply besides those that were added to it. Both may vary by something. */
export function merged(
  added: Readonly<Record<string, string>>,
  own: Readonly<Record<string, string>>,
): Record<string, string> {
  const vary = [added['vary'], own['vary']].filter(each => each !== undefined).join(', ')
  return { ...added, ...own, ...(vary !== '' && { vary }) }
}
