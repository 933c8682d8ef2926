/** No bytes. */
export const NOTHING = Buffer.alloc(0)

/** Returns the number of bytes in parts. */
export function bytesIn(parts: readonly Buffer[]): number {
  return parts.reduce((sum, { length }) => sum + length, 0)
}

/** Returns parts as one buffer. A single part is not copied. */
export function joined(parts: readonly Buffer[]): Buffer {
  return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
}

/**
 * Bytes that arrive in pieces and are joined as they arrive. However small the pieces are, they take at most about
 * twice the memory of their bytes, and each byte is copied about twice at most.
 */
export class ByteBuffer {
  /** The bytes, with space for more behind them. A single piece is not copied. */
  #room: Buffer = NOTHING
  #length = 0
  readonly #expected: number

  /** @param expected how many bytes there will be at most, if that is known */
  constructor(expected = Infinity) {
    this.#expected = expected
  }

  get length(): number {
    return this.#length
  }

  /** Adds a piece. @returns the number of bytes so far */
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

  /** All bytes so far. Bytes that arrive later do not change them. */
  get all(): Buffer {
    return this.#room.subarray(0, this.#length)
  }

  /** A copy of all bytes so far. */
  copy(): Buffer {
    return Buffer.from(this.#room.subarray(0, this.#length))
  }

  /** Takes all bytes out. */
  take(): Buffer {
    const bytes = this.#room.subarray(0, this.#length)
    this.#room = NOTHING
    this.#length = 0
    return bytes
  }
}

/** Bytes of one chunk. A full chunk is not copied when more bytes arrive. */
const ROOM_BYTES = 1024 * 1024

/**
 * Bytes that arrive in pieces and are needed once, at the end. They are joined then, or not at all if they are given
 * up.
 */
export class ChunkList {
  #full: Buffer[] | undefined
  readonly #room = new ByteBuffer(ROOM_BYTES)
  #length = 0

  get length(): number {
    return this.#length
  }

  /** Adds a piece. @returns the number of bytes so far */
  push(piece: Buffer): number {
    if (this.#room.length > 0 && this.#room.length + piece.length > ROOM_BYTES)
      (this.#full ??= []).push(this.#room.take())
    this.#room.push(piece)
    return (this.#length += piece.length)
  }

  /** Takes all bytes out. */
  take(): Buffer {
    const last = this.#room.take()
    const full = this.#full
    this.#length = 0
    this.#full = undefined
    return full ? Buffer.concat([...full, last]) : last
  }
}
