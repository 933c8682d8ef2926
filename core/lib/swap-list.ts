/**
 * Things that come and go with every request. A Set or Map would do, but for what V8 does with one that churns: each
 * table it outgrew points to the next, so once one of them is old, all that ever stood in a later one is kept until the
 * next full collection, and copied on the way there. A plain array that is filled from its end has no such past.
 */
export interface Indexed {
  /** Its place in the roster that it is in. */
  index: number
}

export class SwapList<T extends Indexed> {
  readonly #items: T[] = []

  get size(): number {
    return this.#items.length
  }

  add(item: T): void {
    item.index = this.#items.push(item) - 1
  }

  has(item: T): boolean {
    return this.#items[item.index] === item
  }

  /** Takes an item out, if it is in; the last one gets its place. */
  delete(item: T): void {
    if (this.#items[item.index] !== item) return
    const last = this.#items.pop() as T
    if (last === item) return
    this.#items[item.index] = last
    last.index = item.index
  }

  /** All at this moment; what the caller does with them may change the roster. */
  all(): readonly T[] {
    return [...this.#items]
  }
}
