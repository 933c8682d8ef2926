/**
 * The HTTP server: one exchange per request, limits on everything that a client can prolong, and the drain at the end.
 */
import cluster from 'node:cluster'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, createServer as createNetServer, type Server as NetServer, type Socket } from 'node:net'
import { platform } from 'node:os'
import type { Forward } from '../chain/chain.ts'
import { type ClientConnection, ClientConnections } from '../client/connections.ts'
import type { Limits } from '../config/config.ts'
import { deadline, type Deadline } from '../lib/deadline.ts'
import { GatewayError } from '../errors.ts'
import type { Generation, Site } from '../chain/generation.ts'
import { answerBrokenRequest, HEADER_COUNT_MAX, malformed } from './broken-requests.ts'
import type { Log } from '../lib/log.ts'
import { refusalOf } from '../lib/free-port.ts'
import { readProxyHeaders } from '../client/proxied-connections.ts'
import { HttpExchange } from '../exchange/http-exchange.ts'
import type { ServerResources } from '../exchange/resources.ts'
import { connectionsMax } from '../client/memory.ts'
import { FairBudget } from '../lib/fair-budget.ts'
import { PerMinute } from '../client/per-minute.ts'
import { SwapList } from '../lib/swap-list.ts'

/** What the server needs from the gateway. */
export interface ServerOptions {
  /** Returns the configuration in force. */
  current(): Generation
  /** Returns what a configuration serves at this address; undefined if it serves nothing here. */
  readonly site: (generation: Generation) => Site | undefined
  /** The setting of its port. */
  readonly setting: string
  /** Whether customers call this address, so that requests without a valid key are limited. */
  readonly isPublic: boolean
  readonly forward: Forward
  readonly newId: () => string
  readonly now: () => number
  readonly log: Log
  /** Memory for the requests and replies of this process. */
  readonly memory: FairBudget
  /** Most file descriptors of the process. */
  readonly openFiles: number
  /** Returns whether the headers contain a key that was valid at its last look-up. */
  recognises(headers: IncomingHttpHeaders): boolean
}

/**
 * Node checks for late headers this many times within their limit and allows that much more, since after a pause of the
 * process they may be unread in the socket. Together, the delay is at most one eighth of the limit.
 */
const LOOKS = 16

/** With fewer slots, one key would occupy all of them. */
const SLOTS_MIN = 2

/** Connections that wait at a socket to be accepted. */
const BACKLOG = 4096
/**
 * Sockets that listen where customers call. Node accepts one connection of a socket in a turn of the event loop, so that
 * a flood of new connections would let everybody wait for as many turns as connections came before.
 */
const LISTENING_SOCKETS = 16
/** Whether sockets may share a port. Workers share one socket of their host. */
const MAY_SHARE_PORTS = platform() === 'linux' && cluster.isPrimary

/** The HTTP server of one address in one process. */
export class GatewayServer {
  readonly #options: ServerOptions
  readonly #server: Server
  /** Further sockets that listen at the same address. */
  readonly #more: NetServer[] = []
  readonly #running = new SwapList<HttpExchange>()
  readonly #connections: ClientConnections
  /** Requests without a valid key, by client address. */
  readonly #anonymous: PerMinute
  /** Connections whose headers are late. */
  readonly #late = new WeakMap<Socket, Deadline>()
  readonly #resources: ServerResources
  #draining = false
  #suspected = false
  /** The number of refusals at the last warning. */
  #warned = { memory: 0, connections: 0 }

  constructor(options: ServerOptions) {
    this.#options = options
    this.#resources = { now: options.now, memory: options.memory, slots: new FairBudget(0), discardedBodies: 0 }
    this.#anonymous = new PerMinute(options.now)
    this.#connections = new ClientConnections(() => options.current().config.limits, options.openFiles)
    const { limits } = options.current().config
    this.#server = createServer({
      maxHeaderSize: limits.headersBytes + limits.urlBytes,
      headersTimeout: limits.headersMs,
      // Bodies have limits of their own, which start when the body is requested.
      requestTimeout: 0,
      connectionsCheckingInterval: Math.ceil(limits.headersMs / LOOKS),
      keepAliveTimeout: limits.idleConnectionMs,
      noDelay: true,
    })
    // One more than allowed: Node drops headers beyond its limit silently, and such a request must be refused.
    this.#server.maxHeadersCount = HEADER_COUNT_MAX + 1
    readProxyHeaders(this.#server, this.#connections)
    this.#server.on('request', (req, res) => this.#take(req, res))
    // The stages decide whether a client may send its body.
    this.#server.on('checkContinue', (req, res) => this.#take(req, res))
    // Other expectations of a client are ignored.
    this.#server.on('checkExpectation', (req, res) => this.#take(req, res))
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
      const connection = this.#connections.of(socket)
      const answer = (): void => answerBrokenRequest(error, socket, limits.unreadMs)
      // The malformed bytes follow a request that is being served. Its reply comes first.
      if (connection?.busy && connection.arrived()) return connection.endAfter(answer)
      if (error.code !== 'ERR_HTTP_REQUEST_TIMEOUT' || this.#late.has(socket)) return answer()
      this.#late.set(socket, deadline(limits.headersMs / LOOKS, answer))
    })
    this.#server.on('connect', (_req, socket: Socket) => {
      // Node no longer handles this socket, so its errors would be uncaught.
      socket.on('error', () => {})
      socket.end('HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n', () =>
        socket.destroy(),
      )
    })
  }

  /** Starts to listen. @returns the port; @throws if the address is not available */
  async listen(host: string, port: number): Promise<number> {
    const bound = await this.#listen(this.#server, host, port)
    if (!MAY_SHARE_PORTS || !this.#options.isPublic) return bound
    for (let sockets = 1; sockets < LISTENING_SOCKETS; sockets++) {
      const more = createNetServer({ allowHalfOpen: true, noDelay: true }, socket =>
        this.#server.emit('connection', socket),
      )
      await this.#listen(more, host, bound)
      this.#more.push(more)
    }
    return bound
  }

  #listen(server: NetServer, host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      const failed = (cause: Error): void => reject(refusalOf(cause, { host, port }, this.#options.setting))
      server.once('error', failed)
      server.listen({ host, port, backlog: BACKLOG, reusePort: MAY_SHARE_PORTS && this.#options.isPublic }, () => {
        server.off('error', failed)
        resolve((server.address() as AddressInfo).port)
      })
    })
  }

  /** Number of running exchanges. */
  get running(): number {
    return this.#running.size
  }

  /** Number of open client connections. */
  get connections(): number {
    return this.#connections.size
  }

  /**
   * Accepts no more requests and waits for running ones. At the limit, the rest is ended with an error in its own
   * format. Resolves when everything has been settled.
   * @param limit milliseconds
   */
  async drain(limit: number): Promise<void> {
    this.#draining = true
    const closed = Promise.all(
      [this.#server, ...this.#more].map(server => new Promise<void>(resolve => server.close(() => resolve()))),
    )
    const closeIdle = (): void => {
      this.#server.closeIdleConnections()
      // Node treats a connection that has never sent anything as active.
      this.#connections.closeSilent()
    }
    closeIdle()
    const idle = setInterval(closeIdle, 50)
    const cut = setTimeout(() => {
      for (const exchange of this.#running.all()) exchange.stop('drain')
    }, limit)
    // A client that does not even read its error is disconnected.
    const force = setTimeout(() => this.#server.closeAllConnections(), limit + 2000)
    await closed
    clearInterval(idle)
    clearTimeout(force)
    // Exchanges whose clients have left have no connection that would announce their end.
    while (this.#running.size > 0) await new Promise(resolve => setTimeout(resolve, 5))
    clearTimeout(cut)
  }

  #take(req: IncomingMessage, res: ServerResponse): void {
    this.#late.get(req.socket)?.clear()
    this.#late.delete(req.socket)
    const connection = this.#connections.of(req.socket)
    if (connection) this.#connections.take(connection, () => this.#start(req, res, connection))
  }

  #start(req: IncomingMessage, res: ServerResponse, connection: ClientConnection): void {
    if (req.destroyed) return
    connection.arrived = () => req.complete
    res.on('close', () => this.#connections.replied(connection))
    const generation = this.#options.current()
    this.#resources.slots.total = Math.max(
      SLOTS_MIN,
      connectionsMax(generation.config.limits.connections, this.#options.openFiles),
    )
    const setup = { id: this.#options.newId(), limits: generation.config.limits, connection }
    const x = new HttpExchange(req, res, setup, this.#resources)
    if (this.#draining) res.setHeader('connection', 'close')
    void this.#serve(generation, req, x)
  }

  async #serve(generation: Generation, req: IncomingMessage, x: HttpExchange): Promise<void> {
    this.#running.add(x)
    generation.enter()
    if (this.#options.isPublic) generation.arrived(x)
    try {
      await this.#run(generation, req, x)
    } finally {
      x.resources.close(cause =>
        this.#options.log.error({ exchange: x.id, err: cause }, 'a callback of whenClosed failed'),
      )
      this.#count(x, generation.config.limits)
      generation.leave()
      this.#running.delete(x)
    }
  }

  /**
   * Counts a request without a valid key for its client address. Requests from a trusted proxy itself, such as health
   * checks, do not count.
   */
  #count(x: HttpExchange, { trustedProxies }: Limits): void {
    // A key that this request looked up is known now.
    if (
      !this.#options.isPublic ||
      x.key !== undefined ||
      CHECKS.has(x.path) ||
      this.#options.recognises(x.headers) ||
      trustedProxies.has(x.address)
    )
      return
    this.#anonymous.add(x.addressGroup)
  }

  #run(generation: Generation, req: IncomingMessage, x: HttpExchange): Promise<void> {
    const broken =
      malformed(req, generation.config.limits.urlBytes) ?? this.#tooMany(generation.config.limits.anonymous, x)
    if (broken) return generation.watchers.run(x, () => Promise.reject(broken))
    const routes = this.#options.site(generation)?.routes
    if (!routes) return generation.watchers.run(x, () => Promise.reject(new GatewayError('not_found')))
    const found = routes.find(x.method, x.path)
    if ('target' in found) return found.target.run(x, this.#options.forward)
    const bare = x.path.replace(/\/$/, '')
    const meant = [bare, `/v1${bare}`, bare.replace('/v1/v1/', '/v1/')].find(
      path => path !== x.path && 'target' in routes.find(x.method, path),
    )
    return generation.watchers.run(x, () => Promise.reject(unrouted(found.allow, meant, req.headers.upgrade)))
  }

  /** Logs once that a refused address may be a proxy. */
  #suspectProxy(address: string): void {
    if (this.#suspected) return
    this.#suspected = true
    this.#options.log.warn(
      { address },
      'refusing an address that sends x-forwarded-for, after too many requests without a valid key; if it is your proxy, add it to limits.trustedProxies',
    )
  }

  /** Logs refusals since the last call, if there were any. */
  warn(): void {
    const { log, memory } = this.#options
    const { refused, closed } = this.#connections
    // All addresses share the memory.
    if (this.#options.isPublic && memory.refused > this.#warned.memory) {
      log.warn(
        { refused: memory.refused - this.#warned.memory, taken: memory.taken, total: memory.total },
        'requests or replies were refused for lack of memory; see limits.memory',
      )
    }
    if (refused + closed > this.#warned.connections) {
      log.warn(
        { refused, closed, open: this.#connections.size },
        'there are too many connections: some were refused, or idle ones closed; see limits.connections',
      )
    }
    this.#warned = { memory: memory.refused, connections: refused + closed }
  }

  /** Refuses an address with too many requests without a valid key, before any look-up, unless this request has one. */
  #tooMany(most: number, x: HttpExchange): GatewayError | undefined {
    if (!this.#options.isPublic) return undefined
    const retryAfterMs = this.#anonymous.waitMs(x.addressGroup, most)
    if (retryAfterMs === 0 || CHECKS.has(x.path) || this.#options.recognises(x.headers)) return undefined
    if (x.headers['x-forwarded-for'] !== undefined) this.#suspectProxy(x.address)
    const message = 'Too many requests without a valid API key from this address.'
    return new GatewayError('rate_limited', { message, retryAfterMs, headers: { connection: 'close' } })
  }
}

/**
 * Health checks of load balancers. They report the gateway's health, so wrong keys from the same address do not matter.
 */
const CHECKS: ReadonlySet<string> = new Set(['/health', '/health/ready'])

/** Returns the error for a request without an endpoint. @param meant the path that its client meant */
function unrouted(allow: readonly string[], meant: string | undefined, upgrade = ''): GatewayError {
  if (meant !== undefined) {
    const message = `There is nothing at this path. Did you mean ${meant}? Check your client's base URL.`
    return new GatewayError('not_found', { message })
  }
  if (allow.length === 0) return new GatewayError('not_found')
  // Some agents open a WebSocket first. After any other status they try again several times.
  if (upgrade.toLowerCase() === 'websocket') return new GatewayError('websocket_unsupported')
  return new GatewayError('method_not_allowed', { headers: { allow: allow.join(', ') } })
}
