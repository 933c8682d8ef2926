/**
 * One connection to an upstream, as its bytes are seen: whether all of a request has left, whether anything has come back, and
 * what comes besides the reply. Informational responses, which a client must accept at any time, are taken out.
 */
import type { Socket } from 'node:net'
import { NOTHING } from '../lib/byte-buffer.ts'
import { inTurn, SLICE_BYTES } from '../lib/turns.ts'

/** Bytes of informational responses before the head of a reply. */
const INFORMATIONAL_MAX = 64 * 1024
/** Bytes of heads, chunk sizes, chunk extensions and trailers that a reply may have, and more of them for each byte of its body. */
const FRAMING_MAX = 256 * 1024
const FRAMING_PER_BYTE = 16

const HEAD_END = Buffer.from('\r\n\r\n')
/** The beginning of an informational response. */
const INFORMATIONAL = /^HTTP\/1\.[01] 1(?!01)\d\d[ \r]/
/** Where the first digit of a status stands, and a one, which most of them do not begin with. */
const STATUS_AT = 'HTTP/1.1 '.length
const ONE = 0x31
const INFORMATIONAL_LENGTH = 'HTTP/1.1 100 '.length

type Done = (error?: Error | null) => void
type Write = (chunk: Uint8Array | string, encoding: BufferEncoding | undefined, done: Done) => boolean

/** Writes a large chunk slice by slice, between which others have their turn: the system may take all of it at once. */
function inSlices(write: Write, chunk: Uint8Array | string, encoding: BufferEncoding | undefined, done: Done): boolean {
  if (typeof chunk === 'string' || chunk.length <= SLICE_BYTES) return write(chunk, encoding, done)
  return write(chunk.subarray(0, SLICE_BYTES), encoding, error => {
    if (error) done(error)
    else inTurn(() => inSlices(write, chunk.subarray(SLICE_BYTES), encoding, done))
  })
}

export class Wire {
  /** Milliseconds that it took to connect. */
  connectMs = 0
  /** Bytes of the body of the reply that runs. */
  bodyBytes = 0
  #socket: Socket | undefined
  /** The connection that was there when the request began. */
  #kept: Socket | undefined
  /** Writes that the system has not taken yet. */
  #unwritten = 0
  #wrote = false
  /** When the system took the last byte of the request. */
  #flushedAt = 0
  /** Something has come since the request began. */
  answered = false
  /** The head of the reply is still to come. */
  #headless = false
  /** What has come of an informational response, or of what may be one. */
  #held: Buffer = NOTHING
  #informationalBytes = 0
  /** Bytes that have come since the request began. */
  #readBytes = 0

  /** A request begins. */
  begin(): void {
    this.answered = false
    this.#headless = true
    this.#held = NOTHING
    this.#informationalBytes = 0
    this.#wrote = false
    this.bodyBytes = 0
    this.#kept = this.#socket
    this.#readBytes = 0
  }

  /** Whether the request runs on a connection that has carried another one before it. */
  get reused(): boolean {
    return this.#kept !== undefined && this.#kept === this.#socket
  }

  /** Whether the system has taken the last byte of the request; before that, no upstream can have understood it. */
  get flushed(): boolean {
    return this.#wrote && this.#unwritten === 0
  }

  /** Whether there are bytes that the system has not taken yet: a request that is answered early may leave some. */
  get writing(): boolean {
    return this.#unwritten > 0
  }

  /** Milliseconds since the last byte of the request has left. */
  get waitedMs(): number {
    return performance.now() - this.#flushedAt
  }

  /** Watches a connection that was made, in `connectMs`. */
  watch(socket: Socket, connectMs: number): void {
    this.#socket = socket
    this.connectMs = connectMs
    this.#wrote = false
    this.#unwritten = 0
    const read = socket.read.bind(socket)
    socket.read = (size?: number): Buffer | null => {
      const chunk = read(size) as Buffer | null
      return chunk && this.#take(chunk, socket)
    }
    const write = socket.write.bind(socket) as Write
    socket.write = (chunk: Uint8Array | string, encoding?: unknown, callback?: unknown): boolean => {
      this.#wrote = true
      this.#unwritten++
      const told = typeof encoding === 'function' ? encoding : callback
      return inSlices(write, chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : undefined, error => {
        if (!error && this.#socket === socket) {
          this.#unwritten--
          this.#flushedAt = performance.now()
        }
        if (typeof told === 'function') (told as Done)(error)
      })
    }
  }

  #take(chunk: Buffer, socket: Socket): Buffer {
    this.answered = true
    this.#readBytes += chunk.length
    const framing = this.#readBytes - this.bodyBytes
    if (framing > FRAMING_MAX + FRAMING_PER_BYTE * this.bodyBytes) {
      socket.destroy(new Error('the upstream sends more framing than reply'))
      return NOTHING
    }
    return this.#headless ? this.#withoutInformational(chunk, socket) : chunk
  }

  /** What follows the informational responses that have come before the head. */
  #withoutInformational(chunk: Buffer, socket: Socket): Buffer {
    let bytes = this.#held.length > 0 ? Buffer.concat([this.#held, chunk]) : chunk
    this.#held = NOTHING
    for (;;) {
      // No head is shorter.
      if (bytes.length < INFORMATIONAL_LENGTH) {
        this.#held = bytes
        return NOTHING
      }
      if (bytes[STATUS_AT] !== ONE || !INFORMATIONAL.test(bytes.toString('latin1', 0, INFORMATIONAL_LENGTH))) {
        this.#headless = false
        return bytes
      }
      const end = bytes.indexOf(HEAD_END)
      if (this.#informationalBytes + (end === -1 ? bytes.length : end) > INFORMATIONAL_MAX) {
        socket.destroy(new Error('the upstream sends informational responses without end'))
        return NOTHING
      }
      if (end === -1) {
        this.#held = bytes
        return NOTHING
      }
      this.#informationalBytes += end + HEAD_END.length
      bytes = bytes.subarray(end + HEAD_END.length)
      if (bytes.length === 0) return NOTHING
    }
  }
}
