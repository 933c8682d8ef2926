/** Measures how long an upstream takes for an exchange, and how long it sends no visible output. */

/** Milliseconds without visible output that count as silence. Shorter gaps are between the tokens of a text. */
const SILENCE_MS = 250

/** The times of one exchange. */
export class UpstreamClock {
  readonly #now: () => number
  /** Bytes of reasoning that came encrypted, or as signatures. */
  encryptedBytes = 0
  /** Milliseconds of silence before the last visible output. */
  #silentMs = 0
  /** Start of the work, in milliseconds of the clock of `performance`. */
  #startedAt: number | undefined
  /** Arrival of the last output, by the same clock. */
  #lastOutputAt: number | undefined
  /** End of the work, by the same clock. */
  #stoppedAt: number | undefined

  /** @param now milliseconds of a clock that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Whole milliseconds in which nothing arrived that shows what the model does, since the last encrypted reasoning. */
  get silentMs(): number {
    if (this.#lastOutputAt === undefined) return 0
    const gap = Math.max(0, (this.#stoppedAt ?? this.#now()) - this.#lastOutputAt)
    // No text will come that accounts for the last gap of a reply that has been stopped.
    return Math.ceil(this.#silentMs + (gap > SILENCE_MS || this.#stoppedAt !== undefined ? gap : 0))
  }

  /** Milliseconds since the request went out, until the upstream ended. */
  get elapsedMs(): number {
    return this.#startedAt === undefined ? 0 : (this.#stoppedAt ?? this.#now()) - this.#startedAt
  }

  /** Notes that the request goes out: the model may work from now on. */
  start(): void {
    this.#startedAt ??= this.#now()
    this.#lastOutputAt ??= this.#startedAt
  }

  /** Forgets the silence when the model begins. The upstream spent it on other things, such as a queue. */
  restart(): void {
    this.#lastOutputAt = this.#now()
    this.#silentMs = 0
  }

  /**
   * Notes that output arrived.
   * @param encryptedBytes bytes of encrypted reasoning, which accounts for the silence before it
   */
  output(encryptedBytes = 0): void {
    const now = this.#now()
    const gap = now - (this.#lastOutputAt ?? now)
    if (encryptedBytes > 0) this.#silentMs = 0
    else if (gap > SILENCE_MS) this.#silentMs += gap
    this.encryptedBytes += encryptedBytes
    this.#lastOutputAt = now
  }

  /** Notes that the upstream has ended, or was closed. */
  stop(): void {
    this.#stoppedAt ??= this.#now()
  }
}
