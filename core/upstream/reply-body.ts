/** The body of an upstream's reply as it arrives, without the machinery of a stream: chunks, an end, or a breaking off. */
import { EventEmitter } from 'node:events'
import type { Dispatcher } from 'undici'
import { inTurn } from '../lib/turns.ts'

/** What the relay needs of a body; a decompressed one is an ordinary stream. */
export interface ReplyBody {
  /** What is told of now is all there is, and its end will be told in the same turn, unless it is paused. */
  readonly whole?: boolean
  readonly readableEnded: boolean
  readonly destroyed: boolean
  /** Nothing more of it is wanted. */
  destroy(): unknown
  pause(): unknown
  resume(): unknown
  on(event: 'data', listener: (chunk: Buffer) => void): this
  on(event: 'end' | 'close', listener: () => void): this
  off(event: 'data', listener: (chunk: Buffer) => void): this
  off(event: 'end' | 'close', listener: () => void): this
  removeAllListeners(event: 'data'): unknown
}

/** What comes in one turn is told of as one chunk, in the order in which it came. */
export class UpstreamBody extends EventEmitter {
  readableEnded = false
  destroyed = false
  readonly #controller: Dispatcher.DispatchController
  /** Chunks that have not been told of. */
  #waiting: Buffer[] = []
  #flowing = false
  #scheduled = false
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

  pause(): this {
    this.#flowing = false
    this.#controller.pause()
    return this
  }

  resume(): this {
    this.#flowing = true
    if (this.#controller.paused) this.#controller.resume()
    this.#soon()
    return this
  }

  /** Closes the connection to the upstream. */
  destroy(): void {
    if (this.readableEnded || this.destroyed) return
    this.destroyed = true
    if (this.#over === undefined) this.#controller.abort(new Error('the reply is not wanted any more'))
  }

  take(chunk: Buffer): void {
    if (this.destroyed) return
    this.#waiting.push(chunk)
    this.#soon()
  }

  /** The body is over, whole or broken off; it is told when all that came before has been. */
  conclude(how: 'ended' | 'broken'): void {
    this.#over = how
    this.#soon()
  }

  #soon(): void {
    if (!this.#flowing || this.#scheduled) return
    this.#scheduled = true
    queueMicrotask(this.#tell)
  }

  readonly #tell = (): void => {
    this.#scheduled = false
    const waiting = this.#waiting
    if (this.#flowing && !this.destroyed && waiting.length > 0) {
      this.#waiting = []
      this.emit('data', waiting.length === 1 ? waiting[0] : Buffer.concat(waiting))
    }
    // Whoever was told may have had enough for now, or for good.
    if (this.#over === undefined || !this.#flowing || this.readableEnded || this.destroyed) return
    if (this.#over === 'ended') {
      this.readableEnded = true
      this.emit('end')
    } else this.destroyed = true
    this.emit('close')
  }
}

/** Bytes from which on an event, or a whole reply, is read in turn with other long work. */
export const LONG_BYTES = 64 * 1024

/** Lets a body wait for its turn among long work. @param wanted whether more of it is wanted then */
export function goOnInTurn(body: ReplyBody, owner: string, wanted: () => boolean): void {
  body.pause()
  inTurn(() => {
    if (wanted()) body.resume()
  }, owner)
}
