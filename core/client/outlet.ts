/** Where the bytes of a reply go: to the client that asked, and to the resends that have joined. */
import type { ClientReply, Headers } from './reply.ts'
import { GatewayError, Reply } from '../errors.ts'
import { NOTHING, ByteBuffer } from '../lib/byte-buffer.ts'

/** Bytes by which a client may be behind another one that gets the same reply. */
const LAG_MAX = 1024 * 1024
/** Most clients of one reply. */
const LISTENERS_MAX = 16
const GIVEN_UP = 'The request that this one repeats was given up at this moment. Send it again.'

/** Bytes left for the replies that are kept while they arrive. */
export interface SharedBytes {
  bytes: number
}

/** The exchange that the reply belongs to. */
export interface ReplyOwner {
  /** The last client has left before the reply ended. */
  allClientsLeft(): void
  /** A client has joined a reply that no client listened to. */
  clientJoined(): void
}

/** A reply on its way to all clients that listen to it. */
export class Outlet {
  /** Undefined once the reply has ended. */
  #owner: ReplyOwner | undefined
  #status = 0
  #headers: Headers | undefined
  #sentHead = false
  #replies: ClientReply[]
  /** What was sent so far, for clients that join later. */
  #kept: ByteBuffer | undefined
  #keptMax = 0
  #room: SharedBytes | undefined
  #hasEnded = false
  /** Called before the last bytes go to a client. */
  #decided: (() => Promise<void>) | undefined
  /** The reply has ended, and a client has all of it. */
  #taken = false
  /** Refuses a client that has joined. */
  readonly #refusals = new WeakMap<ClientReply, () => void>()

  constructor(reply: ClientReply, owner: ReplyOwner) {
    this.#replies = [reply]
    this.#owner = owner
    reply.onLeave = this.#leave
  }

  /** The status of the reply, once it has begun. */
  get status(): number {
    return this.#status
  }

  /** No client listens, and none has the whole reply. */
  get empty(): boolean {
    return this.#replies.length === 0 && !this.#taken
  }

  /** All of the reply has been handed over; it may still be on its way. */
  get ended(): boolean {
    return this.#hasEnded
  }

  /** A client that joins now can get the reply from its start. */
  get joinable(): boolean {
    return this.#kept !== undefined
  }

  /** Looks at the connections of the clients, and drops those that are leaving. */
  look(): void {
    for (const reply of this.#replies.filter(({ isLeaving }) => isLeaving)) this.#leave(reply)
  }

  /** Bytes that are kept for clients that join. */
  get keptBytes(): number {
    return this.#kept?.length ?? 0
  }

  /** The head has been sent to a client. */
  get headSent(): boolean {
    return this.#replies.some(({ res }) => res.headersSent)
  }

  /**
   * Keeps what is sent, for clients that join later. To be called before the reply begins.
   * @param bytes most bytes of this reply
   * @param room bytes left for all replies that are kept while they arrive
   */
  keep(bytes: number, room: SharedBytes): void {
    this.#kept ??= new ByteBuffer()
    this.#keptMax = bytes
    this.#room = room
  }

  /** Drops what was kept. No client can join after that. */
  forget(): void {
    this.#leaveRoom()
    this.#kept = undefined
  }

  begin(status: number, headers: Headers): void {
    this.#status = status
    this.#headers = headers
    for (const reply of this.#replies) reply.begin(status, headers)
  }

  sendHead(length?: number): void {
    this.#sentHead = true
    for (const reply of this.#replies) reply.sendHead(length)
  }

  /**
   * Sends bytes to all clients. A client that is far behind the others is disconnected, so that they need not wait for
   * it.
   * @returns false if no client takes more for now
   */
  write(bytes: Buffer): boolean {
    this.#sentHead = true
    this.#keep(bytes)
    if (this.#replies.length <= 1) return this.#replies[0]?.write(bytes) ?? true
    let ready = false
    for (const reply of this.#replies) {
      if (reply.write(bytes)) ready = true
      else if (reply.res.writableLength > LAG_MAX) reply.res.destroy()
    }
    return ready
  }

  /**
   * Ends the reply for all clients. Resolves when each has all of it, or has left.
   * @param decided called before the last bytes go to a client, which wait for it
   */
  async end(last: Buffer = NOTHING, decided?: () => Promise<void>): Promise<void> {
    this.#keep(last)
    this.#hasEnded = true
    this.#decided = decided
    if (this.#replies.length === 1) await this.#replies[0]?.end(last, decided)
    else await Promise.all(this.#replies.map(reply => reply.end(last, decided)))
    this.#decided = undefined
    this.#taken = this.#replies.length > 0
    this.#replies = []
    this.#leaveRoom()
    this.#owner = undefined
  }

  /**
   * Notes that the exchange is over, so that nothing more comes. A reply that has not ended can no longer be joined. A client that
   * joined it at the last moment would wait forever: it is refused, or disconnected if its reply has begun.
   */
  close(): void {
    if (this.#hasEnded) return
    this.forget()
    for (const reply of this.#replies) {
      const refuse = reply.res.headersSent ? undefined : this.#refusals.get(reply)
      if (refuse) refuse()
      else if (!reply.res.writableEnded) reply.res.destroy()
    }
  }

  /** Closes the connections of all clients. */
  destroy(): void {
    for (const { res } of this.#replies) res.destroy()
  }

  /**
   * Calls back when a client that takes nothing now takes more, or has left.
   * @returns a function that cancels the call
   */
  whenReady(callback: () => void): () => void {
    const stops: (() => void)[] = []
    const stop = (): void => stops.forEach(each => each())
    const ready = (): void => {
      stop()
      callback()
    }
    const full = this.#replies.filter(reply => reply.full)
    if (full.length < this.#replies.length || full.length === 0) queueMicrotask(callback)
    else for (const reply of full) stops.push(reply.whenReady(ready))
    return stop
  }

  /**
   * Gives a client the reply from its start. Resolves when the client has it, or has left.
   * @throws GatewayError rate_limited if too many clients listen; request_conflict if the reply is no longer joinable; unavailable
   * if its exchange is over before it has begun
   */
  async join(reply: ClientReply): Promise<void> {
    if (reply.gone) return
    if (!this.#kept) throw new GatewayError('request_conflict')
    if (this.#replies.length >= LISTENERS_MAX)
      throw new GatewayError('rate_limited', { message: 'Too many retries wait for this reply.', retryAfterMs: 1000 })
    if (this.#headers) reply.begin(this.#status, this.#headers)
    const bytes = this.#kept.all
    if (this.#hasEnded) {
      this.#taken = true
      await reply.end(bytes, this.#decided)
      // A client that left early may come again.
      if (reply.gone) this.#taken = false
      return
    }
    const alone = this.empty
    this.#replies.push(reply)
    const ownLeave = reply.onLeave
    reply.onLeave = this.#leave
    if (this.#sentHead) reply.write(bytes)
    if (alone) this.#owner?.clientJoined()
    await new Promise<void>((resolve, reject) => {
      reply.res.on('close', resolve)
      this.#refusals.set(reply, () => {
        reply.onLeave = ownLeave
        reject(new GatewayError('unavailable', { message: GIVEN_UP, retryAfterMs: 1000 }))
      })
    })
  }

  /** Notes that a client has left. */
  readonly #leave = (reply: ClientReply): void => {
    if (!this.#replies.includes(reply)) return
    this.#replies = this.#replies.filter(other => other !== reply)
    if (this.empty && !this.#hasEnded) this.#owner?.allClientsLeft()
  }

  #keep(bytes: Buffer): void {
    if (!this.#kept || !this.#room) return
    this.#room.bytes -= bytes.length
    if (this.#kept.push(bytes) > this.#keptMax || this.#room.bytes < 0) this.forget()
  }

  #leaveRoom(): void {
    if (this.#room) this.#room.bytes += this.keptBytes
    this.#room = undefined
  }
}

/** A reply that belongs to another exchange. The client gets it from its start. */
export class JoinedReply extends Reply {
  readonly outlet: Outlet

  constructor(outlet: Outlet) {
    // The status that counts is the outlet's, which does not know it before the reply has begun.
    super(200, '')
    this.outlet = outlet
  }
}
