/** Reads the body of a request within its limits. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Limits } from '../config/config.ts'
import { deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import { ByteBuffer } from '../lib/byte-buffer.ts'
import { inTurn, LONG_BYTES } from '../lib/turns.ts'

/** Number of chunks after which they must have `CHUNK_BYTES_MIN` bytes on average. */
const CHUNKS_MAX = 2000
/** Minimum average bytes of a chunk. A small chunk costs almost as much time as a large one. */
const CHUNK_BYTES_MIN = 64

/** Bytes of a chunk up to which it is checked as soon as it arrives. */
const SHORT_BYTES = 4096

/**
 * Reads the whole body.
 * @param limit most bytes
 * @param reserve takes memory: all of it at once if the client sent a content-length, otherwise for each chunk
 * @param watch called with all bytes so far when more arrive. If it returns false, it is called again. An exception ends
 * the reading
 * @param owner the owner that `inTurn` schedules the work for
 * @throws GatewayError unsupported_encoding, body_too_large, request_timeout; bad_request if the client breaks off;
 * what `reserve` throws
 */
export async function readBody(
  req: IncomingMessage,
  res: ServerResponse,
  limit: number,
  limits: Limits,
  reserve: (bytes: number) => void,
  watch: (all: Buffer) => boolean | void,
  owner: string,
): Promise<Buffer> {
  const encoding = req.headers['content-encoding']
  if (encoding !== undefined && encoding !== 'identity') throw new GatewayError('unsupported_encoding')
  const tooLarge = (): GatewayError =>
    new GatewayError('body_too_large', { message: `The request body is larger than ${limit} bytes.` })
  const length = Number(req.headers['content-length'] ?? 0)
  if (length > limit) throw tooLarge()
  // The client may have left while its key was looked up. Then no event would follow.
  if (req.destroyed) throw connectionClosed()
  if (length > 0) reserve(length)
  // A client that sent `expect` waits for this. A client that was refused before never sends its body.
  if (req.headers.expect !== undefined) res.writeContinue()
  return await new Promise((resolve, reject) => {
    const body = new ByteBuffer(length > 0 ? length : undefined)
    const end = performance.now() + limits.bodyMs
    const idle = deadline(limits.bodyIdleMs, () => fail(new GatewayError('request_timeout')))
    let over = false
    let isScheduled = false
    let ended = false
    let chunks = 0
    /** Whether all bytes so far have been checked. */
    const checkAll = (): boolean => {
      try {
        return watch(body.all) !== false
      } catch (thrown) {
        fail(thrown)
        return true
      }
    }
    /** Checks in turn with other long work, until all bytes have been checked. */
    const check = (): void => {
      if (over) return
      if (!checkAll()) return inTurn(check, owner)
      isScheduled = false
      if (ended) done()
      else if (!over) req.resume()
    }
    const onData = (chunk: Buffer): void => {
      idle.refresh()
      if (body.push(chunk) > limit) return fail(tooLarge())
      if (areTooSmall(++chunks, body.length)) return fail(chunksTooSmall())
      if (performance.now() > end) return fail(new GatewayError('request_timeout'))
      try {
        if (length === 0) reserve(chunk.length)
      } catch (thrown) {
        return fail(thrown)
      }
      if ((body.length < LONG_BYTES || chunk.length < SHORT_BYTES) && !isScheduled && checkAll()) return
      req.pause()
      if (!isScheduled) inTurn(check, owner)
      isScheduled = true
    }
    // Node emits `end` even while the request is paused, after the last chunk.
    const onEnd = (): void => {
      ended = true
      if (!isScheduled) done()
    }
    const done = (): void => {
      if (over) return
      stop()
      resolve(body.take())
    }
    const onClose = (): void => {
      if (!ended) fail(connectionClosed())
    }
    const stop = (): void => {
      over = true
      idle.clear()
      req.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    const fail = (error: unknown): void => {
      stop()
      req.pause()
      reject(error)
    }
    req.on('data', onData).on('end', onEnd).on('close', onClose)
  })
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
