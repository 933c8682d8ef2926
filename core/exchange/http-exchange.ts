/** An exchange over a real socket: what the core does with it that stages do not see. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Body } from '../formats/body.ts'
import { discarded, hasBody, readBody } from './read-body.ts'
import { errorHeaders, GatewayError, Reply } from '../errors.ts'
import type { Attempt, Exchange, Fact, Facts, Key, Model, Outcome, Route, StopReason } from './exchange.ts'
import { formatAbove, formatOf, PLAIN, type Format } from '../formats/index.ts'
import { groupOf } from '../lib/addresses.ts'
import { type AbandonedReply, endReasonOf, type EndCause } from './abandoned-reply.ts'
import type { Limits } from '../config/config.ts'
import { BODY_COPIES, OWN_BODY_BYTES } from './memory.ts'
import { Share } from '../lib/shares.ts'
import { NO_USAGE, type Usage } from '../money/usage.ts'
import { UpstreamClock } from './upstream-clock.ts'
import { type ReplyRecipient, ClientReply } from './client-reply.ts'
import { JoinedReply, Outlet, type ReplyOwner } from './outlet.ts'
import type { Indexed } from '../lib/swap-list.ts'
import { ExchangeResources, type ServerResources } from './resources.ts'

/** How far an exchange has come. */
export type Phase =
  /** The chain works on the request, or the upstream does. */
  | 'request'
  /** The client sends the body. */
  | 'reading-body'
  /** There is a reply, even if none of it has gone out. */
  | 'replying'
  /** The upstream has said that the reply is complete. */
  | 'complete'
  /** The last event of the reply has gone to a client. */
  | 'sent'

/** What the server knows about a request before its exchange begins. */
export interface RequestSetup {
  readonly id: string
  readonly limits: Limits
  /** What the address of the connection counts as; undefined for a trusted proxy, which speaks for others. */
  readonly addressGroup: string | undefined
}

/**
 * One request and its reply over a real socket.
 *
 * A phase says how far the exchange has come. Three facts are no phases, as each can be true in several: `over`, `heldBack` and
 * `usageIsFinal`.
 */
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
  declare readonly key: Key
  declare readonly body: Body
  declare readonly model: Model
  declare readonly route: Route
  declare readonly extras?: Facts['extras']
  /** Every try at an upstream so far. */
  readonly attempts: Attempt[] = []
  phase: Phase = 'request'
  /** Why the gateway gave the exchange up before its reply began, where it did. */
  stopped: EndCause | undefined = undefined
  /** Decides whether the reply is read on when nobody listens any more; without one it is not. */
  abandonedReply: AbandonedReply | undefined = undefined
  /** Nobody waits for the reply any more, and its upstream is to be closed. */
  over = false
  /** When the upstream was at work. */
  readonly upstreamClock = new UpstreamClock()
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
  readonly #server: ServerResources
  readonly resources: ExchangeResources
  readonly #whenOver = new Set<(why: EndCause) => void>()

  constructor(req: IncomingMessage, res: ServerResponse, setup: RequestSetup, server: ServerResources) {
    const url = req.url ?? '/'
    const mark = url.indexOf('?')
    this.id = setup.id
    this.startedAt = server.now()
    this.limits = setup.limits
    this.#server = server
    this.resources = new ExchangeResources(server, () => ({ key: this.key?.id, address: this.addressGroup }))
    this.#addressGroup = setup.addressGroup
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
    if (this.begun) this.firstByteAfter ??= this.#server.now() - this.startedAt
    this.abandonedReply?.joined()
  }

  /** There is a reply, even if none of it has gone out. */
  get begun(): boolean {
    return this.phase !== 'request' && this.phase !== 'reading-body'
  }

  get complete(): boolean {
    return this.phase === 'complete' || this.phase === 'sent'
  }

  /** The upstream has said that the reply is complete. */
  completed(): void {
    if (this.phase !== 'sent') this.phase = 'complete'
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
    this.resources.takePlace()
    this.phase = 'reading-body'
    try {
      let own = OWN_BODY_BYTES
      const reserve = (bytes: number): void => {
        own -= bytes
        if (own < 0) this.reserve(Math.min(bytes, -own) * BODY_COPIES)
      }
      return await readBody(this.#req, this.#reply.res, limit, this.limits, reserve, all => watch?.(all), this.owner)
    } finally {
      if (this.phase === 'reading-body') this.phase = 'request'
    }
  }

  reserve(bytes: number): void {
    this.resources.reserve(bytes)
  }

  release(bytes: number): void {
    this.memory.give(bytes)
  }

  /** The key, or the address, whose long work this exchange's is. */
  get owner(): string {
    return this.key?.id ?? this.addressGroup
  }

  whenClosed(callback: () => void): () => void {
    return this.resources.whenClosed(callback)
  }

  /** The memory that the exchange has taken. */
  get memory(): Share {
    return this.resources.memory
  }

  stop(reason: StopReason, what: Usage | GatewayError = NO_USAGE): void {
    const why: EndCause =
      what instanceof GatewayError ? { disabled: what } : reason === 'budget' ? { budget: what } : 'drain'
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
    if (!this.gone) this.firstByteAfter = this.#server.now() - this.startedAt
    if (!this.begun) this.phase = 'replying'
    this.outlet.begin(status, headers)
  }

  /** Sends a stage's reply whole. */
  async answer(reply: Reply): Promise<Outcome> {
    const joined = reply instanceof JoinedReply ? reply.outlet : undefined
    if (joined) await joined.join(this.#reply)
    else
      await this.#sendWhole(
        reply.status,
        reply.headers,
        typeof reply.body === 'string' ? Buffer.from(reply.body) : reply.body,
      )
    const status = joined?.status ?? reply.status
    return this.#reply.gone
      ? { kind: 'broken', by: 'client', status, attempts: this.attempts }
      : { kind: 'answered', status }
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
    if (this.#server.discardedBodies >= unreadBodies) return
    this.#server.discardedBodies++
    await discarded(this.#req, unreadBody, unreadTime)
    this.#server.discardedBodies--
  }

  /** After an unread body the connection cannot be used again: what follows on it would be read as a request. */
  closing(): Record<string, string> {
    return !this.#req.complete && hasBody(this.#req) ? { connection: 'close' } : {}
  }
}
