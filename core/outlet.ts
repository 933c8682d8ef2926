/** Where the bytes of a reply go: to the client that asked for it, and to the retries that have joined it. */
import type { ServerResponse } from 'node:http'
import { NOTHING, Pieces } from './pieces.ts'

type Headers = Readonly<Record<string, string>>

/** Bytes of a body that is sent as one with its head. */
const JOINED_MAX = 16 * 1024

/** One client's response. */
export class ClientReply {
  readonly res: ServerResponse
  /** Called once when the client leaves before it has the whole reply. */
  onGone: () => void = () => {}
  readonly #ids: Headers
  readonly #closing: () => Headers
  readonly #writeIdle: number
  /** The headers, until they go out. */
  #head: Headers | undefined
  #closed: (() => void) | undefined

  /**
   * @param id names the request in the reply's headers
   * @param closing headers to add when the connection must close behind the reply
   * @param writeIdle milliseconds for which a client may take nothing
   */
  constructor(res: ServerResponse, id: string, closing: () => Headers, writeIdle: number) {
    this.res = res
    this.#ids = { 'x-request-id': id, 'request-id': id }
    this.#closing = closing
    this.#writeIdle = writeIdle
    res.on('close', () => {
      this.#closed?.()
      if (!res.writableFinished) this.onGone()
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
    const known = length !== undefined && { 'content-length': length }
    this.res.writeHead(this.res.statusCode, { ...this.#ids, ...this.#head, ...known, ...this.#closing() })
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
  async end(last: Buffer): Promise<void> {
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
    const stop = this.#watch()
    await closed
    stop()
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
    }, this.#writeIdle)
    return () => clearInterval(watch)
  }
}

/** A reply on its way to everybody who listens to it. */
export class Outlet {
  /** Called each time the last listener leaves before the reply is over. */
  onEmpty: () => void = () => {}
  /** Called when somebody listens again to a reply that nobody listened to. */
  onJoin: () => void = () => {}
  #status = 0
  #headers: Headers | undefined
  #sentHead = false
  #replies: ClientReply[]
  /** What went out so far, for those who join later. */
  #kept: Pieces | undefined
  #keptMax = 0
  #over = false

  constructor(reply: ClientReply) {
    this.#replies = [reply]
    reply.onGone = () => this.#leave(reply)
  }

  /** The status of the reply, once it has begun. */
  get status(): number {
    return this.#status
  }

  /** Nobody listens any more. */
  get empty(): boolean {
    return this.#replies.length === 0
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

  /** Keeps what goes out, up to so many bytes, for those who join later. To be called before the reply begins. */
  keep(bytes: number): void {
    this.#kept ??= new Pieces()
    this.#keptMax = bytes
  }

  /** Forgets what was kept: nobody can join any more. */
  forget(): void {
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

  /** @returns false where somebody has enough for now */
  write(bytes: Buffer): boolean {
    this.#sentHead = true
    this.#keep(bytes)
    let ready = true
    for (const reply of this.#replies) if (!reply.write(bytes)) ready = false
    return ready
  }

  /** Ends the reply for everybody; resolves when all have it, or have gone. */
  async end(last: Buffer = NOTHING): Promise<void> {
    this.#keep(last)
    this.#over = true
    const [first, ...others] = this.#replies
    if (others.length > 0) await Promise.all(this.#replies.map(reply => reply.end(last)))
    else await first?.end(last)
  }

  /** Breaks the connections of everybody who listens. */
  destroy(): void {
    for (const { res } of this.#replies) res.destroy()
  }

  /** Calls back when all who have enough for now take more, or have gone. @returns what takes the wish back */
  whenReady(callback: () => void): () => void {
    const full = this.#replies.filter(reply => reply.full)
    let waiting = full.length
    if (waiting === 0) {
      queueMicrotask(callback)
      return () => {}
    }
    const stops = full.map(reply => reply.whenReady(() => --waiting === 0 && callback()))
    return () => stops.forEach(stop => stop())
  }

  /** Gives a further client the reply from its start. Only for one that is joinable. Resolves when the client has it, or has gone. */
  async join(reply: ClientReply): Promise<void> {
    if (reply.gone) return
    if (this.#headers) reply.begin(this.#status, this.#headers)
    const bytes = this.#kept?.copy() ?? NOTHING
    const alone = this.empty
    this.#replies.push(reply)
    reply.onGone = () => this.#leave(reply)
    if (this.#over) return reply.end(bytes)
    if (this.#sentHead) reply.write(bytes)
    if (alone) this.onJoin()
    await new Promise<void>(resolve => reply.res.on('close', resolve))
  }

  #leave(reply: ClientReply): void {
    this.#replies = this.#replies.filter(other => other !== reply)
    if (this.empty && !this.#over) this.onEmpty()
  }

  #keep(bytes: Buffer): void {
    if (this.#kept && this.#kept.push(bytes) > this.#keptMax) this.#kept = undefined
  }
}
