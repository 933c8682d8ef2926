/** Runs asynchronous work one after the other. */

/** A queue of which one piece of work runs at a time. */
export class Serial {
  #last: Promise<unknown> = Promise.resolve()

  /** Runs work after all that was queued before, however that ended. */
  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work)
    this.#last = result.catch(() => {})
    return result
  }
}
