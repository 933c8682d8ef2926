/**
 * A list of things that come and go with every request. A Set or a Map would keep garbage alive: V8 links each table
 * that they outgrow to the next one, so an old table keeps everything that ever stood in a later one until a full
 * collection. An array that is filled from its end has no such history.
 */
export interface Indexed {
  /** Its index in its list; managed by the list. */
  index: number
}

/** A list without order, in which adding, removing and looking up cost the same however long it is. */
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

  /** Removes an item if it is in the list. The last item takes its place. */
  delete(item: T): void {
    if (this.#items[item.index] !== item) return
    const last = this.#items.pop() as T
    if (last === item) return
    this.#items[item.index] = last
    last.index = item.index
  }

  /** A copy of the list. The caller may change the list while it goes through the copy. */
  all(): readonly T[] {
    return [...this.#items]
  }
}
