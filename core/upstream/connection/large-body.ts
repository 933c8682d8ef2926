/** A large body of a request on its way to an upstream. */
import { SLICE_BYTES, turn } from '../../lib/turns.ts'

/**
 * A body in parts, which are sent as they are: joining them would take its memory once more. When all are sent, nothing
 * here refers to them.
 */
export class LargeBody implements AsyncIterable<Buffer> {
  #parts: readonly Buffer[]

  constructor(parts: readonly Buffer[]) {
    this.#parts = parts
  }

  /** Returns the parts once, in slices, so that other work gets its turn: the system may accept all of them at once. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    const parts = this.#parts
    this.#parts = []
    for (const part of parts) {
      for (let at = 0; at < part.length; at += SLICE_BYTES) {
        if (at > 0) await turn()
        yield part.subarray(at, at + SLICE_BYTES)
      }
    }
  }
}
