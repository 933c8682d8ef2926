/** Puts the chunks of a stream together to whole events. */
import { GatewayError } from '../errors.ts'
import type { Format } from '../formats/index.ts'
import { firstEvent, lastBoundary } from './sse.ts'

/** No bytes. */
export const NOTHING = Buffer.alloc(0)

export class WholeEvents {
  readonly #format: Format
  /** Most bytes of one event. */
  readonly #limit: number
  /** The beginning of an event whose end has not come yet. */
  #rest: Buffer[] = []

  constructor(format: Format, limit: number) {
    this.#format = format
    this.#limit = limit
  }

  /** Puts bytes that were taken back to the front. */
  putBack(bytes: Buffer): void {
    this.#rest.unshift(bytes)
  }

  /**
   * The bytes up to the last event's end; what is left waits for its own, which the end of the stream is, too.
   * @param chunk what has come
   * @param ended nothing comes after it
   * @throws GatewayError upstream_failed when one event is larger than the limit
   */
  take(chunk: Buffer, ended: boolean): Buffer {
    if (this.#rest.length === 0 && lastBoundary(chunk) === chunk.length) return chunk
    const all = [...this.#rest, chunk]
    this.#rest = all
    // Where no line ends no event does, and bytes need not be put together again and again.
    const possible = ended || chunk.includes(0x0a) || chunk.includes(0x0d)
    if (possible) {
      const bytes = all.length === 1 ? (all[0] as Buffer) : Buffer.concat(all)
      const whole = lastBoundary(bytes)
      const cut = ended && this.#closes(bytes.subarray(whole)) ? bytes.length : whole
      this.#rest = cut < bytes.length && !ended ? [bytes.subarray(cut)] : []
      if (cut > 0) return bytes.subarray(0, cut)
    }
    if (this.#rest.reduce((sum, chunk) => sum + chunk.length, 0) > this.#limit) {
      throw new GatewayError('upstream_failed', { cause: new Error('an event larger than limits.reply') })
    }
    return NOTHING
  }

  /** Whether what stands behind the last blank line is a whole event that merely lacks its own. */
  #closes(bytes: Buffer): boolean {
    const event = bytes.length > 0 ? firstEvent(this.#format, bytes) : undefined
    return event !== undefined && (event.json !== undefined || event.reading.last === true)
  }
}
