/** Recent settlements that may not be recorded. If the store loses its last writes, the gateway sends them again. */
import type { Settlement } from './settlement.ts'

/** Settlements that are kept in memory. Beyond that, the oldest ones are handed out to be kept elsewhere. */
const KEPT_MAX = 20_000

/** The settlements of this process that the records may not have. */
export class Recent {
  /** In the order in which the store took them, with that time in milliseconds. */
  readonly #kept = new Map<string, { readonly settlement: Settlement; readonly at: number }>()

  /**
   * Keeps a settlement that the store has taken.
   * @param at when, in milliseconds since the epoch
   * @returns a settlement for which there is no more room
   */
  add(settlement: Settlement, at: number): { readonly settlement: Settlement; readonly at: number } | undefined {
    const key = `${settlement.account} ${settlement.id}`
    this.#kept.delete(key)
    this.#kept.set(key, { settlement, at })
    if (this.#kept.size <= KEPT_MAX) return undefined
    const [name, oldest] = this.#kept.entries().next().value as [string, { settlement: Settlement; at: number }]
    this.#kept.delete(name)
    return oldest
  }

  /** Drops the settlements that the store took before a time: they are recorded. */
  dropUntil(ms: number): void {
    for (const [name, { at }] of this.#kept) {
      if (at >= ms) return
      this.#kept.delete(name)
    }
  }

  all(): Settlement[] {
    return [...this.#kept.values()].map(({ settlement }) => settlement)
  }
}
