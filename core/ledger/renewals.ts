/** Renews the holds of running requests: their leases, and what their customers have received. */
import type { SwapList } from '../lib/swap-list.ts'
import type { EndReason, Hold } from './hold.ts'
import { renewOperation } from './operations.ts'
import type { Scripts } from './script/scripts.ts'

/**
 * When the holds of a stream are renewed after its first event, in milliseconds, before they are renewed with all others:
 * if the process dies, the store knows what the customer has received. A stream that ends before costs no renewal.
 */
const YOUNG_MS = [100, 1000] as const

/** What the renewals of a process need. */
export interface RenewalsNeeds {
  /** The holds that this process renews. */
  readonly live: SwapList<Hold>
  readonly scripts: Scripts
  readonly leaseMs: number
  /** Whether the store may be used. */
  readonly isOpen: () => boolean
  /** Holds again what a running request needs. */
  readonly restore: (hold: Hold) => void
}

/** The renewals of one process. */
export class Renewals {
  readonly #needs: RenewalsNeeds
  /** The holds of streams that have just begun, with that time by `performance.now()`, and how often they were renewed. */
  #young: { readonly hold: Hold; readonly beganMs: number; times: number }[] = []
  #renewing: NodeJS.Timeout | undefined
  /** The timer that renews young holds, while there are some. */
  #looking: NodeJS.Timeout | undefined

  constructor(needs: RenewalsNeeds) {
    this.#needs = needs
  }

  /** Renews from now on. */
  start(): void {
    this.#renewing = setInterval(() => this.#renew(this.#needs.live.all()), this.#needs.leaseMs / 3).unref()
  }

  stop(): void {
    clearInterval(this.#renewing)
    clearInterval(this.#looking)
  }

  /** Notes that a stream has begun, which these holds are for. */
  begun(holds: readonly Hold[]): void {
    const beganMs = performance.now()
    for (const hold of holds) this.#young.push({ hold, beganMs, times: 0 })
    this.#looking ??= setInterval(() => this.#renewYoung(), YOUNG_MS[0]).unref()
  }

  #renewYoung(): void {
    if (this.#young.length === 0) {
      clearInterval(this.#looking)
      this.#looking = undefined
    }
    if (!this.#needs.isOpen()) return
    const now = performance.now()
    const due = this.#young.filter(({ beganMs, times }) => now >= beganMs + (YOUNG_MS[times] as number))
    for (const young of due) young.times++
    this.#young = this.#young.filter(({ hold, times }) => !hold.over && times < YOUNG_MS.length)
    this.#renew(due.map(({ hold }) => hold))
  }

  #renew(holds: readonly Hold[]): void {
    if (!this.#needs.isOpen()) return
    for (const hold of holds) {
      if (hold.over) continue
      const { request } = hold
      this.#needs.scripts.run(renewOperation(hold, this.#needs.leaseMs, this.#needs.scripts.keys)).then(
        ([kind, why]) => {
          // It was reaped, or lost with a failed store, and its request runs on.
          if (kind === 'gone' && !hold.over) this.#needs.restore(hold)
          else if (kind === 'off') request.endExchange?.(why as EndReason)
          else if (kind === 'crowded' && hold.abandoned) request.endExchange?.('crowded')
        },
        () => {
          // A lease lasts three renewals, so the next renewal may still be in time.
        },
      )
    }
  }
}
