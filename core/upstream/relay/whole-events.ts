/** Assembles the chunks of a stream into whole events. */
import { Allowance, shortOfMemory } from '../../client/memory.ts'
import type { Reservation } from '../../lib/fair-budget.ts'
import type { Format } from '../../formats/index.ts'
import { ChunkList, NOTHING } from '../../lib/byte-buffer.ts'
import { PARSED_MAX } from '../../lib/json/outline.ts'
import { tooLarge } from './endings.ts'
import { firstEvent, lastBoundary } from './sse.ts'

/** Maximum bytes of a blank line in the chunks before its last byte. */
const BEGUN = 2

/** Assembles the events of one stream. */
export class WholeEvents {
  readonly #format: Format
  /** Maximum bytes of one event. */
  readonly #limit: number
  /** The beginning of an incomplete event. */
  readonly #rest = new ChunkList()
  readonly #memory: Allowance
  /** Its last bytes, which may be the beginning of a blank line. */
  #seam: Buffer = NOTHING

  /** @param memory reserves memory for the incomplete event */
  constructor(format: Format, limit: number, memory: Reservation) {
    this.#format = format
    this.#limit = limit
    this.#memory = new Allowance(memory)
  }

  /** Bytes of the incomplete event. */
  get begun(): number {
    return this.#rest.length
  }

  /**
   * Returns the bytes up to the end of the last complete event, and stores the rest.
   * @throws FailedAttempt if one event exceeds the limits; GatewayError unavailable if there is no memory for it
   */
  take(chunk: Buffer): Buffer {
    const end = this.#endOfLastEvent(chunk)
    if (end === 0) {
      this.#keep(chunk)
      return NOTHING
    }
    if (end === chunk.length && this.#rest.length === 0) return chunk
    this.#rest.push(chunk.subarray(0, end))
    const events = this.#rest.take()
    this.#memory.clear()
    this.#seam = NOTHING
    this.#keep(chunk.subarray(end))
    return events
  }

  /** Returns the rest after the end of the stream, if it is an event that only lacks its blank line. */
  last(): Buffer {
    const bytes = this.#rest.take()
    const event = firstEvent(this.#format, bytes)
    return event !== undefined && (event.json !== undefined || event.reading.completes === true) ? bytes : NOTHING
  }

  /** Gives the memory of the incomplete event back. */
  drop(): void {
    this.#rest.take()
    this.#memory.clear()
  }

  /** Returns the index after the last blank line that ends in the chunk. 0 if there is none. */
  #endOfLastEvent(chunk: Buffer): number {
    const inside = lastBoundary(chunk)
    if (inside > 0 || this.#seam.length === 0) return inside
    return Math.max(0, lastBoundary(Buffer.concat([this.#seam, chunk.subarray(0, BEGUN)])) - this.#seam.length)
  }

  #keep(rest: Buffer): void {
    if (rest.length === 0) return
    this.#seam = rest.length < BEGUN ? Buffer.concat([this.#seam, rest]).subarray(-BEGUN) : rest.subarray(-BEGUN)
    const length = this.#rest.push(rest)
    if (!this.#memory.cover(rest)) throw shortOfMemory()
    if (this.#memory.values > PARSED_MAX) throw tooLarge(`an event of more than ${PARSED_MAX} values`)
    if (length > this.#limit) throw tooLarge('an event larger than limits.reply')
  }
}
