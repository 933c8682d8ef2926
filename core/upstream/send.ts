/**
 * Sends a checked request to an upstream by http-proxy-3, and resolves with the head of the answer.
 *
 * http-proxy-3 gets a stand-in for the client's request, which carries an allow-list of headers and nothing else, and a `fetch` of
 * the gateway's own, which hands the request to an undici client. The library sees no response: whether a client that left ends
 * its upstream's work is decided by the relay, and the body of the answer is read by it.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import type { Dispatcher } from 'undici'
import { deadline, type Deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import { Connections, type ConnectionInUse } from './connections.ts'
import { UpstreamBody } from './reply-body.ts'

/** Where a request goes and how long each step may take, in milliseconds. */
export interface Destination {
  readonly url: URL
  readonly timeouts: { readonly connect: number; readonly keepAlive: number; readonly firstByte: number }
}

/** An upstream's answer whose body has not been read. */
export interface UpstreamReply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: UpstreamBody
  /** Closes the connection to the upstream. */
  abort(): void
}

/** A request that was taken back, before or after it had gone out. */
export type TakenBack = 'unsent' | 'sent'

/** Whom the answer is for. */
export interface Client {
  /** Nobody waits for the answer any more. */
  readonly over: boolean
  /** Calls back when that becomes so; returns what takes the wish back. */
  whenOver(callback: () => void): () => void
  /** The request is on its way. */
  sent(): void
}

/** Sends requests; its connections are shared by all exchanges of the process. */
export class Sender {
  readonly #connections = new Connections()
  readonly #proxy = createProxyServer()
  readonly #origins = new WeakMap<URL, string>()

  /** Requests that were sent again although all of them had left, since the start. */
  repeated = 0

  /**
   * Sends a POST and waits for the head of the answer. The request reaches the upstream at most once, unless nothing of it can
   * have been processed. It is sent again only on a connection that was kept, where the upstream closed it just as it was taken
   * up: before the last byte of the request had left, or so soon after it, and without a byte in return, that nobody has worked
   * on it.
   * @param path below the upstream's base address
   * @param again told when the request is sent again although all of it had left
   * @returns when the client left first, whether anything had been sent by then
   * @throws Unsent when no upstream can have understood the request; GatewayError upstream_failed or upstream_timeout when one may
   * have. Their causes name no credential
   */
  async send(
    to: Destination,
    path: string,
    headers: Record<string, string>,
    body: Buffer,
    client: Client,
    again: () => void,
  ): Promise<UpstreamReply | TakenBack> {
    try {
      return await this.#attempt(to, path, headers, body, client, false)
    } catch (thrown) {
      if (!(thrown instanceof StaleConnection)) throw thrown
      if (thrown.left) again()
      return await this.#attempt(to, path, headers, body, client, true)
    }
  }

  /** Closes idle connections. */
  close(): void {
    this.#connections.close()
  }

  #attempt(
    to: Destination,
    path: string,
    headers: Record<string, string>,
    body: Buffer,
    client: Client,
    fresh: boolean,
  ): Promise<UpstreamReply | TakenBack> {
    if (client.over) return Promise.resolve('unsent')
    const { timeouts } = to
    const origin = this.#origin(to.url)
    return new Promise((resolve, reject) => {
      const connection = this.#connections.take(origin, timeouts, fresh)
      const giveBack = (): void => this.#connections.give(connection)
      const request = new UpstreamRequest(path, headers, body, connection, timeouts.firstByte, {
        resolve,
        reject,
        giveBack,
      })
      request.forget = client.whenOver(() => request.takeBack())
      client.sent()
      const fetch = (url: string, init: { readonly headers: Headers }): Promise<never> =>
        request.dispatch(url.slice(origin.length), init.headers)
      this.#proxy.web(request as never, NO_RESPONSE as never, {
        target: to.url,
        fetch: fetch as never,
        selfHandleResponse: true,
      })
    })
  }

  #origin(url: URL): string {
    let origin = this.#origins.get(url)
    if (origin === undefined) this.#origins.set(url, (origin = url.origin))
    return origin
  }
}

const NO_RESPONSE = {}

interface Completion {
  resolve(reply: UpstreamReply | TakenBack): void
  reject(error: unknown): void
  giveBack(): void
}

/** The stand-in of one attempt, with the members that http-proxy-3's passes read and no others, and the attempt itself. */
class UpstreamRequest implements Dispatcher.DispatchHandler {
  readonly method = 'POST'
  readonly url: string
  readonly headers: Record<string, string>
  /** Stops listening for the client's leaving. */
  forget: () => void = () => {}
  readonly #body: Buffer
  readonly #connection: ConnectionInUse
  readonly #completion: Completion
  readonly #firstByte: Deadline
  #controller: Dispatcher.DispatchController | undefined
  #reply: UpstreamBody | undefined
  #concluded = false
  #over = false

  constructor(
    url: string,
    headers: Record<string, string>,
    body: Buffer,
    connection: ConnectionInUse,
    firstByteMs: number,
    completion: Completion,
  ) {
    this.url = url
    this.headers = headers
    this.#body = body
    this.#connection = connection
    this.#completion = completion
    this.#firstByte = deadline(firstByteMs, () => {
      const details = { cause: new Error('no first byte in time') }
      this.#fail(
        connection.wire.flushed
          ? new GatewayError('upstream_timeout', details)
          : new Unsent('upstream_timeout', details),
      )
    })
  }

  /** http-proxy-3 listens for errors of the client's request; this stand-in has none. */
  on(): this {
    return this
  }

  /**
   * Sends the request. @param path what http-proxy-3 made of the upstream's base path and the request's own
   * @returns a promise that stays pending: the answer is handled here, and not by http-proxy-3
   */
  dispatch(path: string, headers: Headers): Promise<never> {
    // http-proxy-3 asks for a connection of its own for each request, which the kept ones must not be.
    headers.delete('connection')
    this.#connection.client.dispatch(
      { path, method: 'POST', headers: Object.fromEntries(headers), body: this.#body },
      this,
    )
    return new Promise(() => {})
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#concluded) controller.abort(new Error('not wanted any more'))
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return
    if (!this.#conclude()) return controller.abort(new Error('not wanted any more'))
    const body = new UpstreamBody(controller)
    this.#reply = body
    this.#completion.resolve({ status, headers: single(headers), body, abort: () => body.destroy() })
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#connection.wire.bodyBytes += chunk.length
    this.#reply?.take(chunk)
  }

  onResponseEnd(): void {
    this.#finish()
    this.#reply?.conclude('ended')
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#finish()
    if (this.#reply) this.#reply.conclude('broken')
    else this.failed(error)
  }

  onRequestUpgrade(controller: Dispatcher.DispatchController): void {
    controller.abort(new Error('upstream switched protocols'))
  }

  failed(error: Error & { code?: string }): void {
    const { wire } = this.#connection
    const code = error.code === 'UND_ERR_CONNECT_TIMEOUT' ? 'upstream_timeout' : 'upstream_failed'
    if (!wire.flushed)
      return this.#fail(wire.reused ? new StaleConnection(false, error) : new Unsent(code, { cause: error }))
    const reset = error.code === 'ECONNRESET' || error.code === 'EPIPE' || error.code === 'UND_ERR_SOCKET'
    const soon = wire.waitedMs <= Math.min(3 * wire.connectMs + 100, SOON_MAX_MS)
    this.#fail(
      wire.reused && reset && soon && !wire.answered
        ? new StaleConnection(true, error)
        : new GatewayError(code, { cause: error }),
    )
  }

  takeBack(): void {
    if (!this.#conclude()) return
    const sent = this.#controller !== undefined
    this.#controller?.abort(new Error('the client left'))
    this.#completion.resolve(sent ? 'sent' : 'unsent')
  }

  #fail(error: GatewayError): void {
    if (!this.#conclude()) return
    this.#controller?.abort(error)
    this.#completion.reject(error)
  }

  #conclude(): boolean {
    if (this.#concluded) return false
    this.#concluded = true
    this.#firstByte.clear()
    this.forget()
    return true
  }

  /** The connection is free again, or broken and free to connect anew. */
  #finish(): void {
    if (this.#over) return
    this.#over = true
    this.#completion.giveBack()
  }
}

/** The longest time, in milliseconds, within which a kept connection that is closed was closed before anybody read the request. */
const SOON_MAX_MS = 1000

/** The request did not leave as a whole: no upstream can have understood it. */
export class Unsent extends GatewayError {}

/** A connection that had been kept was closed as it was taken up. */
class StaleConnection extends Unsent {
  /** All of the request had left by then. */
  readonly left: boolean

  constructor(left: boolean, cause: unknown) {
    super('upstream_failed', { cause })
    this.left = left
  }
}

/** Headers as their types have them: of one that is repeated, undici gives a list, and the first counts, as in Node's own client. */
function single(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  for (const name in headers) {
    const value = headers[name]
    if (Array.isArray(value) && name !== 'set-cookie') headers[name] = value[0]
  }
  return headers
}
