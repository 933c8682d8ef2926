/** Where the values of a JSON text stand: what a scanner notes, and what views are read from. */

/** Where each value stands. Each name of an object has an entry before that of its value. */
export class Tape {
  size = 0
  /** By entry: the index of its first byte, and the index behind its last. */
  readonly starts: number[] = []
  readonly ends: number[] = []
  /** By entry: the entry behind it and all that is in it. */
  readonly nexts: number[] = []

  /** Notes that an entry begins. @returns its number */
  add(start: number): number {
    this.starts.push(start)
    // Each list has as many entries as the others.
    this.ends.push(0)
    this.nexts.push(0)
    return this.size++
  }

  /** Notes where an entry ends. */
  close(entry: number, end: number): void {
    this.ends[entry] = end
    this.nexts[entry] = this.size
  }
}
