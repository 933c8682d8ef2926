/** The settlements of the last moments, for a store whose successor may not have them. */
import type { Settlement } from './outbox.ts'

/** Milliseconds for which they are kept, at least; twice that at most. */
const KEPT_MS = 15_000

export class Recent {
  #current: Settlement[] = []
  #before: Settlement[] = []
  #since: number
  readonly #nowMs: () => number

  /** @param nowMs milliseconds since the epoch */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
    this.#since = nowMs()
  }

  add(settlement: Settlement): void {
    if (this.#nowMs() - this.#since > KEPT_MS) {
      this.#before = this.#current
      this.#current = []
      this.#since = this.#nowMs()
    }
    this.#current.push(settlement)
  }

  all(): Settlement[] {
    return [...this.#before, ...this.#current]
  }
}
