/**
 * Observes the bytes of one connection to an upstream: whether the whole request has been sent, and whether anything
 * has come back. It also removes informational responses, which an HTTP client must accept at any time.
 */
import type { Socket } from 'node:net'
import { NOTHING } from '../../lib/byte-buffer.ts'
import { inTurn, SLICE_BYTES } from '../../lib/turns.ts'

/** Maximum bytes of informational responses before a reply. */
const INFORMATIONAL_MAX = 64 * 1024
/**
 * Maximum bytes of a reply's framing (header, chunk sizes, chunk extensions and trailers), beside those that
 * FRAMING_PER_BYTE allows.
 */
const FRAMING_MAX = 256 * 1024
/** Bytes of framing that a reply may have for each byte of its body. */
const FRAMING_PER_BYTE = 16

const HEAD_END = Buffer.from('\r\n\r\n')
/** The beginning of an informational response. */
const INFORMATIONAL = /^HTTP\/1\.[01] 1(?!01)\d\d[ \r]/
/** Offset of the status code, whose first digit is usually not 1. */
const STATUS_AT = 'HTTP/1.1 '.length
const ONE = 0x31
const INFORMATIONAL_LENGTH = 'HTTP/1.1 100 '.length

type Done = (error?: Error | null) => void
type Write = (chunk: Uint8Array | string, encoding: BufferEncoding | undefined, done: Done) => boolean

/** Writes a large chunk in slices, so that other work gets its turn: the system may accept all of it at once. */
function inSlices(write: Write, chunk: Uint8Array | string, encoding: BufferEncoding | undefined, done: Done): boolean {
  if (typeof chunk === 'string' || chunk.length <= SLICE_BYTES) return write(chunk, encoding, done)
  return write(chunk.subarray(0, SLICE_BYTES), encoding, error => {
    if (error) done(error)
    else inTurn(() => inSlices(write, chunk.subarray(SLICE_BYTES), encoding, done))
  })
}

/** What is known of a request on its way over a connection. */
export interface RequestWire {
  /** Milliseconds that the connection took to establish. */
  readonly connectMs: number
  /** Body bytes of the reply so far. */
  bodyBytes: number
  /** Whether the connection has carried an earlier request, and may have been closed as this one began. */
  readonly reused: boolean
  /** Whether the whole request may have been sent. Before that, no upstream can have understood it. */
  readonly flushed: boolean
  /** Whether anything has come back. */
  readonly answered: boolean
  /** Milliseconds since the last byte of the request was sent. */
  readonly waitedMs: number
  /** Notes that undici begins to send the request. */
  started(): void
}

/**
 * A request on an HTTP/2 connection. undici itself sends a request again if the server has said that it did not process
 * it. Every other request that was begun may have been understood.
 */
export class StreamWire implements RequestWire {
  readonly connectMs = 0
  bodyBytes = 0
  readonly reused = false
  flushed = false
  readonly answered = false
  readonly waitedMs = 0

  started(): void {
    this.flushed = true
  }
}

/** The observer of one HTTP/1.1 connection. */
export class Wire implements RequestWire {
  /** Milliseconds that the connection took to establish. */
  connectMs = 0
  /** Body bytes of the current reply. */
  bodyBytes = 0
  #socket: Socket | undefined
  /** The connection that existed when the request began. */
  #kept: Socket | undefined
  /** Number of writes that the system has not accepted yet. */
  #unwritten = 0
  #wrote = false
  /** Bytes of the request's body, and those that are still to be written. */
  #sentBytes = 0
  #leftBytes = 0
  /** When the system accepted the last byte of the request. */
  #flushedAt = 0
  /** Whether anything has arrived since the request began. */
  answered = false
  /** Whether the reply's header is still incomplete. */
  #headless = false
  /** The bytes so far of an informational response, or of a possible one. */
  #pending: Buffer = NOTHING
  #informationalBytes = 0
  /** Bytes that have arrived since the request began. */
  #readBytes = 0

  /** Starts a request. @param bodyBytes the bytes of its body */
  begin(bodyBytes: number): void {
    this.#sentBytes = this.#leftBytes = bodyBytes
    this.answered = false
    this.#headless = true
    this.#pending = NOTHING
    this.#informationalBytes = 0
    this.#wrote = false
    this.bodyBytes = 0
    this.#kept = this.#socket
    this.#readBytes = 0
  }

  started(): void {
    // The bytes tell how far the request has come.
  }

  /** Whether the connection has carried an earlier request. */
  get reused(): boolean {
    return this.#kept !== undefined && this.#kept === this.#socket
  }

  /** Whether the system has accepted the last byte of the request. Before that, no upstream can have understood it. */
  get flushed(): boolean {
    return this.#wrote && this.#unwritten === 0 && this.#leftBytes <= 0
  }

  /** Whether there are bytes that the system has not accepted. A request that is answered early may leave some. */
  get writing(): boolean {
    return this.#unwritten > 0 || this.#leftBytes > 0
  }

  /** Milliseconds since the last byte of the request was sent. */
  get waitedMs(): number {
    return performance.now() - this.#flushedAt
  }

  /** Observes a new connection. @param connectMs milliseconds that it took */
  watch(socket: Socket, connectMs: number): void {
    this.#socket = socket
    this.connectMs = connectMs
    this.#wrote = false
    this.#unwritten = 0
    this.#leftBytes = this.#sentBytes
    const read = socket.read.bind(socket)
    socket.read = (size?: number): Buffer | null => {
      const chunk = read(size) as Buffer | null
      return chunk && this.#take(chunk, socket)
    }
    const write = socket.write.bind(socket) as Write
    socket.write = (chunk: Uint8Array | string, encoding?: unknown, callback?: unknown): boolean => {
      this.#wrote = true
      this.#unwritten++
      // Only the head is a string.
      if (typeof chunk !== 'string') this.#leftBytes -= chunk.length
      const done = typeof encoding === 'function' ? encoding : callback
      return inSlices(write, chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : undefined, error => {
        if (!error && this.#socket === socket) {
          this.#unwritten--
          this.#flushedAt = performance.now()
        }
        if (typeof done === 'function') (done as Done)(error)
      })
    }
  }

  #take(chunk: Buffer, socket: Socket): Buffer {
    this.answered = true
    this.#readBytes += chunk.length
    const framing = this.#readBytes - this.bodyBytes
    if (framing > FRAMING_MAX + FRAMING_PER_BYTE * this.bodyBytes) {
      socket.destroy(new Error('the upstream sent more than 256 KiB of headers and chunk framing'))
      return NOTHING
    }
    return this.#headless ? this.#withoutInformational(chunk, socket) : chunk
  }

  /** Returns the bytes after the informational responses that precede the header. */
  #withoutInformational(chunk: Buffer, socket: Socket): Buffer {
    let bytes = this.#pending.length > 0 ? Buffer.concat([this.#pending, chunk]) : chunk
    this.#pending = NOTHING
    for (;;) {
      // No header is shorter.
      if (bytes.length < INFORMATIONAL_LENGTH) {
        this.#pending = bytes
        return NOTHING
      }
      if (bytes[STATUS_AT] !== ONE || !INFORMATIONAL.test(bytes.toString('latin1', 0, INFORMATIONAL_LENGTH))) {
        this.#headless = false
        return bytes
      }
      const end = bytes.indexOf(HEAD_END)
      if (this.#informationalBytes + (end === -1 ? bytes.length : end) > INFORMATIONAL_MAX) {
        socket.destroy(new Error('the upstream sent too many informational responses'))
        return NOTHING
      }
      if (end === -1) {
        this.#pending = bytes
        return NOTHING
      }
      this.#informationalBytes += end + HEAD_END.length
      bytes = bytes.subarray(end + HEAD_END.length)
      if (bytes.length === 0) return NOTHING
    }
  }
}
