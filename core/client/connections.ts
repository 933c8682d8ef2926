/**
 * The connections of clients. The gateway serves one request of a connection at a time; requests that the client sends
 * ahead wait. Each address may have a limited number of idle connections. If there are too many connections, the one
 * that has been idle longest is closed.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { Socket } from 'node:net'
import { clientAddress, groupOf, type AddressRanges } from '../lib/addresses.ts'
import type { ProxyHeader } from '../lib/proxy-header.ts'
import { connectionsMax } from './memory.ts'

/** Limits on connections. */
export interface ConnectionLimits {
  /** Most open connections, if the process has memory and file descriptors for them. */
  readonly connections: number
  /** Most idle connections of one address. */
  readonly idlePerAddress: number
  /** Proxies that keep connections for many clients. Their idle connections are not limited. */
  readonly trustedProxies: AddressRanges
  /** Whether their connections begin with a header of the PROXY protocol. */
  readonly proxyProtocol: boolean
  /** Time limit for the headers of a request, and for that header. */
  readonly headersMs: number
}

/** Requests that a client may send ahead. If it sends more, the connection is closed after them. */
const AHEAD_MAX = 10

/** One client's connection. */
export class ClientConnection {
  readonly socket: Socket
  /** The address at its other end, or the one that its PROXY protocol header names. */
  remote: string
  /** The group of addresses that it counts for; undefined for a trusted proxy. */
  group: string | undefined
  /** Bytes of its PROXY protocol header; undefined while it is awaited. */
  headerBytes: number | undefined = 0
  /** Whether the proxy has said that this connection is its own, or has not said whose it is. */
  ofProxyItself = false
  /** The connections before and after it among the idle ones of its address. */
  previous: ClientConnection | undefined
  next: ClientConnection | undefined
  idleSince = 0
  /** A request of this connection is being served. */
  busy = false
  /** Whether that request has arrived completely. */
  arrived: () => boolean = () => true
  /** Starts the requests that were sent ahead, in order. */
  readonly #ahead: (() => void)[] = []
  /** The socket is paused. */
  #paused = false
  /** Ends the connection after the requests that were sent ahead. */
  #end: (() => void) | undefined

  /** @param group undefined for a trusted proxy */
  constructor(socket: Socket, remote: string, group: string | undefined) {
    this.socket = socket
    this.remote = remote
    this.group = group
  }

  /** The client's address of a request on this connection. A proxy's own requests are not its clients'. */
  clientOf(headers: IncomingHttpHeaders, trusted: AddressRanges): string {
    return clientAddress(trusted, this.remote, this.ofProxyItself ? undefined : headers['x-forwarded-for'])
  }

  /** Remembers a request that arrived while another is served, and pauses the socket. */
  wait(start: () => void): void {
    if (this.#end) return
    if (this.#ahead.length < AHEAD_MAX) this.#ahead.push(start)
    else this.#end = () => this.socket.destroy()
    this.#pause()
  }

  /** Ends the connection when the requests before have been answered. */
  endAfter(end: () => void): void {
    this.#end ??= end
    this.#pause()
  }

  #pause(): void {
    this.#paused = true
    this.socket.pause()
  }

  /** What comes next on this connection; undefined if it is idle. */
  following(): (() => void) | undefined {
    const start = this.#ahead.shift()
    // Node resumes the socket when a reply has been sent.
    if (start && (this.#ahead.length > 0 || this.#end)) this.#pause()
    else if (this.#paused) {
      this.#paused = false
      this.socket.resume()
    }
    return start ?? this.#end
  }
}

/** The idle connections of one address. The one that has been idle longest comes first. */
class Idle {
  first: ClientConnection | undefined
  size = 0
  #last: ClientConnection | undefined

  push(connection: ClientConnection): void {
    connection.previous = this.#last
    connection.next = undefined
    if (this.#last) this.#last.next = connection
    else this.first = connection
    this.#last = connection
    this.size++
  }

  remove(connection: ClientConnection): void {
    const { previous, next } = connection
    if (previous) previous.next = next
    else this.first = next
    if (next) next.previous = previous
    else this.#last = previous
    connection.previous = connection.next = undefined
    this.size--
  }
}

/** All connections of clients. */
export class ClientConnections {
  readonly #limits: () => ConnectionLimits
  readonly #openFiles: number
  readonly #all = new Map<Socket, ClientConnection>()
  /** By address. Those of trusted proxies are under undefined. */
  readonly #idle = new Map<string | undefined, Idle>()

  /** New connections that were refused, and idle ones that were closed to make room, since the start. */
  refused = 0
  closed = 0

  /**
   * @param limits the limits in force
   * @param openFiles most file descriptors of the process
   */
  constructor(limits: () => ConnectionLimits, openFiles: number) {
    this.#limits = limits
    this.#openFiles = openFiles
  }

  /**
   * Adds a new connection. If there are too many, the one that has been idle longest is closed, or this one if none is
   * idle.
   */
  open(socket: Socket): void {
    const { connections } = this.#limits()
    const remote = socket.remoteAddress ?? ''
    const connection = new ClientConnection(socket, remote, this.#groupOf(remote))
    if (this.#all.size >= connectionsMax(connections, this.#openFiles)) {
      const oldest = this.#longestIdle()
      if (!oldest) {
        this.refused++
        return void socket.destroy()
      }
      this.closed++
      this.#close(oldest)
    }
    this.#all.set(socket, connection)
    socket.on('close', () => this.#forget(connection))
    this.#rest(connection)
  }

  /**
   * Notes whether a connection begins with a header of the PROXY protocol.
   * @returns the time limit for the header in milliseconds; undefined if there is none
   */
  awaitHeader(socket: Socket): number | undefined {
    const { proxyProtocol, trustedProxies, headersMs } = this.#limits()
    const connection = this.#all.get(socket)
    if (!connection || !proxyProtocol || !trustedProxies.has(connection.remote)) return undefined
    connection.headerBytes = undefined
    return headersMs
  }

  /** Notes what the header says about whose connection this is. */
  identify(socket: Socket, { source, bytes }: ProxyHeader): void {
    const connection = this.#all.get(socket)
    if (!connection) return
    connection.headerBytes = bytes
    connection.ofProxyItself = source === undefined
    if (source === undefined) return
    this.#idle.get(connection.group)?.remove(connection)
    connection.remote = source
    connection.group = this.#groupOf(source)
    this.#rest(connection)
  }

  get size(): number {
    return this.#all.size
  }

  of(socket: Socket): ClientConnection | undefined {
    return this.#all.get(socket)
  }

  /** Serves a request: now, or when the requests before it on this connection have been answered. */
  take(connection: ClientConnection, start: () => void): void {
    if (connection.busy) return connection.wait(start)
    connection.busy = true
    this.#idle.get(connection.group)?.remove(connection)
    start()
  }

  /** A reply has been sent: serves the next request of the connection, or notes that it is idle. */
  replied(connection: ClientConnection): void {
    if (!this.#all.has(connection.socket) || connection.socket.destroyed) return
    connection.arrived = () => true
    const next = connection.following()
    // Other connections get their turn between two requests of this one.
    if (next) setImmediate(next)
    else {
      connection.busy = false
      this.#rest(connection)
    }
  }

  /** Closes connections whose clients have never sent anything. */
  closeSilent(): void {
    for (const { socket, headerBytes = Infinity } of this.#all.values())
      if (socket.bytesRead <= headerBytes) socket.destroy()
  }

  /**
   * Notes that a connection is idle. If its address has too many idle ones, the one that has been idle longest is
   * closed.
   */
  #rest(connection: ClientConnection): void {
    const { group } = connection
    let idle = this.#idle.get(group)
    if (!idle) this.#idle.set(group, (idle = new Idle()))
    connection.idleSince = performance.now()
    idle.push(connection)
    if (group !== undefined && idle.first && idle.size > this.#limits().idlePerAddress) this.#close(idle.first)
  }

  /** The group that a connection from an address counts for; undefined for a trusted proxy. */
  #groupOf(address: string): string | undefined {
    return this.#limits().trustedProxies.has(address) ? undefined : groupOf(address)
  }

  #longestIdle(): ClientConnection | undefined {
    let oldest: ClientConnection | undefined
    for (const { first } of this.#idle.values())
      if (first && (!oldest || first.idleSince < oldest.idleSince)) oldest = first
    return oldest
  }

  #close(connection: ClientConnection): void {
    this.#forget(connection)
    connection.socket.destroy()
  }

  #forget(connection: ClientConnection): void {
    if (!this.#all.delete(connection.socket)) return
    const { group } = connection
    const idle = this.#idle.get(group)
    if (!connection.busy) idle?.remove(connection)
    if (idle?.size === 0) this.#idle.delete(group)
  }
}
