/** No bytes. */
export const NOTHING = Buffer.alloc(0)

/**
 * Bytes that come bit by bit. They are put together as they come: however small the bits are, they take no more than
 * about twice the memory of their bytes, and are copied no more than about twice.
 */
export class ByteBuffer {
  /** The bytes, and room for more behind them; a single piece stays where it came. */
  #room: Buffer = NOTHING
  #length = 0
  readonly #expected: number

  /** @param expected how many bytes there will be at most, where that is known */
  constructor(expected = Infinity) {
    this.#expected = expected
  }

  get length(): number {
    return this.#length
  }

  /** @returns how many bytes there are now */
  push(piece: Buffer): number {
    const length = this.#length + piece.length
    if (this.#length === 0) this.#room = piece
    else {
      if (length > this.#room.length) {
        const room = Buffer.allocUnsafe(Math.max(length, Math.min(2 * length, this.#expected)))
        this.#room.copy(room, 0, 0, this.#length)
        this.#room = room
      }
      piece.copy(this.#room, this.#length)
    }
    return (this.#length = length)
  }

  /** All there are: bytes that come later do not change them. */
  get all(): Buffer {
    return this.#room.subarray(0, this.#length)
  }

  /** A copy of all there are. */
  copy(): Buffer {
    return Buffer.from(this.#room.subarray(0, this.#length))
  }

  /** All there are; none are left. */
  take(): Buffer {
    const bytes = this.#room.subarray(0, this.#length)
    this.#room = NOTHING
    this.#length = 0
    return bytes
  }
}

/** Bytes of a room: what is in one is not copied when more comes. */
const ROOM_BYTES = 1024 * 1024

/** Bytes that come bit by bit and are asked for once: many of them are put together at the end, and not at all where they are given up. */
export class ChunkList {
  #full: Buffer[] | undefined
  readonly #room = new ByteBuffer(ROOM_BYTES)
  #length = 0

  get length(): number {
    return this.#length
  }

  /** @returns how many bytes there are now */
  push(piece: Buffer): number {
    if (this.#room.length > 0 && this.#room.length + piece.length > ROOM_BYTES)
      (this.#full ??= []).push(this.#room.take())
    this.#room.push(piece)
    return (this.#length += piece.length)
  }

  /** All there are; none are left. */
  take(): Buffer {
    const last = this.#room.take()
    const full = this.#full
    this.#length = 0
    this.#full = undefined
    return full ? Buffer.concat([...full, last]) : last
  }
}
