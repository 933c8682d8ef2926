/**
 * Brings an upstream's reply to the client: bytes through, events seen. Events go out whole, so a stream that breaks can
 * always be ended in the format's own words. Nothing is sent before the first event, or the whole JSON reply, is known
 * not to be a failure: until then the client can still be given an honest status.
 */
import type { Readable } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib'
import type { Up } from '../chain.ts'
import { GatewayError } from '../errors.ts'
import type { Attempt, Head, Outcome, StopReason } from '../exchange.ts'
import { ReplyEvent, type Failure } from '../formats/index.ts'
import type { LiveExchange } from '../live.ts'
import { downwardHeaders } from './headers.ts'
import { firstEvent, lastBoundary, rewrite, Scanner, textBytes } from './scanner.ts'
import type { UpstreamReply } from './send.ts'

/** Time limits of the upstream, in milliseconds. */
export interface Patience {
  readonly idle: number
  readonly total: number
}

/** Most bytes that are read of an answer that is an error. */
const ERROR_BYTES = 256 * 1024

/**
 * Relays a reply to its end.
 * @throws GatewayError while nothing has gone to the client: the upstream failed, or a stage replaced the reply
 */
export async function relay(x: LiveExchange, up: Up, reply: UpstreamReply, attempt: Attempt, patience: Patience): Promise<Outcome> {
  const type = (reply.headers['content-type'] ?? '').toLowerCase()
  const body = decoded(reply)
  const make = (failure?: Failure): Head => ({
    status: reply.status,
    headers: reply.headers,
    stream: type.startsWith('text/event-stream'),
    failure,
    reply: downwardHeaders(reply.headers),
    attempt,
  })
  try {
    if (reply.status !== 200) return refuse(up, make(await readFailure(x, body, patience)))
    if (type.startsWith('text/event-stream')) return await new StreamRelay(x, up, body, make, patience).run()
    if (/^application\/(?:[\w.+-]+\+)?json\b/.test(type)) return await relayWhole(x, up, body, make, patience)
    return refuse(up, make({ message: `content-type ${type || 'missing'} under status 200` }))
  } finally {
    if (!body.readableEnded) reply.abort()
  }
}

/** A failed answer is given to the stages; if none makes an error of it, it is a plain failure. */
function refuse(up: Up, head: Head): never {
  up.response(head)
  throw new GatewayError('upstream_failed', { cause: new Error(`upstream status ${head.status}: ${head.failure?.message ?? ''}`) })
}

const DECODERS: Readonly<Record<string, () => NodeJS.ReadWriteStream>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress,
}

/** The body as it is without its content encoding; identity was asked for, but some upstreams compress all the same. */
function decoded(reply: UpstreamReply): Readable {
  const encoding = (reply.headers['content-encoding'] ?? 'identity').toLowerCase()
  if (encoding === 'identity') return reply.body
  const decoder = DECODERS[encoding]
  if (!decoder) {
    reply.abort()
    throw new GatewayError('upstream_failed', { cause: new Error(`content-encoding ${encoding}`) })
  }
  const plain = decoder() as unknown as Readable & NodeJS.WritableStream
  reply.body.on('close', () => {
    if (!reply.body.readableEnded) plain.destroy(new Error('upstream broke off'))
  })
  plain.on('error', () => reply.abort())
  return reply.body.pipe(plain)
}

/** Reads a body to its end. @throws GatewayError upstream_failed, upstream_timeout; undefined result: the client left */
function collect(x: LiveExchange, body: Readable, limit: number, patience: Patience): Promise<Buffer | undefined> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let length = 0
    const timedOut = (): void => fail(new GatewayError('upstream_timeout', { cause: new Error('upstream went silent in a reply') }))
    const idle = setTimeout(timedOut, patience.idle)
    const done = (): void => {
      clearTimeout(idle)
      forget()
      body.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    const fail = (error: GatewayError): void => {
      done()
      reject(error)
    }
    const left = (): void => {
      done()
      resolve(undefined)
    }
    const onData = (chunk: Buffer): void => {
      idle.refresh()
      length += chunk.length
      if (length > limit) return fail(new GatewayError('upstream_failed', { cause: new Error(`reply over ${limit} bytes`) }))
      chunks.push(chunk)
    }
    const onEnd = (): void => {
      done()
      resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, length))
    }
    const onClose = (): void => fail(new GatewayError('upstream_failed', { cause: new Error('upstream broke off in a reply') }))
    const forget = x.whenGone(left)
    if (x.gone) return left()
    body.on('data', onData).on('end', onEnd).on('close', onClose)
    if (body.destroyed) onClose()
  })
}

async function readFailure(x: LiveExchange, body: Readable, patience: Patience): Promise<Failure> {
  try {
    const bytes = await collect(x, body, ERROR_BYTES, patience)
    const json: unknown = JSON.parse(bytes?.toString('utf8') ?? '')
    return x.format.read(json).failure ?? { message: '' }
  } catch {
    // Whatever the body was, the status alone says enough.
    return { message: '' }
  }
}

async function relayWhole(x: LiveExchange, up: Up, body: Readable, make: (failure?: Failure) => Head, patience: Patience): Promise<Outcome> {
  const bytes = await collect(x, body, x.limits.reply, patience)
  if (!bytes) return left(x)
  const event = new ReplyEvent(x.format, '', bytes.toString('utf8'))
  const { failure } = event.reading
  if (failure) return refuse(up, make(failure))
  if (event.json === undefined) return refuse(up, make({ message: 'reply is no JSON' }))
  const head = make()
  up.response(head)
  x.delivered = textBytes(bytes.toString('latin1'), x.format.text.reply)
  up.event(event)
  const instead = rewrite(x.format, event, up.rewriters(head))
  const out = instead ? Buffer.from(instead.map(({ data }) => data).join('')) : bytes
  const closed = x.closed()
  x.begin(head.status, { ...head.reply, 'content-length': out.length })
  x.res.end(out)
  await closed
  return x.gone ? left(x) : { kind: 'relayed', status: head.status, attempts: x.attempts }
}

function left(x: LiveExchange): Outcome {
  return { kind: 'broken', by: 'client', status: x.res.headersSent ? x.res.statusCode : 0, attempts: x.attempts }
}

const NOTHING = Buffer.alloc(0)

/** How a running stream ends. */
type End = 'complete' | 'client' | 'upstream' | 'timeout' | StopReason

class StreamRelay {
  readonly #x: LiveExchange
  readonly #up: Up
  readonly #body: Readable
  readonly #make: (failure?: Failure) => Head
  readonly #patience: Patience
  #timer: NodeJS.Timeout | undefined
  #stuck: NodeJS.Timeout | undefined
  #scanner: Scanner | undefined
  #rewriting = false
  #pending: Buffer[] = []
  /** The beginning of an event whose end has not come yet. */
  #rest: Buffer[] = []
  #opening: ReplyEvent | undefined
  #recent: Buffer | undefined
  #scheduled = false
  #forget: () => void = () => {}
  #finish: (end: End) => void = () => {}
  #fail: (error: unknown) => void = () => {}

  constructor(x: LiveExchange, up: Up, body: Readable, make: (failure?: Failure) => Head, patience: Patience) {
    this.#x = x
    this.#up = up
    this.#body = body
    this.#make = make
    this.#patience = patience
  }

  async run(): Promise<Outcome> {
    const x = this.#x
    const end = await new Promise<End>((resolve, reject) => {
      this.#finish = resolve
      this.#fail = reject
      if (x.gone) return resolve('client')
      this.#listen()
    }).finally(() => this.#stop())
    return this.#close(end)
  }

  #listen(): void {
    const { idle, total } = this.#patience
    const { keepalive } = this.#x.limits
    const started = performance.now()
    let heard = started
    // One timer a stream: it fires after each silence and looks what the silence means.
    const timer = setTimeout(
      () => {
        const now = performance.now()
        if (now - heard >= idle || now - started >= total) return this.#finish(this.#scanner?.complete ? 'complete' : 'timeout')
        // Between events, as whole events are all that ever goes out.
        if (this.#x.res.headersSent) this.#x.res.write(': keepalive\n\n')
        timer.refresh()
      },
      Math.min(keepalive, idle, total),
    )
    this.#timer = timer
    this.#forget = this.#x.whenGone(() => this.#finish('client'))
    this.#x.stopper = reason => this.#finish(reason)
    this.#body.on('data', (chunk: Buffer) => {
      heard = performance.now()
      if (heard - started >= total) return this.#finish('timeout')
      timer.refresh()
      this.#pending.push(chunk)
      // What came in one turn goes out in one write.
      if (!this.#scheduled) {
        this.#scheduled = true
        process.nextTick(this.#flush)
      }
    })
    this.#body.on('end', () => {
      this.#flush()
      this.#finish(this.#scanner?.complete ? 'complete' : 'upstream')
    })
    this.#body.on('close', () => {
      this.#flush()
      this.#finish('upstream')
    })
    if (this.#body.destroyed) this.#finish('upstream')
  }

  #stop(): void {
    clearTimeout(this.#timer)
    clearTimeout(this.#stuck)
    this.#x.stopper = undefined
    this.#forget()
    this.#body.removeAllListeners('data')
  }

  readonly #flush = (): void => {
    this.#scheduled = false
    const ended = this.#body.readableEnded
    if (this.#pending.length === 0 && !(ended && this.#rest.length > 0)) return
    try {
      this.#pass(this.#takeWhole(ended))
    } catch (error) {
      if (!this.#x.res.headersSent) return this.#fail(error)
      this.#up.log.error({ exchange: this.#x.id, err: error }, 'stream broken off')
      this.#finish('upstream')
    }
  }

  /** The bytes up to the last event's end; what is left waits for its own, which the end of the stream is, too. */
  #takeWhole(ended: boolean): Buffer {
    const all = [...this.#rest, ...this.#pending]
    this.#rest = all
    // Where no line ends no event does, and bytes need not be put together again and again.
    const possible = ended || this.#pending.some(chunk => chunk.includes(0x0a) || chunk.includes(0x0d))
    this.#pending = []
    if (possible) {
      const bytes = all.length === 1 ? (all[0] as Buffer) : Buffer.concat(all)
      const cut = ended ? bytes.length : lastBoundary(bytes)
      this.#rest = cut < bytes.length ? [bytes.subarray(cut)] : []
      if (cut > 0) return bytes.subarray(0, cut)
    }
    if (this.#rest.reduce((sum, chunk) => sum + chunk.length, 0) > this.#x.limits.reply) {
      throw new GatewayError('upstream_failed', { cause: new Error('an event larger than limits.reply') })
    }
    return NOTHING
  }

  #pass(bytes: Buffer): void {
    if (bytes.length === 0) return
    const scanner = (this.#scanner ??= this.#begin(bytes))
    this.#recent = bytes
    if (this.#rewriting) this.#write(scanner.push(bytes))
    else {
      // The bytes go out before they are looked at.
      this.#write(bytes)
      scanner.push(bytes)
    }
    this.#x.delivered = scanner.delivered
  }

  /** The first event decides whether there is a reply at all. */
  #begin(bytes: Buffer): Scanner {
    const x = this.#x
    this.#opening = firstEvent(x.format, bytes)
    const failure = this.#opening?.reading.failure
    if (failure) refuse(this.#up, this.#make(failure))
    const head = this.#make()
    this.#up.response(head)
    const rewriters = this.#up.rewriters(head)
    this.#rewriting = rewriters.length > 0
    x.begin(head.status, { ...head.reply, 'x-accel-buffering': 'no' })
    const { telling, all } = this.#up.listeners()
    return new Scanner(x.format, { all, rewriters, onEvent: event => telling && this.#up.event(event) })
  }

  #write(bytes: Buffer): void {
    const { res, limits } = this.#x
    if (bytes.length === 0 || res.write(bytes) || res.destroyed) return
    // A slow reader holds the upstream back; one that reads nothing at all is cut.
    this.#body.pause()
    this.#stuck = setTimeout(() => res.destroy(), limits.writeIdle)
    res.once('drain', () => {
      clearTimeout(this.#stuck)
      this.#body.resume()
    })
  }

  async #close(end: End): Promise<Outcome> {
    const x = this.#x
    if (end === 'client') return left(x)
    if (!x.res.headersSent) {
      const code = end === 'timeout' ? 'upstream_timeout' : end === 'drain' ? 'unavailable' : 'upstream_failed'
      throw new GatewayError(code, { cause: new Error(`stream ended before its first event: ${end}`) })
    }
    const closed = x.closed()
    x.res.end(end === 'complete' ? undefined : x.format.tail(endError(end), x.id, { opening: this.#opening, recent: this.#recent }))
    await closed
    const status = x.res.statusCode
    const { attempts } = x
    if (end === 'complete') return x.gone ? left(x) : { kind: 'relayed', status, attempts }
    return { kind: 'broken', by: end === 'timeout' ? 'upstream' : end, status, attempts }
  }
}

function endError(end: Exclude<End, 'complete' | 'client'>): GatewayError {
  if (end === 'timeout') return new GatewayError('upstream_timeout')
  if (end === 'drain') return new GatewayError('unavailable', { message: 'The gateway is restarting. Try again.' })
  return new GatewayError('upstream_failed', { message: 'The provider broke off in the middle of the reply.' })
}
