/** Puts the chunks of a stream together to whole events. */
import { GatewayError } from '../errors.ts'
import { Allowance, shortOfMemory } from '../exchange/memory.ts'
import type { Share } from '../lib/shares.ts'
import type { Format } from '../formats/index.ts'
import { ChunkList, NOTHING } from '../lib/byte-buffer.ts'
import { firstEvent, lastBoundary } from './sse.ts'

/** Most bytes of a blank line that can stand in a chunk before the one that ends it. */
const BEGUN = 2

/** Most values of one large event: it is parsed in one go. */
const VALUES_MAX = 500_000

export class WholeEvents {
  readonly #format: Format
  /** Most bytes of one event. */
  readonly #limit: number
  /** The beginning of an event whose end has not come yet. */
  readonly #rest = new ChunkList()
  readonly #memory: Allowance
  /** Its last bytes, which may begin a blank line. */
  #seam: Buffer = NOTHING

  /** @param memory for the beginning of an event */
  constructor(format: Format, limit: number, memory: Share) {
    this.#format = format
    this.#limit = limit
    this.#memory = new Allowance(memory)
  }

  /** Bytes of the event whose end has not come yet. */
  get begun(): number {
    return this.#rest.length
  }

  /**
   * The bytes up to the last event's end; what is left waits for its own.
   * @throws GatewayError upstream_failed when one event is larger than the limit; unavailable when there is no memory for it
   */
  take(chunk: Buffer): Buffer {
    const end = this.#lastEnd(chunk)
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

  /** What is left when the stream has ended, where it is an event that merely lacks its end. */
  last(): Buffer {
    const bytes = this.#rest.take()
    const event = firstEvent(this.#format, bytes)
    return event !== undefined && (event.json !== undefined || event.reading.last === true) ? bytes : NOTHING
  }

  /** The index in the chunk behind the last blank line that ends in it; 0 when none does. */
  #lastEnd(chunk: Buffer): number {
    const inside = lastBoundary(chunk)
    if (inside > 0 || this.#seam.length === 0) return inside
    return Math.max(0, lastBoundary(Buffer.concat([this.#seam, chunk.subarray(0, BEGUN)])) - this.#seam.length)
  }

  #keep(rest: Buffer): void {
    if (rest.length === 0) return
    this.#seam = rest.length < BEGUN ? Buffer.concat([this.#seam, rest]).subarray(-BEGUN) : rest.subarray(-BEGUN)
    const length = this.#rest.push(rest)
    if (!this.#memory.cover(rest)) throw shortOfMemory()
    if (this.#memory.values > VALUES_MAX)
      throw new GatewayError('upstream_failed', { cause: new Error(`an event of more than ${VALUES_MAX} values`) })
    if (length > this.#limit)
      throw new GatewayError('upstream_failed', { cause: new Error('an event larger than limits.reply') })
  }
}
