/** Reads the body of a request within its limits. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import type { Limits } from '../config/config.ts'
import { type Deadline, deadline } from '../lib/deadline.ts'
import { decoded, DECODERS, encodingOf } from '../lib/decoders.ts'
import { GatewayError } from '../errors.ts'
import { ByteBuffer } from '../lib/byte-buffer.ts'
import { inTurn, LONG_BYTES } from '../lib/turns.ts'

/** Number of chunks after which they must have `CHUNK_BYTES_MIN` bytes on average. */
const CHUNKS_MAX = 2000
/** Minimum average bytes of a chunk. A small chunk costs almost as much time as a large one. */
const CHUNK_BYTES_MIN = 64

/** Bytes of a chunk up to which it is checked as soon as it arrives. */
const SHORT_BYTES = 4096

/** What limits the reading of a body, and who follows it. */
export interface BodyWish {
  /** Most bytes. */
  readonly limit: number
  readonly limits: Pick<Limits, 'bodyMs' | 'bodyIdleMs'>
  /** Takes memory: all of it at once if the client sent a content-length, otherwise for each chunk. */
  readonly reserve: (bytes: number) => void
  /** Called with all bytes so far when more arrive. If it returns false, it is called again. An exception ends the reading. */
  readonly watch: (all: Buffer) => boolean | void
  /** The owner that `inTurn` schedules the work for. */
  readonly owner: string
}

/**
 * Reads the whole body.
 * @throws GatewayError unsupported_encoding, body_too_large, request_timeout; bad_request if the client breaks off;
 * what `reserve` throws
 */
export async function readBody(req: IncomingMessage, res: ServerResponse, wish: BodyWish): Promise<Buffer> {
  const encoding = encodingOf(req)
  if (encoding !== 'identity' && !DECODERS.has(encoding)) throw new GatewayError('unsupported_encoding')
  const length = Number(req.headers['content-length'] ?? 0)
  if (length > wish.limit) throw tooLarge(wish)
  // The client may have left while its key was looked up. Then no event would follow.
  if (req.destroyed) throw connectionClosed()
  // What comes out of an encoded body takes memory as it comes.
  const plainLength = encoding === 'identity' ? length : 0
  if (plainLength > 0) wish.reserve(plainLength)
  // A client that sent `expect` waits for this. A client that was refused before never sends its body.
  if (req.headers.expect !== undefined) res.writeContinue()
  return new BodyReading(req, wish, plainLength, encoding).bytes
}

/** The reading of one body. */
class BodyReading {
  readonly #req: IncomingMessage
  /** What the request's body is without its encoding. */
  readonly #plain: Readable
  readonly #wish: BodyWish
  /** The length that the client has announced; 0 if it has not. */
  readonly #length: number
  readonly #body: ByteBuffer
  readonly #read = Promise.withResolvers<Buffer>()
  readonly #untilMs: number
  readonly #idle: Deadline
  #isOver = false
  /** Whether a check waits for its turn. */
  #isScheduled = false
  #hasEnded = false
  #chunks = 0
  #sentBytes = 0

  constructor(req: IncomingMessage, wish: BodyWish, length: number, encoding: string) {
    this.#req = req
    this.#plain = decoded(req, encoding) as Readable
    this.#wish = wish
    this.#length = length
    this.#body = new ByteBuffer(length > 0 ? length : undefined)
    this.#untilMs = performance.now() + wish.limits.bodyMs
    this.#idle = deadline(wish.limits.bodyIdleMs, () => this.#fail(new GatewayError('request_timeout')))
    req.on('data', this.#onSent).on('close', this.#onClose)
    this.#plain.on('data', this.#onData).on('end', this.#onEnd)
    if (this.#plain !== req) this.#plain.on('error', this.#onFault)
  }

  /** Resolves with the body. */
  get bytes(): Promise<Buffer> {
    return this.#read.promise
  }

  /** What the client sends, with its encoding. */
  readonly #onSent = (chunk: Buffer): void => {
    this.#idle.refresh()
    this.#sentBytes += chunk.length
    if (areTooSmall(++this.#chunks, this.#sentBytes)) return this.#fail(chunksTooSmall())
    // An encoded body may never come to an end, although nothing comes out.
    if (this.#sentBytes > this.#wish.limit) this.#fail(tooLarge(this.#wish))
    else if (performance.now() > this.#untilMs) this.#fail(new GatewayError('request_timeout'))
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#isOver) return
    const { limit, reserve, owner } = this.#wish
    const bodyBytes = this.#body.push(chunk)
    if (bodyBytes > limit) return this.#fail(tooLarge(this.#wish))
    try {
      if (this.#length === 0) reserve(chunk.length)
    } catch (thrown) {
      return this.#fail(thrown)
    }
    const isShort = bodyBytes < LONG_BYTES || chunk.length < SHORT_BYTES
    if (isShort && !this.#isScheduled && this.#checkAll()) return
    this.#plain.pause()
    if (!this.#isScheduled) inTurn(this.#check, owner)
    this.#isScheduled = true
  }

  /** Returns whether all bytes so far have been checked. */
  #checkAll(): boolean {
    try {
      return this.#wish.watch(this.#body.all) !== false
    } catch (thrown) {
      this.#fail(thrown)
      return true
    }
  }

  /** Checks in turn with other long work, until all bytes have been checked. */
  readonly #check = (): void => {
    if (this.#isOver) return
    if (!this.#checkAll()) return inTurn(this.#check, this.#wish.owner)
    this.#isScheduled = false
    this.#goOn()
  }

  #goOn(): void {
    // The check may have failed.
    if (this.#isOver) return
    if (this.#hasEnded) this.#finish()
    else this.#plain.resume()
  }

  /** Node emits `end` even while the request is paused, after the last chunk. */
  readonly #onEnd = (): void => {
    this.#hasEnded = true
    if (!this.#isScheduled) this.#finish()
  }

  readonly #onClose = (): void => {
    if (!this.#hasEnded && !this.#req.readableEnded) this.#fail(connectionClosed())
  }

  readonly #onFault = (): void => {
    if (this.#isOver) return
    this.#fail(new GatewayError('bad_request', { message: 'The body is not what its content-encoding says.' }))
  }

  #finish(): void {
    if (this.#isOver) return
    this.#stop()
    this.#read.resolve(this.#body.take())
  }

  #fail(error: unknown): void {
    this.#stop()
    this.#req.pause()
    this.#read.reject(error)
  }

  #stop(): void {
    this.#isOver = true
    this.#idle.clear()
    this.#req.off('data', this.#onSent).off('close', this.#onClose)
    this.#plain.off('data', this.#onData).off('end', this.#onEnd)
    if (this.#plain !== this.#req) this.#plain.destroy()
  }
}

function tooLarge({ limit }: BodyWish): GatewayError {
  return new GatewayError('body_too_large', { message: `The request body is larger than ${limit} bytes.` })
}

function areTooSmall(chunks: number, bytes: number): boolean {
  return chunks > CHUNKS_MAX && bytes < chunks * CHUNK_BYTES_MIN
}

function chunksTooSmall(): GatewayError {
  return new GatewayError('bad_request', {
    message: `The chunks of the body are too small. Send chunks of at least ${CHUNK_BYTES_MIN} bytes.`,
  })
}

function connectionClosed(): GatewayError {
  return new GatewayError('bad_request', { message: 'The connection closed before the body was complete.' })
}

/** Whether a request announces a body. */
export function hasBody(req: IncomingMessage): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}

/** Reads and discards the rest of a body. @param bytes maximum bytes @param ms maximum milliseconds */
export function discarded(req: IncomingMessage, bytes: number, ms: number): Promise<void> {
  return new Promise(resolve => {
    let left = bytes
    let chunks = 0
    const timer = setTimeout(() => done(), ms)
    const onData = (chunk: Buffer): void => {
      left -= chunk.length
      if (left < 0 || areTooSmall(++chunks, bytes - left)) done()
    }
    const done = (): void => {
      clearTimeout(timer)
      req.off('data', onData).off('end', done).off('close', done)
      req.pause()
      resolve()
    }
    req.on('data', onData).on('end', done).on('close', done).resume()
  })
}
