/** An exchange over a real socket: what the core does with it that stages do not see. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Body } from '../formats/body.ts'
import { discarded, hasBody, readBody } from './read-body.ts'
import { errorHeaders, GatewayError, Reply, soonMs } from '../errors.ts'
import type { Attempt, Exchange, Fact, Facts, Key, Model, Outcome, Route, StopReason } from './exchange.ts'
import { formatAbove, formatOf, PLAIN, type Format } from '../formats/index.ts'
import { groupOf } from '../lib/addresses.ts'
import { type AbandonedReply, endReasonOf, type EndCause } from './abandoned-reply.ts'
import type { Limits } from '../config/config.ts'
import { beyondMemory, BODY_COPIES, FOR_REQUESTS, OWN_BODY_BYTES, shortOfMemory } from './memory.ts'
import { Share, type Shares, type Taker } from '../lib/shares.ts'
import { NO_USAGE, type Usage } from '../money/usage.ts'
import { UpstreamClock } from './upstream-clock.ts'
import { type ReplyRecipient, ClientReply } from './client-reply.ts'
import { JoinedReply, Outlet, type ReplyOwner } from './outlet.ts'
import type { Indexed } from '../lib/swap-list.ts'

/** What an exchange needs of its surroundings. */
export interface Surroundings {
  readonly id: string
  /** Milliseconds since the epoch. */
  readonly now: () => number
  readonly limits: Limits
  /** Counts the bodies of the process that are thrown away unread. */
  readonly unread: Unread
  /** What its connection's address counts as; undefined for a trusted proxy's, which speaks for others. */
  readonly addressGroup: string | undefined
  readonly memory: Shares
  /** For the requests with a body that are served at the same time. */
  readonly places: Shares
}

/** Request bodies that are thrown away at this moment, as their requests have been answered without them. */
export interface Unread {
  bodies: number
}

export class HttpExchange implements Exchange, Indexed, ReplyRecipient, ReplyOwner {
  index = -1
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
  declare readonly extras?: Facts['extras']
  /** Every try at an upstream so far. */
  readonly attempts: Attempt[] = []
  /** There is a reply, even if none of it has gone out. */
  begun = false
  /** Why the gateway gave the exchange up before its reply began, where it did. */
  stopped: EndCause | undefined = undefined
  /** The client is being waited for. */
  reading = false
  /** Decides whether the reply is read on when nobody listens any more; without one it is not. */
  abandonedReply: AbandonedReply | undefined = undefined
  /** Nobody waits for the reply any more, and its upstream is to be closed. */
  over = false
  /** When the upstream was at work. */
  readonly upstreamClock = new UpstreamClock()
  /** The last event that there is has gone to a client. */
  lastEventSent = false
  /** Nothing is read from the upstream for now, as its bytes are not taken fast enough. */
  heldBack = false
  /** The usage of the whole reply has come. */
  usageIsFinal = false
  /** The events of a stream that came last. */
  recent: Buffer | undefined = undefined
  /** Where the reply goes. */
  readonly outlet: Outlet
  readonly #req: IncomingMessage
  /** This exchange's own client. */
  readonly #reply: ClientReply
  readonly #rawQuery: string
  #address: string | undefined
  #addressGroup: string | undefined
  #query: URLSearchParams | undefined
  #signal: AbortSignal | undefined
  readonly #surroundings: Surroundings
  #memory: Share | undefined
  #place: Taker | undefined
  #whenClosed: Set<() => void> | undefined
  readonly #whenOver = new Set<(why: EndCause) => void>()

  constructor(req: IncomingMessage, res: ServerResponse, surroundings: Surroundings) {
    const url = req.url ?? '/'
    const mark = url.indexOf('?')
    this.id = surroundings.id
    this.startedAt = surroundings.now()
    this.limits = surroundings.limits
    this.#surroundings = surroundings
    this.#addressGroup = surroundings.addressGroup
    this.method = req.method ?? 'GET'
    this.path = mark === -1 ? url : url.slice(0, mark)
    this.#rawQuery = mark === -1 ? '' : url.slice(mark + 1)
    this.headers = req.headers
    const format = formatOf(this.path)
    this.format = format ?? formatAbove(this.path) ?? PLAIN
    this.inference = format !== undefined && this.method === 'POST'
    this.#req = req
    this.#reply = new ClientReply(res, this)
    this.outlet = new Outlet(this.#reply, this)
  }

  allClientsLeft(): void {
    if (this.abandonedReply) this.abandonedReply.left()
    else this.#leave('client')
  }

  clientJoined(): void {
    if (this.begun) this.firstByteAfter ??= this.#surroundings.now() - this.startedAt
    this.abandonedReply?.joined()
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.#rawQuery))
  }

  get address(): string {
    return (this.#address ??= this.limits.trustedProxies.clientOf(this.#req))
  }

  /** What counts as one address where addresses have limits. */
  get addressGroup(): string {
    return (this.#addressGroup ??= groupOf(this.address))
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
  whenOver(callback: (why: EndCause) => void): () => void {
    this.#whenOver.add(callback)
    return () => this.#whenOver.delete(callback)
  }

  get gone(): boolean {
    return this.outlet.empty
  }

  get silentMs(): number {
    return this.upstreamClock.silentMs
  }

  get elapsedMs(): number {
    return this.upstreamClock.elapsedMs
  }

  get encryptedBytes(): number {
    return this.upstreamClock.encryptedBytes
  }

  /** The request goes out to the upstream. */
  sent(): void {
    this.upstreamClock.start()
  }

  async read(limit: number, watch?: (bytes: Buffer) => boolean | void): Promise<Buffer> {
    this.#takePlace()
    this.reading = true
    try {
      let own = OWN_BODY_BYTES
      const reserve = (bytes: number): void => {
        own -= bytes
        if (own < 0) this.reserve(Math.min(bytes, -own) * BODY_COPIES)
      }
      return await readBody(this.#req, this.#reply.res, limit, this.limits, reserve, all => watch?.(all), this.owner)
    } finally {
      this.reading = false
    }
  }

  reserve(bytes: number): void {
    if (this.memory.take(bytes, FOR_REQUESTS)) return
    const [needs, most] = [this.memory.amount + bytes, this.#surroundings.memory.most(FOR_REQUESTS)]
    throw needs > most ? beyondMemory(needs, most) : shortOfMemory()
  }

  /** Whose long work this exchange's is. */
  get owner(): string {
    return this.key?.id ?? this.addressGroup
  }

  whenClosed(callback: () => void): () => void {
    const callbacks = (this.#whenClosed ??= new Set())
    callbacks.add(callback)
    return () => void callbacks.delete(callback)
  }

  release(bytes: number): void {
    this.memory.give(bytes)
  }

  /** What the exchange has taken of the memory there is. */
  get memory(): Share {
    return (this.#memory ??= new Share(this.#surroundings.memory, this.#taker))
  }

  get #taker(): Taker {
    return { key: this.key?.id, address: this.addressGroup }
  }

  /** Takes a place among the requests that are served. @throws GatewayError rate_limited where its key has too many */
  #takePlace(): void {
    if (this.#place) return
    const taker = this.#taker
    if (!this.#surroundings.places.take(taker, 1, 1))
      throw new GatewayError('rate_limited', { message: 'Too many requests of this key are under way.', retryAfterMs: soonMs() })
    this.#place = taker
  }

  /** Gives its memory and its place back: the exchange is over. */
  close(): void {
    this.#memory?.close()
    if (this.#whenClosed) for (const callback of this.#whenClosed) callback()
    if (this.#place) this.#surroundings.places.give(this.#place, 1)
  }

  stop(reason: StopReason, what: Usage | GatewayError = NO_USAGE): void {
    const why: EndCause = what instanceof GatewayError ? { disabled: what } : reason === 'budget' ? { budget: what } : 'drain'
    if (!this.begun) this.stopped ??= why
    this.#leave(why)
  }

  /** Nothing will come that is worth waiting for when nobody listens. */
  endAbandonedReply(): void {
    this.abandonedReply?.over()
    this.abandonedReply = undefined
    this.giveUp()
  }

  giveUp(): void {
    if (this.gone && this.abandonedReply?.mayEnd() !== false) this.#leave('client')
  }

  #leave(why: EndCause): void {
    this.over = true
    for (const callback of this.#whenOver) callback(why)
  }

  /** Facts a stage has given become members, each once. */
  learn(given: object, plugin: { readonly name: string; readonly gives: readonly Fact[] }): void {
    const facts = given as Partial<Facts>
    for (const fact of Object.keys(facts) as Fact[]) {
      if (!plugin.gives.includes(fact)) throw new TypeError(`stage ${plugin.name} gave undeclared "${fact}"`)
      ;(this as Partial<Record<Fact, unknown>>)[fact] = facts[fact]
    }
  }

  /** Begins the reply. Its head goes out with the first of its bytes; where these are all there are, with their length. */
  begin(status: number, headers: Readonly<Record<string, string>>): void {
    if (!this.gone) this.firstByteAfter = this.#surroundings.now() - this.startedAt
    this.begun = true
    this.outlet.begin(status, headers)
  }

  /** Sends a stage's reply whole. */
  async answer(reply: Reply): Promise<Outcome> {
    const joined = reply instanceof JoinedReply ? reply.outlet : undefined
    if (joined) await joined.join(this.#reply)
    else await this.#sendWhole(reply.status, reply.headers, typeof reply.body === 'string' ? Buffer.from(reply.body) : reply.body)
    const status = joined?.status ?? reply.status
    return this.#reply.gone ? { kind: 'broken', by: 'client', status, attempts: this.attempts } : { kind: 'answered', status }
  }

  /** Sends an error in the exchange's format, in place of a reply of which nothing has gone out. */
  async fail(error: GatewayError): Promise<Outcome> {
    const by = this.over && this.stopped !== undefined ? endReasonOf(this.stopped) : undefined
    if (this.gone) {
      // Nobody is there to be told; the failure came first all the same.
    } else if (this.outlet.headSent) {
      // Whoever began the reply was to end it; an error that comes here is a defect, and only the socket can tell of it.
      this.outlet.destroy()
    } else {
      // What there was of a reply has not reached its client, and is not to be paid for.
      this.delivered = 0
      const body = Buffer.from(JSON.stringify(this.format.error(error, this.id)))
      await this.#sendWhole(this.format.status(error), errorHeaders(error), body)
    }
    return { kind: 'failed', error, attempts: this.attempts, ...(by !== undefined && { by }) }
  }

  async #sendWhole(status: number, headers: Readonly<Record<string, string>>, body: Buffer): Promise<void> {
    this.begin(status, headers)
    if (this.#req.complete || !hasBody(this.#req)) return this.outlet.end(body)
    // The answer is out before the request was read: let the client see it before the connection goes.
    this.outlet.sendHead(body.length)
    this.outlet.write(body)
    await this.#discard()
    return this.outlet.end()
  }

  /** Throws the rest of an unwanted body away, within bounds: a client that is still sending would not see its answer otherwise. */
  async #discard(): Promise<void> {
    const { unreadBody, unreadTime, unreadBodies } = this.limits
    if (this.#surroundings.unread.bodies >= unreadBodies) return
    this.#surroundings.unread.bodies++
    await discarded(this.#req, unreadBody, unreadTime)
    this.#surroundings.unread.bodies--
  }

  /** After an unread body the connection cannot be used again: what follows on it would be read as a request. */
  closing(): Record<string, string> {
    return !this.#req.complete && hasBody(this.#req) ? { connection: 'close' } : {}
  }
}
