/** Replies that are read on after their clients have left, for the usage at their ends: so many at a time, and so long. */
import type { Upstream } from '../config/config.ts'

export class Drains {
  readonly #running = new Map<string, number>()

  /**
   * Begins one, if the upstream may have another.
   * @param over called when it has taken too long
   * @returns what ends it; undefined when there are too many
   */
  begin({ name, drains, timeouts }: Upstream, over: () => void): (() => void) | undefined {
    const running = this.#running.get(name) ?? 0
    if (running >= drains) return undefined
    this.#running.set(name, running + 1)
    const timer = setTimeout(over, timeouts.drain)
    return () => {
      clearTimeout(timer)
      this.#running.set(name, (this.#running.get(name) ?? 1) - 1)
    }
  }
}
