/**
 * Things that come and go with every request. A Set or Map would do, but for what V8 does with one that churns: each
 * table it outgrew points to the next, so once one of them is old, all that ever stood in a later one is kept until the
 * next full collection, and copied on the way there. A plain array that is filled from its end has no such past.
 */
export interface Seated {
  /** Its place in the roster that it is in. */
  seat: number
}

export class Roster<T extends Seated> {
  readonly #items: T[] = []

  get size(): number {
    return this.#items.length
  }

  add(item: T): void {
    item.seat = this.#items.push(item) - 1
  }

  has(item: T): boolean {
    return this.#items[item.seat] === item
  }

  /** Takes an item out, if it is in; the last one gets its place. */
  delete(item: T): void {
    if (this.#items[item.seat] !== item) return
    const last = this.#items.pop() as T
    if (last === item) return
    this.#items[item.seat] = last
    last.seat = item.seat
  }

  /** All at this moment; what the caller does with them may change the roster. */
  all(): readonly T[] {
    return [...this.#items]
  }
}
