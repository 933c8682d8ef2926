/** An exchange over a socket, with the state that stages do not see. */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { Body } from '../formats/body.ts'
import { promptTexts } from '../formats/prompt.ts'
import { hasBody, readBody } from '../client/read-body.ts'
import { checkHeaders, errorHeaders, GatewayError, Reply } from '../errors.ts'
import type { Attempt, Key, Model, Outcome, StopReason } from './exchange.ts'
import { forget, REPORTING_EXCHANGE } from './members.ts'
import type { BuiltInExchange, BuiltInFacts, Route } from './built-in.ts'
import { formatAbove, formatOf, PLAIN, type Format } from '../formats/index.ts'
import { groupOf } from '../lib/addresses.ts'
import type { ReadOnPolicy } from './read-on-policy.ts'
import { noteDigest } from './client-requests.ts'
import { type EndCause, causeName } from './request-end.ts'
import type { Limits } from '../config/config.ts'
import { BODY_COPIES, UNCOUNTED_BODY_BYTES } from '../client/memory.ts'
import { Reservation } from '../lib/fair-budget.ts'
import { NO_USAGE, type Usage } from '../money/usage.ts'
import { UpstreamClock } from './upstream-clock.ts'
import { type ReplyExchange, ClientReply, merged } from '../client/reply.ts'
import { JoinedReply, Outlet, type ReplyOwner } from '../client/outlet.ts'
import type { Indexed } from '../lib/swap-list.ts'
import { failWaiting } from './waiting.ts'
import type { Phase } from './phase.ts'
import { sendParts, StreamedReply } from '../client/streamed-reply.ts'
import { ExchangeResources, type RequestSetup, type ServerResources } from './resources.ts'
import { targetOf } from '../client/target.ts'

/**
 * An exchange over a socket. `phase` shows how far it has come. `over`, `isPaused` and `usageIsFinal` are separate
 * flags, because each can be true in several phases.
 */
export class HttpExchange implements BuiltInExchange, Indexed, ReplyExchange, ReplyOwner {
  index = -1
  readonly id: string
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly address: string
  readonly format: Format
  readonly inference: boolean
  readonly startedAt: number
  readonly limits: Limits
  firstByteAfter: number | undefined = undefined
  delivered = 0
  // The facts of the built-in stages are fields, so that giving one does not change the shape of the object.
  readonly key!: Key
  readonly secret!: string
  readonly body!: Body
  readonly model!: Model
  readonly route!: Route
  readonly stored!: BuiltInFacts['stored']
  readonly extras!: BuiltInFacts['extras']
  readonly tally!: BuiltInFacts['tally']
  readonly runningHold!: BuiltInFacts['runningHold']
  caller: Key | undefined = undefined
  keyIsCurrent = false
  /** The attempts at upstream accounts so far. */
  readonly attempts: Attempt[] = []
  /** What the last account that failed said. The message is its provider's and may repeat the request. */
  providersWords: { readonly codes: readonly string[]; readonly message: string } | undefined = undefined
  phase: Phase = 'request'
  /** The client of a stream has got the head and comments, and nothing of a reply. */
  waiting = false
  /** The reply comes in one piece, so no comments may precede it. */
  inOnePiece = false
  /** Why the gateway ended the exchange before its reply began, if it did. */
  stopped: EndCause | undefined = undefined
  /** Decides whether the reply is read on when all clients have left. Without it, the reply is given up. */
  readOnPolicy: ReadOnPolicy | undefined = undefined
  /** Whether no client waits and the reply is not read on, or the gateway has ended the exchange. */
  over = false
  /** Measures how long the upstream works, and how long it is silent. */
  upstreamClock = new UpstreamClock()
  /** Whether reading from the upstream is paused, because the client does not take its bytes. */
  isPaused = false
  /** Whether the usage of the whole reply has arrived. */
  usageIsFinal = false
  /** The last events of the stream that arrived. */
  recent: Buffer | undefined = undefined
  /** Where the reply goes. */
  readonly outlet: Outlet
  readonly #req: IncomingMessage
  /** The response to this exchange's own client. */
  readonly #reply: ClientReply
  /** The query as it was sent, without the question mark. */
  readonly rawQuery: string
  #addressGroup: string | undefined
  #query: URLSearchParams | undefined
  #signal: AbortSignal | undefined
  #added: Readonly<Record<string, string>> | undefined
  readonly #server: ServerResources
  readonly resources: ExchangeResources
  readonly #whenOver = new Set<(why: EndCause) => void>()
  /** Bytes of memory that were reserved for the body. */
  #bodyMemoryBytes = 0
  /** The body, for stages that read it again. */
  #received: Buffer | undefined

  constructor(req: IncomingMessage, res: ServerResponse, setup: RequestSetup, server: ServerResources) {
    const { path, rawQuery } = targetOf(req.url)
    this.id = setup.id
    this.startedAt = server.now()
    this.limits = setup.limits
    this.#server = server
    this.resources = new ExchangeResources(server, () => ({ key: this.key?.id, address: this.addressGroup }))
    this.address = setup.connection.clientOf(req.headers, setup.limits.trustedProxies)
    this.#addressGroup = setup.connection.group
    this.method = req.method ?? 'GET'
    this.path = path
    this.rawQuery = rawQuery
    this.headers = req.headers
    const format = formatOf(this.path)
    this.format = format ?? formatAbove(this.path) ?? PLAIN
    this.inference = format !== undefined && this.method === 'POST'
    this.#req = req
    this.#reply = new ClientReply(res, this)
    this.outlet = new Outlet(this.#reply, this)
  }

  allClientsLeft(): void {
    if (this.readOnPolicy) this.readOnPolicy.left()
    else this.#leave('client')
  }

  clientJoined(): void {
    if (this.begun) this.firstByteAfter ??= this.#server.now() - this.startedAt
    this.readOnPolicy?.joined()
  }

  identify(key: Key): void {
    this.caller = key
  }

  addHeaders(headers: Readonly<Record<string, string>>): void {
    checkHeaders(headers)
    this.#added = { ...this.#added, ...headers }
  }

  /** A reply has begun, even if none of it has been sent. */
  get begun(): boolean {
    return this.phase !== 'request' && this.phase !== 'reading-body'
  }

  get complete(): boolean {
    return this.phase === 'complete' || this.phase === 'sent'
  }

  /** Notes that the upstream has said that the reply is complete. */
  completed(): void {
    if (this.phase !== 'sent') this.phase = 'complete'
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.rawQuery))
  }

  /** The group of addresses that limits per address count for. */
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

  /**
   * Calls back when the client leaves early, or the gateway ends the exchange.
   * @returns a function that cancels the call
   */
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

  /** Notes that the request goes out to the upstream. */
  sent(): void {
    this.upstreamClock.start()
  }

  async read(limit: number, watch?: (bytes: Buffer) => boolean | void): Promise<Buffer> {
    this.resources.takeSlot()
    this.phase = 'reading-body'
    try {
      let own = UNCOUNTED_BODY_BYTES
      const reserve = (bytes: number): void => {
        own -= bytes
        if (own < 0) this.reserve(Math.min(bytes, -own) * BODY_COPIES)
      }
      if (this.#received) return await this.#readAgain(this.#received, reserve, watch)
      const { limits, owner } = this
      const wish = { limit, limits, reserve, watch: (all: Buffer) => watch?.(all), owner }
      return await readBody(this.#req, this.#reply.res, wish)
    } finally {
      if (this.phase === 'reading-body') this.phase = 'request'
    }
  }

  async #readAgain(
    all: Buffer,
    reserve: (bytes: number) => void,
    watch?: (all: Buffer) => boolean | void,
  ): Promise<Buffer> {
    this.#received = undefined
    reserve(all.length)
    for (let isTaken = watch?.(all); isTaken === false; isTaken = watch?.(all)) await new Promise(setImmediate)
    return all
  }

  /** Forgets facts, so that the stages that give them can run again. */
  beginAgain(facts: readonly string[]): void {
    if (this.body) {
      this.#received = this.body.received
      this.release(this.#bodyMemoryBytes)
      this.#bodyMemoryBytes = 0
    }
    forget(this, facts)
  }

  prompt(): Promise<readonly string[]> {
    return promptTexts(this.body)
  }

  reserve(bytes: number): void {
    this.resources.reserve(bytes)
    if (this.phase === 'reading-body') this.#bodyMemoryBytes += bytes
  }

  /** Releases the conversation, and gives its part of the memory back. Other work gets its turn meanwhile. */
  async releaseBody(): Promise<void> {
    const { body } = this
    await noteDigest(this)
    const part = body.conversationBytes / body.received.length
    body.release(this.format.conversationMember)
    this.route.release()
    this.release(Math.floor(this.#bodyMemoryBytes * part))
  }

  release(bytes: number): void {
    this.memory.give(bytes)
  }

  /** The key, or the address, that the exchange's long work is scheduled for. */
  get owner(): string {
    return this.key?.id ?? this.addressGroup
  }

  whenClosed(callback: () => void): () => void {
    return this.resources.whenClosed(callback)
  }

  /** The memory that the exchange has taken. */
  get memory(): Reservation {
    return this.resources.memory
  }

  stop(reason: StopReason, what: Usage | GatewayError = NO_USAGE): void {
    let why: EndCause = 'drain'
    if (what instanceof GatewayError) why = { disabled: what }
    else if (reason === 'budget') why = { budget: what }
    if (!this.begun) this.stopped ??= why
    this.#leave(why)
  }

  /** Forgets what an attempt at one account has delivered: nothing of it has gone to the client. */
  forgetAttempt(): void {
    this.delivered = 0
    this.recent = undefined
    this.usageIsFinal = false
    this.inOnePiece = false
    this.endReadOnPolicy()
    this.upstreamClock = new UpstreamClock()
  }

  /** Notes that the reply need not be read further once its clients have left. */
  endReadOnPolicy(): void {
    this.readOnPolicy?.over()
    this.readOnPolicy = undefined
    this.giveUp()
  }

  giveUp(): void {
    if (this.gone && this.readOnPolicy?.mayEnd() !== false) this.#leave('client')
  }

  #leave(why: EndCause): void {
    this.over = true
    for (const callback of this.#whenOver) callback(why)
  }

  /** Begins the reply. The head is sent with the first bytes of the body; with its length, if these are all of it. */
  begin(status: number, own: Readonly<Record<string, string>>): void {
    const headers = this.#added ? merged(this.#added, own) : own
    if (!this.gone) this.firstByteAfter = this.#server.now() - this.startedAt
    if (!this.begun) this.phase = 'replying'
    if (!this.waiting) this.outlet.begin(status, headers)
  }

  /** Sends a stage's reply. */
  async answer(reply: Reply): Promise<Extract<Outcome, { status: number }>> {
    const joined = reply instanceof JoinedReply ? reply.outlet : undefined
    if (joined) await joined.join(this.#reply)
    else if (this.waiting) throw new GatewayError('internal', { cause: new Error('a stage replied too late') })
    else if (reply instanceof StreamedReply && this.method !== 'HEAD') await sendParts(this, reply)
    else await this.#sendWhole(reply.status, reply.headers, reply.bytes)
    const status = joined?.status ?? reply.status
    return this.#reply.gone
      ? { kind: 'broken', by: 'client', status, attempts: this.attempts }
      : { kind: 'answered', status }
  }

  /** Sends an error in the exchange's format, instead of a reply of which nothing has been sent. */
  async fail(error: GatewayError): Promise<Outcome> {
    const by = this.over && this.stopped !== undefined ? causeName(this.stopped) : undefined
    // The client has not received what was delivered, and does not pay for it.
    if (!this.outlet.headSent || this.waiting) this.delivered = 0
    if (this.gone) {
      // No client gets the error, but it is the outcome of the exchange.
    } else if (this.waiting && !this.begun) await failWaiting(this, error)
    else if (this.outlet.headSent) {
      // The code that began a reply must also end it. An error that arrives here is a defect, and only closing the
      // socket can show it.
      this.outlet.destroy()
    } else {
      const body = Buffer.from(JSON.stringify(this.format.error(error, this.id)))
      await this.#sendWhole(this.format.status(error), errorHeaders(error), body)
    }
    return { kind: 'failed', error, attempts: this.attempts, ...(by !== undefined && { by }) }
  }

  async #sendWhole(status: number, headers: Readonly<Record<string, string>>, body: Buffer): Promise<void> {
    this.begin(status, headers)
    if (this.#req.complete || !hasBody(this.#req)) return this.outlet.end(body)
    // The answer is sent before the request was read. The client must see it before the connection closes.
    this.outlet.sendHead(body.length)
    this.outlet.write(body)
    await this.resources.discard(this.#req, this.limits)
    return this.outlet.end()
  }

  /** Headers that close a connection with an unread body, whose bytes would be taken for the next request. */
  closing(): Record<string, string> {
    return !this.#req.complete && hasBody(this.#req) ? { connection: 'close' } : {}
  }
}

Object.setPrototypeOf(HttpExchange.prototype, REPORTING_EXCHANGE)
