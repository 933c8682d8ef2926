/** How long an upstream works for an exchange, and how long nothing shows what its model does. */

/** Milliseconds without visible output that count as silence. Shorter gaps are between the tokens of a text. */
const SILENCE_MS = 250

/** The times of one exchange. */
export class UpstreamClock {
  /** Bytes of reasoning that came encrypted, or as signatures. */
  encryptedBytes = 0
  /** Milliseconds of silence before the last visible output. */
  #silentMs = 0
  /**
   * By the clock of `performance`: when the work began, when the last visible output arrived, and when the upstream was
   * closed.
   */
  #sentAt: number | undefined
  #heardAt: number | undefined
  #stillAt: number | undefined

  /** Milliseconds in which nothing arrived that shows what the model does, since the last encrypted reasoning. */
  get silentMs(): number {
    if (this.#heardAt === undefined) return 0
    const gap = (this.#stillAt ?? performance.now()) - this.#heardAt
    return this.#silentMs + (gap > SILENCE_MS ? gap : 0)
  }

  /** Milliseconds for which the upstream has worked. */
  get elapsedMs(): number {
    return this.#sentAt === undefined ? 0 : (this.#stillAt ?? performance.now()) - this.#sentAt
  }

  /** Notes that the request goes out: the model may work from now on. */
  start(): void {
    this.#sentAt ??= performance.now()
    this.#heardAt ??= this.#sentAt
  }

  /** Notes that the model only begins now: the time before was the upstream's own. */
  restart(): void {
    this.#sentAt = this.#heardAt = performance.now()
    this.#silentMs = 0
  }

  /**
   * Notes that output arrived.
   * @param encryptedBytes bytes of encrypted reasoning, which stands for all silence before it
   */
  output(encryptedBytes = 0): void {
    const now = performance.now()
    const gap = now - (this.#heardAt ?? now)
    if (encryptedBytes > 0) this.#silentMs = 0
    else if (gap > SILENCE_MS) this.#silentMs += gap
    this.encryptedBytes += encryptedBytes
    this.#heardAt = now
  }

  /** Notes that the upstream has ended, or was closed. */
  stop(): void {
    this.#stillAt ??= performance.now()
  }
}
