/** An exchange over a real socket: what the core does with it that stages do not see. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Body } from './body.ts'
import { readBody } from './read.ts'
import { GatewayError, type Reply } from './errors.ts'
import type { Attempt, Exchange, Fact, Facts, Key, Model, Outcome, Route, StopReason } from './exchange.ts'
import { formatAbove, formatOf, PLAIN, type Format } from './formats/index.ts'
import type { Limits } from './config/config.ts'
import { NO_USAGE, type Usage } from './ledger/money.ts'
import { NOTHING } from './pieces.ts'
import type { Plugin } from './plugin.ts'
import type { Seated } from './roster.ts'

/** What an exchange needs of its surroundings. */
export interface Surroundings {
  readonly id: string
  /** Milliseconds since the epoch. */
  readonly now: () => number
  readonly limits: Limits
}

/** Why an exchange ends before its reply does. */
export type Why = 'client' | 'drain' | { readonly budget: Usage }

export class LiveExchange implements Exchange, Seated {
  seat = -1
  readonly id: string
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly format: Format
  readonly inference: boolean
  readonly startedAt: number
  readonly limits: Limits
  firstByteAfter: number | undefined = undefined
  delivered = 0
  complete = false
  declare readonly key: Key
  declare readonly body: Body
  declare readonly model: Model
  declare readonly route: Route
  /** Every try at an upstream so far. */
  readonly attempts: Attempt[] = []
  /** There is a reply, even if none of it has gone out. */
  begun = false
  /** The gateway gave the exchange up before its reply began. */
  stopped = false
  /** The client is being waited for. */
  reading = false
  /** Asked when the client leaves: reads its reply on without it until the callback is called, and returns what to call at its end. */
  outlive: ((over: () => void) => (() => void) | undefined) | undefined = undefined
  /** To be called when a reply that outlived its client has ended. */
  ended: (() => void) | undefined = undefined
  /** Nobody waits for the reply any more. */
  over = false
  readonly #now: () => number
  readonly #req: IncomingMessage
  readonly res: ServerResponse
  readonly #rawQuery: string
  #query: URLSearchParams | undefined
  /** The reply's headers, until they go out. */
  #head: Readonly<Record<string, string>> | undefined
  #signal: AbortSignal | undefined
  #gone = false
  #closed: (() => void) | undefined
  readonly #whenOver = new Set<(why: Why) => void>()

  constructor(req: IncomingMessage, res: ServerResponse, surroundings: Surroundings) {
    const url = req.url ?? '/'
    const mark = url.indexOf('?')
    this.id = surroundings.id
    this.startedAt = surroundings.now()
    this.#now = surroundings.now
    this.limits = surroundings.limits
    this.method = req.method ?? 'GET'
    this.path = mark === -1 ? url : url.slice(0, mark)
    this.#rawQuery = mark === -1 ? '' : url.slice(mark + 1)
    this.headers = req.headers
    const format = formatOf(this.path)
    this.format = format ?? formatAbove(this.path) ?? PLAIN
    this.inference = format !== undefined && this.method === 'POST'
    this.#req = req
    this.res = res
    res.on('close', () => {
      this.#closed?.()
      if (res.writableFinished) return
      this.#gone = true
      this.ended = this.outlive?.(() => this.#leave('client'))
      if (!this.ended) this.#leave('client')
    })
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.#rawQuery))
  }

  get address(): string {
    return this.#req.socket.remoteAddress ?? ''
  }

  get signal(): AbortSignal {
    if (!this.#signal) {
      const controller = new AbortController()
      this.#signal = controller.signal
      if (this.over) controller.abort()
      else this.whenOver(() => controller.abort())
    }
    return this.#signal
  }

  /** Calls back when the client leaves early or the gateway stops the exchange; returns what takes the wish back. */
  whenOver(callback: (why: Why) => void): () => void {
    this.#whenOver.add(callback)
    return () => this.#whenOver.delete(callback)
  }

  /** The client has gone before its reply was complete. */
  get gone(): boolean {
    return this.#gone
  }

  async read(limit: number): Promise<Buffer> {
    this.reading = true
    try {
      return await readBody(this.#req, this.res, limit, this.limits)
    } finally {
      this.reading = false
    }
  }

  stop(reason: StopReason, usage: Usage = NO_USAGE): void {
    if (!this.begun) this.stopped = true
    this.#leave(reason === 'drain' ? reason : { budget: usage })
  }

  #leave(why: Why): void {
    this.over = true
    for (const callback of this.#whenOver) callback(why)
  }

  /** Facts a stage has given become members, each once. */
  learn(given: object, plugin: Plugin): void {
    const facts = given as Partial<Facts>
    for (const fact of Object.keys(facts) as Fact[]) {
      if (!plugin.gives.includes(fact)) throw new TypeError(`stage ${plugin.name} gave undeclared "${fact}"`)
      ;(this as Partial<Record<Fact, unknown>>)[fact] = facts[fact]
    }
  }

  /** Begins the reply. Its head goes out with the first of its bytes; where these are all there are, with their length. */
  begin(status: number, headers: Readonly<Record<string, string>>): void {
    if (!this.#gone) this.firstByteAfter = this.#now() - this.startedAt
    this.begun = true
    this.res.statusCode = status
    this.#head = headers
  }

  /** @returns false where the client has enough for now */
  write(bytes: Buffer): boolean {
    this.sendHead()
    return this.res.write(bytes)
  }

  /** @param length of all that follows, in bytes, where it is known */
  sendHead(length?: number): void {
    if (!this.#head) return
    const known = length !== undefined && { 'content-length': length }
    this.res.writeHead(this.res.statusCode, { 'x-request-id': this.id, 'request-id': this.id, ...this.#head, ...known, ...this.#closing() })
    this.#head = undefined
  }

  /** Sends a stage's reply whole. */
  async answer(reply: Reply): Promise<Outcome> {
    const body = typeof reply.body === 'string' ? Buffer.from(reply.body) : reply.body
    await this.#sendWhole(reply.status, reply.headers, body)
    return this.#gone ? { kind: 'broken', by: 'client', status: reply.status, attempts: this.attempts } : { kind: 'answered', status: reply.status }
  }

  /** Sends an error in the exchange's format, in place of a reply of which nothing has gone out. */
  async fail(error: GatewayError): Promise<Outcome> {
    if (this.#gone) {
      // Nobody is there to be told; the failure came first all the same.
    } else if (this.res.headersSent) {
      // Whoever began the reply was to end it; an error that comes here is a defect, and only the socket can tell of it.
      this.res.destroy()
    } else {
      // What there was of a reply has not reached its client, and is not to be paid for.
      this.delivered = 0
      const body = Buffer.from(JSON.stringify(this.format.error(error, this.id)))
      await this.#sendWhole(this.format.status(error), errorHeaders(error), body)
    }
    return { kind: 'failed', error, attempts: this.attempts }
  }

  /**
   * Ends the reply; resolves when its last byte has been handed to the system, or the client has gone. A client that
   * takes none of it for `limits.writeIdle` is cut.
   */
  async end(last: Buffer = NOTHING): Promise<void> {
    const { res } = this
    const joined = this.#head !== undefined && last.length <= JOINED_MAX
    this.sendHead(last.length)
    const closed = new Promise<void>(resolve => {
      if (res.destroyed) resolve()
      // It closes right after its last byte has gone, also where its connection stays.
      else this.#closed = resolve
    })
    if (last.length === 0) res.end()
    // Node sends a text as one with the head, and bytes beside it, which costs more than to copy a few.
    else if (joined) res.end(last.toString('latin1'), 'latin1')
    else res.end(last)
    const stop = this.watchReader()
    await closed
    stop()
  }

  /** Cuts a client that takes nothing of what waits for it for `limits.writeIdle`. @returns what ends the watch */
  watchReader(): () => void {
    const { socket } = this.res
    if (!socket || socket.writableLength === 0) return () => {}
    let taken = socket.bytesWritten - socket.writableLength
    const watch = setInterval(() => {
      const now = socket.bytesWritten - socket.writableLength
      if (now === taken) this.res.destroy()
      taken = now
    }, this.limits.writeIdle)
    return () => clearInterval(watch)
  }

  async #sendWhole(status: number, headers: Readonly<Record<string, string>>, body: Buffer): Promise<void> {
    this.begin(status, headers)
    if (this.#req.complete || !hasBody(this.#req)) return this.end(body)
    // The answer is out before the request was read: let the client see it before the connection goes.
    this.sendHead(body.length)
    this.write(body)
    await lingered(this.#req)
    return this.end()
  }

  /** After an unread body the connection cannot be used again: what follows on it would be read as a request. */
  #closing(): Record<string, string> {
    return !this.#req.complete && hasBody(this.#req) ? { connection: 'close' } : {}
  }
}

function hasBody(req: IncomingMessage): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}

/** Bytes of a body that is sent as one with its head. */
const JOINED_MAX = 16 * 1024

/** Longest time, in milliseconds, for which the rest of an unwanted body is thrown away. */
const LINGER_MS = 1000

/** Throws the rest of an unwanted body away, for a while. */
function lingered(req: IncomingMessage): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, LINGER_MS)
    const done = (): void => {
      clearTimeout(timer)
      resolve()
    }
    req.resume()
    req.once('end', done)
    req.once('close', done)
  })
}

function errorHeaders(error: GatewayError): Record<string, string> {
  const headers: Record<string, string> = { 'content-type': 'application/json; charset=utf-8', ...error.details.headers }
  if (!error.retry) headers['x-should-retry'] = 'false'
  const after = error.details.retryAfterMs
  if (error.retry && after !== undefined) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(after / 1000)))
    headers['retry-after-ms'] = String(Math.ceil(after))
  }
  return headers
}
