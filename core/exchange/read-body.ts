/** Reads the body of a request within its limits. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Limits } from '../config/config.ts'
import { deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import { ByteBuffer } from '../lib/byte-buffer.ts'
import { inTurn, LONG_BYTES } from '../lib/turns.ts'

/** Chunks of a body before they must have this many bytes on average. A chunk costs as much time as many bytes. */
const CHUNKS_MAX = 2000
const CHUNK_BYTES_MIN = 64

/** Bytes of a chunk up to which it is checked as soon as it arrives. */
const SHORT_BYTES = 4096

/**
 * Reads the whole body.
 * @param limit most bytes
 * @param reserve takes memory: once for all bytes if the client announces their number
 * @param watch is called with all bytes so far whenever more have arrived, and again as long as it returns false. What
 * it throws ends the reading
 * @param owner whose work it is, as in `inTurn`
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
  if (req.destroyed) throw brokenOff()
  if (length > 0) reserve(length)
  // A client that sent `expect` waits for this. If its request was refused before, it never sends its body.
  if (req.headers.expect !== undefined) res.writeContinue()
  return await new Promise((resolve, reject) => {
    const body = new ByteBuffer(length > 0 ? length : undefined)
    const end = performance.now() + limits.bodyMs
    const idle = deadline(limits.bodyIdleMs, () => fail(new GatewayError('request_timeout')))
    let over = false
    let looking = false
    let ended = false
    let chunks = 0
    /** Whether all bytes so far have been checked. */
    const seen = (): boolean => {
      try {
        return watch(body.all) !== false
      } catch (thrown) {
        fail(thrown)
        return true
      }
    }
    /** Checks in turn with other long work, until all bytes have been checked. */
    const look = (): void => {
      if (over) return
      if (!seen()) return inTurn(look, owner)
      looking = false
      if (ended) done()
      else if (!over) req.resume()
    }
    const onData = (chunk: Buffer): void => {
      idle.refresh()
      if (body.push(chunk) > limit) return fail(tooLarge())
      if (++chunks > CHUNKS_MAX && body.length < chunks * CHUNK_BYTES_MIN) return fail(crumbled())
      if (performance.now() > end) return fail(new GatewayError('request_timeout'))
      try {
        if (length === 0) reserve(chunk.length)
      } catch (thrown) {
        return fail(thrown)
      }
      if ((body.length < LONG_BYTES || chunk.length < SHORT_BYTES) && !looking && seen()) return
      req.pause()
      if (!looking) inTurn(look, owner)
      looking = true
    }
    // Node emits `end` even while the request is paused, after the last chunk.
    const onEnd = (): void => {
      ended = true
      if (!looking) done()
    }
    const done = (): void => {
      if (over) return
      stop()
      resolve(body.take())
    }
    const onClose = (): void => {
      if (!ended) fail(brokenOff())
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

function crumbled(): GatewayError {
  return new GatewayError('bad_request', {
    message: `The body arrives in chunks of less than ${CHUNK_BYTES_MIN} bytes.`,
  })
}

function brokenOff(): GatewayError {
  return new GatewayError('bad_request', { message: 'The connection closed before the body was complete.' })
}

/** Whether a request announces a body. */
export function hasBody(req: IncomingMessage): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}

/** Reads and discards the rest of a body. @param bytes most bytes @param ms most milliseconds */
export function discarded(req: IncomingMessage, bytes: number, ms: number): Promise<void> {
  return new Promise(resolve => {
    let left = bytes
    let chunks = 0
    const timer = setTimeout(() => done(), ms)
    const onData = (chunk: Buffer): void => {
      left -= chunk.length
      if (left < 0 || (++chunks > CHUNKS_MAX && bytes - left < chunks * CHUNK_BYTES_MIN)) done()
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
