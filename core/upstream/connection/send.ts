/**
 * Sends a checked request to an upstream by http-proxy-3, and resolves with the head of the answer.
 *
 * http-proxy-3 gets a stand-in for the client's request and a `fetch` of the gateway's own, which hands the request to
 * an undici client with an allow-list of headers and nothing else. The library sees neither these headers nor a
 * response: the relay decides whether a client that left ends its upstream's work, and reads the body of the answer.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import type { Dispatcher } from 'undici'
import { bytesIn, joined } from '../../lib/byte-buffer.ts'
import { deadline, type Deadline } from '../../lib/deadline.ts'
import { GatewayError, soonMs } from '../../errors.ts'
import type { UpstreamTimeouts } from '../../config/config.ts'
import { type ConnectionInUse, Connections, type ConnectionTimes, type Peer } from './connections.ts'
import { LONG_BYTES } from '../../lib/turns.ts'
import { LargeBody } from './large-body.ts'
import { UpstreamBody } from './reply-body.ts'

/** The address of a request and the time limits of each step, in milliseconds. */
export interface Destination extends Peer {
  readonly url: URL
  readonly timeouts: ConnectionTimes & Pick<UpstreamTimeouts, 'firstByteMs'>
}

/** An upstream's answer with an unread body. */
export interface UpstreamReply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: UpstreamBody
  /** Closes the connection to the upstream. */
  abort(): void
}

/** Whether a cancelled request had been sent. */
export type TakenBack = 'unsent' | 'sent'

/** The recipient of the answer. */
export interface Client {
  /** Whether no client waits for the answer any more. */
  readonly over: boolean
  /** Calls back when no client waits any more. Returns a function that unsubscribes. */
  whenOver(callback: () => void): () => void
  /** Called when the request has been sent. */
  sent(): void
}

/** A request as it is sent. */
export interface SentRequest {
  /** Relative to the upstream's base address. */
  readonly path: string
  readonly headers: Record<string, string>
  /** The body in parts. */
  readonly body: readonly Buffer[]
}

/** Sends requests. All exchanges of a process share its connections. */
export class Sender {
  readonly #connections = new Connections()
  readonly #proxy = createProxyServer()
  readonly #origins = new WeakMap<URL, string>()

  /** Number of requests since the start that were sent again although they had been sent completely. */
  repeated = 0

  /**
   * Sends a POST request and waits for the header of the answer. The request is sent again only if the upstream cannot
   * have processed it: on a reused connection that the upstream closed before the last byte was sent, or so soon after
   * it and without any reply that the upstream cannot have worked on it.
   * @param again called when the request is sent again although it had been sent completely
   * @returns if the client left first: whether anything had been sent
   * @throws Unsent if no upstream can have understood the request; GatewayError upstream_failed or upstream_timeout
   * otherwise. Their causes contain no credentials
   */
  async send(
    to: Destination,
    sent: SentRequest,
    client: Client,
    again: () => void,
  ): Promise<UpstreamReply | TakenBack> {
    try {
      return await this.#attempt(to, sent, client, false)
    } catch (thrown) {
      if (!(thrown instanceof StaleConnection)) throw thrown
      if (thrown.left) again()
      return await this.#attempt(to, sent, client, true)
    }
  }

  /** Closes idle connections. */
  close(): void {
    this.#connections.close()
  }

  #attempt(to: Destination, sent: SentRequest, client: Client, fresh: boolean): Promise<UpstreamReply | TakenBack> {
    if (client.over) return Promise.resolve('unsent')
    const origin = this.#origin(to.url)
    const connection = this.#connections.take(origin, to, bytesIn(sent.body), fresh)
    const { promise, resolve, reject } = Promise.withResolvers<UpstreamReply | TakenBack>()
    // No function here may use `sent`: the functions stay until the reply ends, and the body would stay with them.
    const request = new UpstreamRequest(sent, to, connection, {
      resolve,
      reject,
      answered: () => this.#connections.answered(connection),
      giveBack: () => this.#connections.give(connection),
    })
    request.forget = client.whenOver(() => request.takeBack())
    client.sent()
    const fetch = (url: string): Promise<never> => request.dispatch(url.slice(origin.length))
    this.#proxy.web(request as never, NO_RESPONSE as never, {
      ...PROXY_OPTIONS,
      // Only other paths need the normalisation, which parses a URL.
      toProxy: NORMAL_PATH.test(sent.path),
      target: to.url,
      fetch: fetch as never,
    })
    return promise
  }

  #origin(url: URL): string {
    let origin = this.#origins.get(url)
    if (origin === undefined) this.#origins.set(url, (origin = url.origin))
    return origin
  }
}

const NO_RESPONSE = {}
const NORMAL_PATH = /^[\w/-]+(?:\?[\w=&%+.*~-]*)?$/

const PROXY_OPTIONS = {
  selfHandleResponse: true,
  // Without headers of its own, http-proxy-3 would copy those of the request one by one.
  fetchOptions: { requestOptions: { headers: {} } },
} as const

interface Completion {
  resolve(reply: UpstreamReply | TakenBack): void
  reject(error: unknown): void
  answered(): void
  giveBack(): void
}

/**
 * One attempt at a request. For http-proxy-3 it stands in for the client's request, with only the members that
 * http-proxy-3 reads.
 */
class UpstreamRequest implements Dispatcher.DispatchHandler {
  readonly method = 'POST'
  readonly url: string
  readonly headers = {}
  /** Unsubscribes from the client. */
  forget: () => void = () => {}
  readonly #headers: Record<string, string>
  readonly #body: Buffer | LargeBody
  readonly #connection: ConnectionInUse
  readonly #completion: Completion
  readonly #firstByte: Deadline
  #controller: Dispatcher.DispatchController | undefined
  #reply: UpstreamBody | undefined
  #concluded = false
  #over = false

  constructor(
    { path, headers, body }: SentRequest,
    { http2, timeouts }: Destination,
    connection: ConnectionInUse,
    completion: Completion,
  ) {
    this.url = path
    const { bodyBytes } = connection
    // undici itself repeats a request that an HTTP/2 server has not processed, and can do so with a buffer only.
    const isLarge = bodyBytes > LONG_BYTES && !http2
    this.#headers = isLarge ? { ...headers, 'content-length': String(bodyBytes) } : headers
    this.#body = isLarge ? new LargeBody(body) : joined(body)
    this.#connection = connection
    this.#completion = completion
    this.#firstByte = deadline(timeouts.firstByteMs, () => {
      const details = { cause: new Error('no first byte within timeouts.firstByte') }
      this.#fail(
        connection.wire.flushed
          ? new GatewayError('upstream_timeout', details)
          : new Unsent('upstream_timeout', details),
      )
    })
  }

  /** http-proxy-3 subscribes to errors of the client's request. There are none. */
  on(): this {
    return this
  }

  /**
   * Sends the request.
   * @param path built by http-proxy-3 from the upstream's base path and the request's path
   * @returns a promise that never resolves: this class handles the answer itself
   */
  dispatch(path: string): Promise<never> {
    const { connection, joins } = this.#connection
    // undici takes an iterable as a body, which its types do not have.
    const body = this.#body as Buffer
    connection.client.dispatch({ path, method: 'POST', headers: this.#headers, body }, this)
    // Others may run for long. Its turn on this connection passes unused.
    if (joins && connection.learnsItIsFull())
      this.#fail(new StaleConnection(false, new Error('the connection is full')))
    return new Promise(() => {})
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    this.#connection.wire.started()
    if (this.#concluded) controller.abort(new Error('no longer wanted'))
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return
    if (!this.#conclude()) return controller.abort(new Error('no longer wanted'))
    this.#completion.answered()
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
    if (!wire.flushed && isOwnFault(error))
      return this.#fail(new GatewayError('unavailable', { cause: error, retryAfterMs: soonMs() }))
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

  /** Returns the connection to the pool, where a broken one reconnects at its next use. */
  #finish(): void {
    if (this.#over) return
    this.#over = true
    this.#completion.giveBack()
  }
}

/**
 * Upper limit for "so soon", in milliseconds: a reused connection closed within this time was closed before anyone read
 * the request.
 */
const SOON_MAX_MS = 1000

/** Failures to connect that are the gateway's own: it has no more file descriptors or memory. */
const OWN_FAULTS: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM'])

/**
 * Whether a connection failed by the gateway's own fault. Of several addresses that were tried, one may be of a kind that
 * the machine does not have; the code of the whole is that of the first.
 */
export function isOwnFault(error: Error & { readonly code?: string }): boolean {
  return error instanceof AggregateError ? error.errors.some(isOwnFault) : OWN_FAULTS.has(error.code)
}

/** The request was not sent completely, so no upstream can have understood it. */
export class Unsent extends GatewayError {}

/** A reused connection was closed as the request began. */
class StaleConnection extends Unsent {
  /** Whether the request had been sent completely. */
  readonly left: boolean

  constructor(left: boolean, cause: unknown) {
    super('upstream_failed', { cause })
    this.left = left
  }
}

/**
 * Converts headers to Node's types. For a repeated header, undici returns a list; the first value counts, as in Node's
 * own client.
 */
function single(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  for (const name in headers) {
    const value = headers[name]
    if (Array.isArray(value) && name !== 'set-cookie') headers[name] = value[0]
  }
  return headers
}
