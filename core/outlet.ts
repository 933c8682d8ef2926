/** Where the bytes of a reply go: to the client that asked for it, and to the retries that have joined it. */
import type { ServerResponse } from 'node:http'
import { GatewayError, Reply } from './errors.ts'
import { NOTHING, Pieces } from './pieces.ts'
import { SLICE_BYTES, turn } from './turns.ts'

type Headers = Readonly<Record<string, string>>

/** Bytes of a body that is sent as one with its head. */
const ONE_WRITE_MAX = 16 * 1024

/** Bytes by which a client may be behind another that listens to the same reply. */
const LAG_MAX = 1024 * 1024
/** Clients that listen to one reply. */
const LISTENERS_MAX = 16

/** Bytes that are left for the replies that are kept while they come. */
export interface Room {
  bytes: number
}

/** The exchange whose client a reply is for. */
export interface Asker {
  readonly id: string
  /** Milliseconds for which a client may take nothing. */
  readonly limits: { readonly writeIdle: number }
  /** Headers to add when the connection must close behind the reply. */
  closing(): Headers
}

/** One client's response. */
export class ClientReply {
  readonly res: ServerResponse
  /** Where its bytes come from; told when the client leaves before it has the whole reply. */
  outlet: Outlet | undefined
  readonly #asker: Asker
  /** The headers, until they go out. */
  #head: Headers | undefined
  #closed: (() => void) | undefined

  constructor(res: ServerResponse, asker: Asker) {
    this.res = res
    this.#asker = asker
    res.on('close', () => {
      this.#closed?.()
      if (!res.writableFinished) this.outlet?.leave(this)
    })
  }

  /** The client has left before it had the whole reply. */
  get gone(): boolean {
    return this.res.closed && !this.res.writableFinished
  }

  /** It has been given more than it takes at once. */
  get full(): boolean {
    return this.res.writableNeedDrain && !this.res.destroyed
  }

  /** Begins the reply. Its head goes out with the first of its bytes; where these are all there are, with their length. */
  begin(status: number, headers: Headers): void {
    this.res.statusCode = status
    this.#head = headers
  }

  /** @param length of all that follows, in bytes, where it is known */
  sendHead(length?: number): void {
    if (!this.#head) return
    const { id } = this.#asker
    const known = length !== undefined && { 'content-length': length }
    this.res.writeHead(this.res.statusCode, { 'x-request-id': id, 'request-id': id, ...this.#head, ...known, ...this.#asker.closing() })
    this.#head = undefined
  }

  /** @returns false where the client has enough for now */
  write(bytes: Buffer): boolean {
    this.sendHead()
    return this.res.destroyed || this.res.write(bytes)
  }

  /**
   * Ends the reply; resolves when its last byte has been handed to the system, or the client has gone. A client that takes
   * none of it for the limit is cut.
   */
  async end(bytes: Buffer): Promise<void> {
    const { res } = this
    const inOneWrite = this.#head !== undefined && bytes.length <= ONE_WRITE_MAX
    this.sendHead(bytes.length)
    const last = bytes.length > SLICE_BYTES ? await this.#writeSlices(bytes) : bytes
    const closed = new Promise<void>(resolve => {
      if (res.destroyed) resolve()
      // It closes right after its last byte has gone, also where its connection stays.
      else this.#closed = resolve
    })
    if (last.length === 0) res.end()
    // Node sends a text as one with the head, and bytes beside it, which costs more than to copy a few.
    else if (inOneWrite) res.end(last.toString('latin1'), 'latin1')
    else res.end(last)
    const stop = this.#watch()
    await closed
    stop()
  }

  /** Writes large bytes slice by slice, between which others have their turn. @returns the last slice, which is not written */
  async #writeSlices(bytes: Buffer): Promise<Buffer> {
    let left = bytes
    for (; left.length > SLICE_BYTES && !this.res.destroyed; left = left.subarray(SLICE_BYTES)) {
      if (!this.res.write(left.subarray(0, SLICE_BYTES))) await new Promise<void>(resolve => this.whenReady(resolve))
      await turn()
    }
    return left
  }

  /** Calls back when the client takes more, or has gone; one that takes nothing for the limit is cut. @returns what takes the wish back */
  whenReady(callback: () => void): () => void {
    const { res } = this
    const unwatch = this.#watch()
    const stop = (): void => {
      unwatch()
      res.off('drain', ready).off('close', ready)
    }
    const ready = (): void => {
      stop()
      callback()
    }
    res.on('drain', ready).on('close', ready)
    return stop
  }

  /** Cuts a client that takes nothing of what waits for it. @returns what ends the watch */
  #watch(): () => void {
    const { socket } = this.res
    if (!socket || socket.writableLength === 0) return () => {}
    let taken = socket.bytesWritten - socket.writableLength
    const watch = setInterval(() => {
      const now = socket.bytesWritten - socket.writableLength
      if (now === taken) this.res.destroy()
      taken = now
    }, this.#asker.limits.writeIdle)
    return () => clearInterval(watch)
  }
}

/** Whose reply it is. */
export interface Speaker {
  /** The last listener has left before the reply is over. */
  deserted(): void
  /** Somebody listens again to a reply that nobody listened to. */
  heeded(): void
}

/** A reply on its way to everybody who listens to it. */
export class Outlet {
  /** Nobody, once the reply is over. */
  #speaker: Speaker | undefined
  #status = 0
  #headers: Headers | undefined
  #sentHead = false
  #replies: ClientReply[]
  /** What went out so far, for those who join later. */
  #kept: Pieces | undefined
  #keptMax = 0
  #room: Room | undefined
  #over = false
  /** The reply is over, and somebody has all of it. */
  #taken = false

  constructor(reply: ClientReply, speaker: Speaker) {
    this.#replies = [reply]
    this.#speaker = speaker
    reply.outlet = this
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
  keep(bytes: number, room: Room): void {
    this.#kept ??= new Pieces()
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
    if (this.#replies.length >= LISTENERS_MAX) throw new GatewayError('rate_limited', { message: 'Too many retries wait for this reply.', retryAfterMs: 1000 })
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
    reply.outlet = this
    if (this.#sentHead) reply.write(bytes)
    if (alone) this.#speaker?.heeded()
    await new Promise<void>(resolve => reply.res.on('close', resolve))
  }

  /** A client has gone. */
  leave(reply: ClientReply): void {
    this.#replies = this.#replies.filter(other => other !== reply)
    if (this.empty && !this.#over) this.#speaker?.deserted()
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
