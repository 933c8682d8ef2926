/** Reads the body of an upstream's answer to its end. */
import { GatewayError } from '../../errors.ts'
import type { Failure } from '../../exchange/exchange.ts'
import { Allowance, shortOfMemory } from '../../client/memory.ts'
import { failureFrom } from '../../formats/failures.ts'
import { ChunkList } from '../../lib/byte-buffer.ts'
import { deadline } from '../../lib/deadline.ts'
import { FailedAttempt, type Relayed, tooLarge } from './endings.ts'
import { goOnInTurn } from '../connection/reply-body.ts'
import type { UpstreamReply } from '../connection/send.ts'

/** A reply above this size, in bytes, is refused as too large when memory runs out. */
const LARGE_BYTES = 8 * 1024 * 1024
/** Most bytes that are read of an answer that is an error. */
const ERROR_BYTES_MAX = 256 * 1024

/**
 * Reads a body to its end.
 * @param bytesMax bytes that the body may have
 * @param memory what the body takes; the caller gives it back
 * @returns undefined if the client left, or the gateway ended the exchange
 * @throws FailedAttempt if the upstream broke off, or the body is too large; GatewayError unavailable if there is no memory
 * for the body
 */
export function collect(
  { x, body, patience }: Relayed,
  bytesMax: number,
  memory: Allowance,
): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks = new ChunkList()
    const endMs = performance.now() + patience.totalMs
    const brokeOff = (code: 'upstream_timeout' | 'upstream_failed', reason: string): void =>
      fail(new FailedAttempt('timeout', new GatewayError(code, { cause: new Error(reason) })))
    const timedOut = (): void => brokeOff('upstream_timeout', 'upstream stopped sending in the middle of a reply')
    const idle = deadline(patience.idleMs, timedOut)
    const done = (): void => {
      idle.clear()
      forget()
      body.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    const fail = (error: FailedAttempt | GatewayError): void => {
      done()
      reject(error)
    }
    const left = (): void => {
      done()
      resolve(undefined)
    }
    const onData = (chunk: Buffer): void => {
      idle.refresh()
      if (performance.now() > endMs) return timedOut()
      const length = chunks.push(chunk)
      if (!memory.cover(chunk))
        return fail(length > LARGE_BYTES ? tooLarge(`no memory for a reply of ${length} bytes`) : shortOfMemory())
      if (length > bytesMax) return fail(tooLarge(`reply over ${bytesMax} bytes`))
      goOnInTurn(body, { length, added: chunk.length }, x.owner, () => true)
    }
    const onEnd = (): void => {
      done()
      resolve(chunks.take())
    }
    const onClose = (): void => brokeOff('upstream_failed', 'upstream closed the connection in the middle of a reply')
    const forget = x.whenOver(left)
    if (x.over) return left()
    body.on('data', onData).on('end', onEnd).on('close', onClose)
    if (body.destroyed) onClose()
  })
}

/** Statuses that say enough: what their body says decides nothing. */
function saysEnough(status: number): boolean {
  return status === 401 || status === 402 || status === 408 || status >= 500
}

/** Longest wait for the body of a failure, in milliseconds. */
const FAILURE_BODY_MS_MAX = 1000
/** Time to read a body that has arrived with its head, in milliseconds. */
const ARRIVED_BODY_MS = 1

/**
 * Reads what an upstream says about its failure. An answer that cannot be read is a failure without a message. If another
 * account can be asked, it does not wait for a body that decides nothing.
 */
export async function readFailure(relayed: Relayed, status: number): Promise<Failure> {
  const memory = new Allowance(relayed.x.memory)
  try {
    const { x } = relayed
    const isClear = saysEnough(status) && x.route.upstream.failures.length === 0
    const waitMs = isClear && x.route.more ? ARRIVED_BODY_MS : Math.min(relayed.patience.idleMs, FAILURE_BODY_MS_MAX)
    const patience = { idleMs: waitMs, totalMs: waitMs }
    const bytes = await collect({ ...relayed, patience }, ERROR_BYTES_MAX, memory)
    return failureFrom(bytes ? utf8Of(bytes) : '')
  } catch {
    // The status alone says enough.
    return { message: '' }
  } finally {
    memory.clear()
  }
}

/**
 * Lets a reply end when its client has all of it, so that its connection can be used again.
 * @param ms how long that may take
 */
export function drainRemainder(reply: UpstreamReply, ms: number): void {
  const { body } = reply
  if (body.readableEnded || body.destroyed) return
  const late = deadline(ms, () => reply.abort())
  body.on('close', () => late.clear())
  body.resume()
}

/** The UTF-8 text of bytes, without a byte order mark. */
export function utf8Of(bytes: Buffer): string {
  return withoutByteOrderMark(bytes).toString('utf8')
}

/** Bytes without the byte order mark that they may begin with. */
export function withoutByteOrderMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes
}
