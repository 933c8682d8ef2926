/** Where the values of a JSON text stand: what a scanner notes, and what views are read from. */

/** Entries of a tape at its beginning; it grows as it must. */
const ENTRIES = 64

/** Where each value stands. Each name of an object has an entry before that of its value. */
export class Tape {
  size = 0
  /** By entry: the index of its first byte, and the index behind its last. */
  starts = new Int32Array(ENTRIES)
  ends = new Int32Array(ENTRIES)
  /** By entry: the entry behind it and all that is in it. */
  nexts = new Int32Array(ENTRIES)

  add(start: number): number {
    const entry = this.size++
    if (entry === this.starts.length) this.#grow()
    this.starts[entry] = start
    return entry
  }

  close(entry: number, end: number): void {
    this.ends[entry] = end
    this.nexts[entry] = this.size
  }

  #grow(): void {
    for (const name of ['starts', 'ends', 'nexts'] as const) {
      const grown = new Int32Array(2 * this[name].length)
      grown.set(this[name])
      this[name] = grown
    }
  }
}
