/**
 * Items that wait, by owner. The owners are served in rotation: however many items one owner has, another owner waits
 * for one of them at most.
 */
export class Rotation<T> {
  /** The owner at the front is served next. */
  readonly #waiting = new Map<string, T[]>()

  get empty(): boolean {
    return this.#waiting.size === 0
  }

  add(owner: string, item: T): void {
    const items = this.#waiting.get(owner)
    if (items) items.push(item)
    else this.#waiting.set(owner, [item])
  }

  /** Takes the next item; undefined if none waits. */
  next(): T | undefined {
    for (const [owner, items] of this.#waiting) {
      const item = items.shift()
      // The other owners are served before this one again.
      this.#waiting.delete(owner)
      if (items.length > 0) this.#waiting.set(owner, items)
      return item
    }
    return undefined
  }

  /** Takes an item out. @returns false if it does not wait */
  remove(owner: string, item: T): boolean {
    const items = this.#waiting.get(owner) ?? []
    const at = items.indexOf(item)
    if (at === -1) return false
    items.splice(at, 1)
    if (items.length === 0) this.#waiting.delete(owner)
    return true
  }

  /** Takes all items out. */
  clear(): T[] {
    const all = [...this.#waiting.values()].flat()
    this.#waiting.clear()
    return all
  }
}
