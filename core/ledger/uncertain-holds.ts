/**
 * Holds whose answers were lost. The store may have them although their requests were refused, so they are cancelled as
 * soon as it answers again. This does not go through the outbox: nothing was delivered, so their leases would end them
 * without a charge, and refused requests must not fill the disk.
 */
import type { Settlement } from './settlement.ts'

/** Cancellations that wait in memory. Beyond that, leases end the holds. */
const WAITING_MAX = 10_000
/** A hold may reach the store after its cancellation, on a connection that was slower. So it is cancelled again. */
const TIMES = 2

/** The uncertain holds of one process. */
export class UncertainHolds {
  readonly #send: (settlement: Settlement) => Promise<void>
  /** With the number of cancellations that the store has taken. */
  readonly #waiting = new Map<Settlement, number>()
  readonly #sending = new Set<Settlement>()

  /** @param send rejects if the store did not take it */
  constructor(send: (settlement: Settlement) => Promise<void>) {
    this.#send = send
  }

  /** Adds a hold, and tries to cancel it now. */
  add(cancellation: Settlement): void {
    if (this.#waiting.size >= WAITING_MAX) return
    this.#waiting.set(cancellation, 0)
    this.#try(cancellation)
  }

  /** Cancels all holds that wait for it. */
  cancel(): void {
    for (const cancellation of this.#waiting.keys()) this.#try(cancellation)
  }

  #try(cancellation: Settlement): void {
    // The last one must be sent after the answer to the one before.
    if (this.#sending.has(cancellation)) return
    this.#sending.add(cancellation)
    const sent = this.#send(cancellation).finally(() => this.#sending.delete(cancellation))
    sent.then(
      () => {
        const times = (this.#waiting.get(cancellation) ?? 0) + 1
        if (times < TIMES) this.#waiting.set(cancellation, times)
        else this.#waiting.delete(cancellation)
      },
      () => {
        // The next round tries again.
      },
    )
  }
}
