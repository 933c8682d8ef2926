/** For how long an upstream is at work for an exchange, and for how long nothing shows what its model does. */

/** Milliseconds without any visible output that count as silence: shorter gaps lie between the tokens of a text. */
const SILENCE_MS = 250

export class UpstreamClock {
  /** Bytes of reasoning that came encrypted, or as signatures. */
  encryptedBytes = 0
  /** Milliseconds of silence before the last visible output. */
  #silentMs = 0
  /** By the clock of `performance`: when the work began, when the last visible output came, and when the upstream was closed. */
  #sentAt: number | undefined
  #heardAt: number | undefined
  #stillAt: number | undefined

  /** Milliseconds in which nothing came that shows what the model does, since the last encrypted reasoning. */
  get silentMs(): number {
    if (this.#heardAt === undefined) return 0
    const gap = (this.#stillAt ?? performance.now()) - this.#heardAt
    return this.#silentMs + (gap > SILENCE_MS ? gap : 0)
  }

  /** Milliseconds for which the upstream has been at work. */
  get elapsedMs(): number {
    return this.#sentAt === undefined ? 0 : (this.#stillAt ?? performance.now()) - this.#sentAt
  }

  /** The request goes out to the upstream: its model may be at work from now on. */
  start(): void {
    this.#sentAt ??= performance.now()
    this.#heardAt ??= this.#sentAt
  }

  /** The model begins only now: the time before was the upstream's. */
  restart(): void {
    this.#sentAt = this.#heardAt = performance.now()
    this.#silentMs = 0
  }

  /** Output has come that shows what the model does. @param encryptedBytes it is encrypted reasoning of so many bytes, which stands for all silence before it */
  output(encryptedBytes = 0): void {
    const now = performance.now()
    const gap = now - (this.#heardAt ?? now)
    this.#silentMs = encryptedBytes > 0 ? 0 : gap > SILENCE_MS ? this.#silentMs + gap : this.#silentMs
    this.encryptedBytes += encryptedBytes
    this.#heardAt = now
  }

  /** The upstream has ended, or was closed. */
  stop(): void {
    this.#stillAt ??= performance.now()
  }
}
