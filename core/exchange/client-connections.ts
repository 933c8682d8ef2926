/**
 * The connections of clients. One request of a connection is served at a time; requests that a client sends ahead wait. Idle
 * connections are few for each address, and when there are too many connections the one that has been idle longest is closed.
 */
import type { Socket } from 'node:net'
import { groupOf, type TrustedProxies } from '../lib/addresses.ts'
import { connectionsMax } from './memory.ts'

/** How many connections there may be. */
export interface ConnectionLimits {
  /** Open connections, where the heap has room for them. */
  readonly connections: number
  /** Idle connections of one address. */
  readonly idlePerAddress: number
  /** Proxies that keep connections for many clients: they may have as many idle ones as they like. */
  readonly trustedProxies: TrustedProxies
}

/** Requests that a client may send ahead and that are remembered; behind them the connection is closed. */
const AHEAD_MAX = 10

/** One client's connection. */
export class ClientConnection {
  readonly socket: Socket
  /** The address it is counted for; undefined for a trusted proxy's. */
  readonly address: string | undefined
  /** Its neighbours among the idle connections of its address. */
  previous: ClientConnection | undefined
  next: ClientConnection | undefined
  idleSince = 0
  /** A request of it is being served. */
  busy = false
  /** Whether the request that is served has arrived whole. */
  arrived: () => boolean = () => true
  /** Starts the requests that came ahead, in their order. */
  readonly #ahead: (() => void)[] = []
  /** What follows is unread for now. */
  #paused = false
  /** What follows the requests that came ahead, and ends the connection. */
  #end: (() => void) | undefined

  constructor(socket: Socket, address: string | undefined) {
    this.socket = socket
    this.address = address
  }

  /** Remembers a request that came while another is served. What is behind it stays unread for now. */
  wait(start: () => void): void {
    if (this.#end) return
    if (this.#ahead.length < AHEAD_MAX) this.#ahead.push(start)
    else this.#end = () => this.socket.destroy()
    this.#pause()
  }

  /** Ends the connection when the requests that came before have been answered. */
  endAfter(end: () => void): void {
    this.#end ??= end
    this.#pause()
  }

  #pause(): void {
    this.#paused = true
    this.socket.pause()
  }

  /** What comes next on this connection; undefined when it has become idle. */
  following(): (() => void) | undefined {
    const start = this.#ahead.shift()
    // Node has begun to read again when the reply was out.
    if (start && (this.#ahead.length > 0 || this.#end)) this.#pause()
    else if (this.#paused) {
      this.#paused = false
      this.socket.resume()
    }
    return start ?? this.#end
  }
}

/** Idle connections of one address, the one that has been idle longest first. */
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

export class ClientConnections {
  readonly #limits: () => ConnectionLimits
  readonly #all = new Map<Socket, ClientConnection>()
  /** By address; those of trusted proxies stand under undefined. */
  readonly #idle = new Map<string | undefined, Idle>()

  /** New connections that were refused, and idle ones that were closed to make room, since the start. */
  refused = 0
  closed = 0

  /** @param limits those in force */
  constructor(limits: () => ConnectionLimits) {
    this.#limits = limits
  }

  /** Takes in a connection that was opened. It, or the one that has been idle longest, is closed where there are too many. */
  open(socket: Socket): void {
    const { connections, trustedProxies } = this.#limits()
    const remote = socket.remoteAddress ?? ''
    const connection = new ClientConnection(socket, trustedProxies.has(remote) ? undefined : groupOf(remote))
    if (this.#all.size >= connectionsMax(connections)) {
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

  get size(): number {
    return this.#all.size
  }

  of(socket: Socket): ClientConnection | undefined {
    return this.#all.get(socket)
  }

  /** Serves a request now, or when those that came before it on its connection have been answered. */
  take(connection: ClientConnection, start: () => void): void {
    if (connection.busy) return connection.wait(start)
    connection.busy = true
    this.#idle.get(connection.address)?.remove(connection)
    start()
  }

  /** The reply is out: serves what the client has sent ahead, else the connection is idle. */
  replied(connection: ClientConnection): void {
    if (!this.#all.has(connection.socket) || connection.socket.destroyed) return
    connection.arrived = () => true
    const next = connection.following()
    // Others get their turn between the requests of one connection.
    if (next) setImmediate(next)
    else {
      connection.busy = false
      this.#rest(connection)
    }
  }

  /** Closes connections that have never sent anything. */
  closeSilent(): void {
    for (const socket of this.#all.keys()) if (socket.bytesRead === 0) socket.destroy()
  }

  /** A connection is idle; where its address has too many of them, the one that has been idle longest is closed. */
  #rest(connection: ClientConnection): void {
    const { address } = connection
    let idle = this.#idle.get(address)
    if (!idle) this.#idle.set(address, (idle = new Idle()))
    connection.idleSince = performance.now()
    idle.push(connection)
    if (address !== undefined && idle.first && idle.size > this.#limits().idlePerAddress) this.#close(idle.first)
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
    const { address } = connection
    const idle = this.#idle.get(address)
    if (!connection.busy) idle?.remove(connection)
    if (idle?.size === 0) this.#idle.delete(address)
  }
}
