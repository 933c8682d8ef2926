/** Where the bytes of a reply go: to the client that asked for it, and to the retries that have joined it. */
import type { ClientReply, Headers } from './client-reply.ts'
import { GatewayError, Reply } from '../errors.ts'
import { NOTHING, ByteBuffer } from '../lib/byte-buffer.ts'

/** Bytes by which a client may be behind another that listens to the same reply. */
const LAG_MAX = 1024 * 1024
/** Clients that listen to one reply. */
const LISTENERS_MAX = 16

/** Bytes that are left for the replies that are kept while they come. */
export interface SharedBytes {
  bytes: number
}

/** Whose reply it is. */
export interface ReplyOwner {
  /** The last listener has left before the reply is over. */
  allClientsLeft(): void
  /** Somebody listens again to a reply that nobody listened to. */
  clientJoined(): void
}

/** A reply on its way to everybody who listens to it. */
export class Outlet {
  /** Nobody, once the reply is over. */
  #speaker: ReplyOwner | undefined
  #status = 0
  #headers: Headers | undefined
  #sentHead = false
  #replies: ClientReply[]
  /** What went out so far, for those who join later. */
  #kept: ByteBuffer | undefined
  #keptMax = 0
  #room: SharedBytes | undefined
  #over = false
  /** The reply is over, and somebody has all of it. */
  #taken = false

  constructor(reply: ClientReply, speaker: ReplyOwner) {
    this.#replies = [reply]
    this.#speaker = speaker
    reply.onLeave = this.#leave
  }

  /** The status of the reply, once it has begun. */
  get status(): number {
    return this.#status
  }

  /** Nobody listens any more, and nobody has the whole reply. */
  get empty(): boolean {
    return this.#replies.length === 0 && !this.#taken
  }

  /** All of the reply has been given. */
  get over(): boolean {
    return this.#over
  }

  /** Somebody who joins now can get the reply from its start. */
  get joinable(): boolean {
    return this.#kept !== undefined
  }

  /** Bytes that are kept for those who join. */
  get keptBytes(): number {
    return this.#kept?.length ?? 0
  }

  /** The head has gone to somebody. */
  get headSent(): boolean {
    return this.#replies.some(({ res }) => res.headersSent)
  }

  /**
   * Keeps what goes out, for those who join later. To be called before the reply begins.
   * @param bytes of this reply at most
   * @param room for all replies that are kept while they come
   */
  keep(bytes: number, room: SharedBytes): void {
    this.#kept ??= new ByteBuffer()
    this.#keptMax = bytes
    this.#room = room
  }

  /** Forgets what was kept: nobody can join any more. */
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

  /** @returns false where everybody has enough for now. A client that is far behind the others is cut, so that they need not wait for it. */
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

  /** Ends the reply for everybody; resolves when all have it, or have gone. The outlet drops its references to them. */
  async end(last: Buffer = NOTHING): Promise<void> {
    this.#keep(last)
    this.#over = true
    if (this.#replies.length === 1) await this.#replies[0]?.end(last)
    else await Promise.all(this.#replies.map(reply => reply.end(last)))
    this.#taken = this.#replies.length > 0
    this.#replies = []
    this.#leaveRoom()
    this.#speaker = undefined
  }

  /** Breaks the connections of everybody who listens. */
  destroy(): void {
    for (const { res } of this.#replies) res.destroy()
  }

  /** Calls back when one of those who have enough for now takes more, or has gone. @returns what takes the wish back */
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
   * Gives a further client the reply from its start. Only for one that is joinable. Resolves when the client has it, or has gone.
   * @throws GatewayError rate_limited when too many listen already
   */
  async join(reply: ClientReply): Promise<void> {
    if (reply.gone) return
    if (this.#replies.length >= LISTENERS_MAX)
      throw new GatewayError('rate_limited', { message: 'Too many retries wait for this reply.', retryAfterMs: 1000 })
    if (this.#headers) reply.begin(this.#status, this.#headers)
    const bytes = this.#kept?.all ?? NOTHING
    if (this.#over) {
      this.#taken = true
      await reply.end(bytes)
      // Who left in the middle may come again.
      if (reply.gone) this.#taken = false
      return
    }
    const alone = this.empty
    this.#replies.push(reply)
    reply.onLeave = this.#leave
    if (this.#sentHead) reply.write(bytes)
    if (alone) this.#speaker?.clientJoined()
    await new Promise<void>(resolve => reply.res.on('close', resolve))
  }

  /** A client has gone. */
  readonly #leave = (reply: ClientReply): void => {
    this.#replies = this.#replies.filter(other => other !== reply)
    if (this.empty && !this.#over) this.#speaker?.allClientsLeft()
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

/** A reply that is another exchange's: the client gets it from its start, and what follows as it comes. */
export class JoinedReply extends Reply {
  readonly outlet: Outlet

  constructor(outlet: Outlet) {
    super(outlet.status, '')
    this.outlet = outlet
  }
}
