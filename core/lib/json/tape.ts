/** Where the values of a JSON text stand. A scanner writes the tape, and views read it. */

/**
 * Entries of a segment, as a power of two. A tape grows by segments, so that nothing is copied and a segment is
 * collected cheaply.
 */
const SEGMENT_BITS = 10
const IN_SEGMENT = (1 << SEGMENT_BITS) - 1
/**
 * Numbers of an entry: the index of its first byte, the index after its last byte, and the entry after it and
 * everything in it.
 */
const NUMBERS = 3

/** The positions of all values. Each name of an object has an entry before the one of its value. */
export class Tape {
  size = 0
  #last: number[] = []
  readonly #segments: number[][] = [this.#last]

  /** Notes that an entry begins. @returns its number */
  add(start: number): number {
    if (this.size > IN_SEGMENT && (this.size & IN_SEGMENT) === 0) this.#segments.push((this.#last = []))
    this.#last.push(start, 0, 0)
    return this.size++
  }

  /** Notes where an entry ends. */
  close(entry: number, end: number): void {
    const segment = this.#segments[entry >> SEGMENT_BITS] as number[]
    const at = (entry & IN_SEGMENT) * NUMBERS
    segment[at + 1] = end
    segment[at + 2] = this.size
  }

  /** The index of an entry's first byte. */
  start(entry: number): number {
    return (this.#segments[entry >> SEGMENT_BITS] as number[])[(entry & IN_SEGMENT) * NUMBERS] as number
  }

  /** The index after the last byte of an entry. */
  end(entry: number): number {
    return (this.#segments[entry >> SEGMENT_BITS] as number[])[(entry & IN_SEGMENT) * NUMBERS + 1] as number
  }

  /** The entry after an entry and everything in it. */
  next(entry: number): number {
    return (this.#segments[entry >> SEGMENT_BITS] as number[])[(entry & IN_SEGMENT) * NUMBERS + 2] as number
  }
}
