/** The settlements of the last moments, for a store whose successor may not have them. */
import type { Settlement } from './outbox.ts'

/** Milliseconds for which they are kept, at least; twice that at most. */
const KEPT_MS = 15_000

export class Recent {
  #now: Settlement[] = []
  #before: Settlement[] = []
  #since = Date.now()

  add(settlement: Settlement): void {
    if (Date.now() - this.#since > KEPT_MS) {
      this.#before = this.#now
      this.#now = []
      this.#since = Date.now()
    }
    this.#now.push(settlement)
  }

  all(): Settlement[] {
    return [...this.#before, ...this.#now]
  }
}
