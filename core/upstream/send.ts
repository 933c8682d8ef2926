/**
 * http-proxy-3 behind one promise: sends a checked body to an upstream and resolves with the head of its answer.
 *
 * http-proxy-3 is handed stand-ins for the client's request and response. What the stand-in request does not carry
 * cannot leak upstream, and the real response closing does not by itself tear the upstream connection down: whether a
 * client that left cancels its upstream is decided by the relay.
 */
import http, { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import https from 'node:https'
import type { Socket } from 'node:net'
import { createProxyServer } from 'http-proxy-3'
import { GatewayError } from '../errors.ts'

/** Where a request goes and how long each step may take, in milliseconds. */
export interface Destination {
  readonly url: URL
  readonly timeouts: { readonly connect: number; readonly firstByte: number }
}

/** An upstream's answer whose body has not been read. */
export interface UpstreamReply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: IncomingMessage
  /** Closes the connection to the upstream. */
  abort(): void
}

/** A request that was taken back, before or after it had gone out. */
export type TakenBack = 'unsent' | 'sent'

/** Whom the answer is for. */
export interface Client {
  readonly gone: boolean
  /** Calls back when the client leaves; returns what takes the wish back. */
  whenGone(callback: () => void): () => void
}

const KEEP_ALIVE = { keepAlive: true, maxFreeSockets: 1024 } as const

/** Connections to upstreams, kept alive and shared by all exchanges of the process. */
export class Sender {
  readonly #agents = { 'http:': new http.Agent(KEEP_ALIVE), 'https:': new https.Agent(KEEP_ALIVE) }
  readonly #proxy = createProxyServer({ selfHandleResponse: true, toProxy: true, prependPath: false })
  readonly #targets = new WeakMap<URL, object>()

  constructor() {
    this.#proxy.on('proxyReq', (proxyReq, req, _res, _options, socket) => passageOf(req).connected(proxyReq, socket))
    this.#proxy.on('proxyRes', (proxyRes, req) => passageOf(req).answered(proxyRes))
  }

  /**
   * Sends a POST and waits for the head of the answer. A kept-alive connection that the upstream closed just as it was
   * taken up is replaced by a new one, once. Such a reset cannot be told from one after the request was read; the
   * client's own retry, which a failure would bring about, could not tell them apart either.
   * @param path below the upstream's base address
   * @returns when the client left first, whether anything had been sent by then
   * @throws GatewayError upstream_failed or upstream_timeout; their causes name no credential
   */
  async send(to: Destination, path: string, headers: Record<string, string>, body: Buffer, client: Client): Promise<UpstreamReply | TakenBack> {
    try {
      return await this.#attempt(to, path, headers, body, client)
    } catch (thrown) {
      if (!(thrown instanceof StaleConnection)) throw thrown
      return await this.#attempt(to, path, headers, body, client)
    }
  }

  /** Closes idle connections. */
  close(): void {
    this.#agents['http:'].destroy()
    this.#agents['https:'].destroy()
  }

  #attempt(to: Destination, path: string, headers: Record<string, string>, body: Buffer, client: Client): Promise<UpstreamReply | TakenBack> {
    if (client.gone) return Promise.resolve('unsent')
    const agent = this.#agents[to.url.protocol as 'http:' | 'https:']
    const prefix = to.url.pathname.replace(/\/$/, '')
    return new Promise((resolve, reject) => {
      const passage = new Passage(prefix + path, { ...headers, 'content-length': String(body.length) }, to.timeouts.firstByte, resolve, reject)
      passage.forget = client.whenGone(() => passage.takeBack())
      this.#proxy.web(
        passage as unknown as IncomingMessage,
        passage.response as unknown as ServerResponse,
        // The body is whole: one `end` instead of a pipe.
        { target: this.#target(to.url), agent, connectTimeout: to.timeouts.connect, buffer: { pipe: (up: ClientRequest) => up.end(body) } as never },
        error => passage.failed(error),
      )
    })
  }

  /** http-proxy-3 takes a plain object as it is; a URL it would parse anew for each request. */
  #target(url: URL): never {
    let target = this.#targets.get(url)
    if (!target) {
      const port = url.port || (url.protocol === 'https:' ? '443' : '80')
      target = { protocol: url.protocol, host: url.hostname, hostname: url.hostname, port }
      this.#targets.set(url, target)
    }
    return target as never
  }
}

/** The stand-ins of one attempt, with the members http-proxy-3 reads and no others. */
class Passage {
  readonly method = 'POST'
  readonly url: string
  readonly headers: Record<string, string>
  readonly httpVersionMajor = 1
  readonly socket = { destroyed: false }
  readonly response = { headersSent: false, finished: false, writableFinished: false, on: (_event: string, _listener: () => void) => {} }
  readonly #resolve: (reply: UpstreamReply | TakenBack) => void
  /** Stops listening for the client's leaving. */
  forget: () => void = () => {}
  readonly #reject: (error: unknown) => void
  readonly #timer: NodeJS.Timeout
  #request: ClientRequest | undefined
  #settled = false

  constructor(
    url: string,
    headers: Record<string, string>,
    firstByte: number,
    resolve: (reply: UpstreamReply | TakenBack) => void,
    reject: (error: unknown) => void,
  ) {
    this.url = url
    this.headers = headers
    this.#resolve = resolve
    this.#reject = reject
    this.#timer = setTimeout(() => this.#fail(new GatewayError('upstream_timeout', { cause: new Error('no first byte in time') })), firstByte)
  }

  /** http-proxy-3 listens for errors of the client's request; the stand-in has none. */
  on(): this {
    return this
  }

  connected(request: ClientRequest, _socket: Socket): void {
    this.#request = request
    if (this.#settled) {
      request.destroy()
      return
    }
    // A switch of protocols, and a connection that closes without a word, are answers as bad as any.
    request.on('upgrade', (_response, socket: Socket) => {
      socket.destroy()
      this.failed(new Error('upstream switched protocols'))
    })
    request.on('close', () => this.#settled || this.failed(new Error('upstream closed the connection')))
  }

  answered(body: IncomingMessage): void {
    if (!this.#settle()) {
      body.destroy()
      return
    }
    // Whoever reads the body learns of its end by `close`; an error without a listener would end the process.
    body.on('error', () => {})
    this.#resolve({ status: body.statusCode ?? 0, headers: body.headers, body, abort: () => body.destroy() })
  }

  failed(error: Error & { code?: string }): void {
    const reset = error.code === 'ECONNRESET' || error.code === 'EPIPE'
    if (reset && this.#request?.reusedSocket) this.#fail(new StaleConnection(error))
    else if (error.code === 'ECONNECT_TIMEOUT') this.#fail(new GatewayError('upstream_timeout', { cause: error }))
    else this.#fail(new GatewayError('upstream_failed', { cause: error }))
  }

  takeBack(): void {
    if (!this.#settle()) return
    const sent = this.#request !== undefined && !this.#request.socket?.connecting
    this.#request?.destroy()
    this.#resolve(sent ? 'sent' : 'unsent')
  }

  #fail(error: GatewayError): void {
    if (!this.#settle()) return
    this.#request?.destroy()
    this.#reject(error)
  }

  #settle(): boolean {
    if (this.#settled) return false
    this.#settled = true
    clearTimeout(this.#timer)
    this.forget()
    return true
  }
}

class StaleConnection extends GatewayError {
  constructor(cause: unknown) {
    super('upstream_failed', { cause })
  }
}

function passageOf(req: IncomingMessage): Passage {
  return req as unknown as Passage
}
