/**
 * The body of an upstream's reply as it arrives: chunks, then an end or an abort. It has less overhead than a Node
 * stream.
 */
import { EventEmitter } from 'node:events'
import type { Dispatcher } from 'undici'
import { NOTHING } from '../../lib/byte-buffer.ts'
import { inTurn, LONG_BYTES } from '../../lib/turns.ts'

/** What the relay needs of a body. A decompressed body is an ordinary stream. */
export interface ReplyBody {
  /** Whether the current chunk is the entire body and its end follows in the same turn, unless the body is paused. */
  readonly whole?: boolean
  readonly readableEnded: boolean
  readonly destroyed: boolean
  /** Discards the rest of the body. */
  destroy(): unknown
  pause(): unknown
  resume(): unknown
  on(event: 'data', listener: (chunk: Buffer) => void): this
  on(event: 'end' | 'close', listener: () => void): this
  off(event: 'data', listener: (chunk: Buffer) => void): this
  off(event: 'end' | 'close', listener: () => void): this
  removeAllListeners(event: 'data'): unknown
}

/**
 * Maximum bytes of one chunk that is emitted. A stream is compared with its hold after the events of each chunk, so what it
 * delivers beyond its hold is less than one, or one longer event.
 */
export const CHUNK_BYTES = 16 * 1024

/** Emits what arrives in one turn of the event loop in as few chunks as possible. */
export class UpstreamBody extends EventEmitter {
  readableEnded = false
  destroyed = false
  readonly #controller: Dispatcher.DispatchController
  /** Chunks that have not been emitted. */
  #waiting: Buffer[] = []
  #flowing = false
  #scheduled = false
  #begun = (): void => {}
  #over: 'ended' | 'broken' | undefined

  constructor(controller: Dispatcher.DispatchController) {
    super()
    this.#controller = controller
  }

  get whole(): boolean {
    return this.#over === 'ended' && this.#waiting.length === 0
  }

  override on(event: string, listener: Parameters<EventEmitter['on']>[1]): this {
    super.on(event, listener)
    if (event === 'data' && !this.#flowing) this.resume()
    return this
  }

  /** Resolves with the first bytes, which stay in the body. Empty if it ends without any. */
  async first(): Promise<Buffer> {
    if (this.#waiting.length === 0 && this.#over === undefined && !this.destroyed)
      await new Promise<void>(resolve => (this.#begun = resolve))
    return this.#waiting[0] ?? NOTHING
  }

  pause(): this {
    this.#flowing = false
    this.#controller.pause()
    return this
  }

  resume(): this {
    this.#flowing = true
    this.#soon()
    return this
  }

  /** Closes the connection to the upstream. */
  destroy(): void {
    if (this.readableEnded || this.destroyed) return
    this.destroyed = true
    this.#waiting = []
    this.#begun()
    if (this.#over === undefined) this.#controller.abort(new Error('the reply is no longer wanted'))
  }

  take(chunk: Buffer): void {
    if (this.destroyed) return
    this.#waiting.push(chunk)
    this.#begun()
    this.#soon()
  }

  /** Ends the body, complete or aborted, after all waiting chunks have been emitted. */
  conclude(how: 'ended' | 'broken'): void {
    this.#over = how
    this.#begun()
    this.#soon()
  }

  #soon(): void {
    if (!this.#flowing || this.#scheduled) return
    this.#scheduled = true
    queueMicrotask(this.#emitWaiting)
  }

  readonly #emitWaiting = (): void => {
    this.#scheduled = false
    if (this.#flowing && !this.destroyed && this.#waiting.length > 0) this.emit('data', this.#nextChunk())
    if (this.#waiting.length > 0) return this.#soon()
    // A listener may have paused or destroyed the body.
    if (!this.#flowing || this.readableEnded || this.destroyed) return
    if (this.#over === undefined) {
      // The connection is read on when all is emitted. Otherwise more would wait here than a reader has room for.
      if (this.#controller.paused) this.#controller.resume()
      return
    }
    if (this.#over === 'ended') {
      this.readableEnded = true
      this.emit('end')
    } else this.destroyed = true
    this.emit('close')
  }

  #nextChunk(): Buffer {
    const [first, ...others] = this.#waiting as [Buffer, ...Buffer[]]
    const all = others.length === 0 ? first : Buffer.concat([first, ...others])
    this.#waiting = all.length > CHUNK_BYTES ? [all.subarray(CHUNK_BYTES)] : []
    return all.subarray(0, CHUNK_BYTES)
  }
}

/**
 * Pauses a body after each `LONG_BYTES` of what is read of it, until it is its turn among the long work.
 * @param length bytes of what is read, with those that were added now
 * @param wanted returns whether more of the body is still wanted
 */
export function goOnInTurn(
  body: ReplyBody,
  { length, added }: { readonly length: number; readonly added: number },
  owner: string,
  wanted: () => boolean,
): void {
  if (Math.floor(length / LONG_BYTES) === Math.floor(Math.max(0, length - added) / LONG_BYTES)) return
  body.pause()
  inTurn(() => {
    if (wanted()) body.resume()
  }, owner)
}
