/** Recent settlements, for a store whose successor after a failover may lack them. */
import type { Settlement } from './outbox.ts'

/** How long settlements are kept: at least this many milliseconds, at most twice as many. */
const KEPT_MS = 15_000

/** The settlements of the last seconds. */
export class Recent {
  #current: Settlement[] = []
  #before: Settlement[] = []
  #since: number
  readonly #nowMs: () => number

  /** @param nowMs returns milliseconds since the epoch */
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
