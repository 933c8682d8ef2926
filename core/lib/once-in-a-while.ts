/** Reports of something that goes on: each reason once, and then once in a while. */

/** Milliseconds after which the same reason is reported again. */
const AGAIN_MS = 10_000

/** Decides which reports are due. */
export class OnceInAWhile {
  readonly #last = new Map<string, { readonly reason: string; readonly at: number }>()

  /**
   * Returns whether to report something now.
   * @param what goes on
   * @param now milliseconds of any clock
   */
  due(what: string, reason: string, now: number): boolean {
    const last = this.#last.get(what)
    if (last && last.reason === reason && now - last.at < AGAIN_MS) return false
    this.#last.set(what, { reason, at: now })
    return true
  }
}
