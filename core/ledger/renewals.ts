/** Renews the holds of running requests: their leases, and what their customers have received. */
import type { SwapList } from '../lib/swap-list.ts'
import type { EndReason, Hold } from './hold.ts'
import { renewOperation } from './operations.ts'
import type { Scripts } from './scripts.ts'

/** A hold is renewed so soon the first time: if the process dies, the store knows what a customer has received. */
const FIRST_MS = 1000

/** The renewals of one process. */
export class Renewals {
  readonly #live: SwapList<Hold>
  readonly #scripts: Scripts
  readonly #leaseMs: number
  readonly #isOpen: () => boolean
  readonly #restore: (hold: Hold) => void

  /**
   * @param isOpen whether the store may be used
   * @param restore holds again what a running request needs
   */
  constructor(
    live: SwapList<Hold>,
    scripts: Scripts,
    leaseMs: number,
    isOpen: () => boolean,
    restore: (hold: Hold) => void,
  ) {
    this.#live = live
    this.#scripts = scripts
    this.#leaseMs = leaseMs
    this.#isOpen = isOpen
    this.#restore = restore
  }

  /** Renews from now on. @returns the timers, to be cleared at the end */
  start(): NodeJS.Timeout[] {
    return [
      setInterval(() => this.#renew(() => true), this.#leaseMs / 3),
      setInterval(() => {
        const before = performance.now() - FIRST_MS
        this.#renew(({ isRenewed, heldMs }) => !isRenewed && heldMs <= before)
      }, FIRST_MS),
    ]
  }

  #renew(isDue: (hold: Hold) => boolean): void {
    if (!this.#isOpen()) return
    for (const hold of this.#live.all().filter(isDue)) {
      const { request } = hold
      hold.isRenewed = true
      this.#scripts.run(renewOperation(hold, this.#leaseMs, this.#scripts.keys)).then(
        ([kind, why]) => {
          // It was reaped, or lost with a failed store, and its request runs on.
          if (kind === 'gone' && !hold.over) this.#restore(hold)
          else if (kind === 'off') request.end?.(why as EndReason)
          else if (kind === 'crowded' && hold.abandoned) request.end?.('crowded')
        },
        () => {
          // A lease lasts three renewals, so the next renewal may still be in time.
        },
      )
    }
  }
}
