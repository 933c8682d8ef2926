/** Pauses an upstream while its bytes are not taken, and measures for how long its clients took nothing. */
import type { HttpExchange } from '../../exchange/http-exchange.ts'
import type { ReplyBody } from '../connection/reply-body.ts'

/** A stream breaks because of its client if the client took nothing for this long just before, in milliseconds. */
const STUCK_MS = 1000

/** The back-pressure on one stream. */
export class BackPressure {
  readonly #x: HttpExchange
  readonly #body: ReplyBody
  /** How many ask for the pause. */
  #pausers = 0
  /** Stops waiting for the client; undefined while the client takes what it is sent. */
  #stopWaiting: (() => void) | undefined
  /** For how long the client took nothing, since when it takes nothing now, and until when it last took nothing. */
  #stuckMs = 0
  #stuckSince = 0
  #stuckUntil = -Infinity

  constructor(x: HttpExchange, body: ReplyBody) {
    this.#x = x
    this.#body = body
  }

  /** Nothing is read from the upstream for now. */
  get isPausing(): boolean {
    return this.#pausers > 0
  }

  /** The client takes nothing of what was sent. */
  get stuck(): boolean {
    return this.#stopWaiting !== undefined
  }

  /**
   * The client took nothing for so long that the upstream may have broken off because of it. To be asked after `stop`.
   */
  get clientWasStuck(): boolean {
    return this.#stuckMs >= STUCK_MS
  }

  pause(): void {
    if (this.#pausers++ === 0) this.#body.pause()
    this.#x.isPaused = true
  }

  release(): void {
    if (--this.#pausers > 0) return
    this.#x.isPaused = false
    this.#body.resume()
  }

  /** Pauses the upstream until the client takes more. */
  waitForClient(): void {
    this.pause()
    const since = performance.now()
    this.#stuckSince = since
    this.#stopWaiting = this.#x.outlet.whenReady(() => {
      this.#stopWaiting = undefined
      const now = performance.now()
      this.#stuckMs += now - since
      // If the client left while it took nothing, a break that is read later still counts as the client's.
      this.#stuckUntil = this.#x.gone ? Infinity : now
      this.release()
    })
  }

  /** The stream ends. */
  stop(): void {
    const now = performance.now()
    if (this.#stopWaiting) this.#stuckMs += now - this.#stuckSince
    // What happened long ago did not break the stream.
    else if (now - this.#stuckUntil > STUCK_MS) this.#stuckMs = 0
    this.#stopWaiting?.()
  }
}
