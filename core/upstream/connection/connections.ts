/**
 * Connections to upstreams. With HTTP/1.1, each carries one request at a time and is an undici client of its own, so
 * that taking one costs the same however many exist. With HTTP/2, one connection carries many requests at a time.
 */
import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { Client } from 'undici'
import { connectorBy } from './egress.ts'
import { type RequestWire, StreamWire, Wire } from './wire.ts'

/** Maximum idle connections per upstream. */
const IDLE_MAX = 1024
/** Maximum bytes of a reply's headers. */
const HEADER_BYTES_MAX = 64 * 1024
/** Maximum requests at a time on one HTTP/2 connection. A server may allow fewer. */
const STREAMS_MAX = 100
/**
 * Node resets requests of an HTTP/2 connection that needs more than 10 MB of memory. So the bodies of its requests may
 * have at most this many bytes together, and each reply is read ahead by one small window. A larger body has a connection
 * of its own.
 */
const SHARED_BODY_BYTES_MAX = 2 * 1024 * 1024
/** undici reads this member, which its types do not have. */
const WINDOW: object = { initialWindowSize: 65_535 }
/** An HTTP/2 connection whose server has not answered this many checks is closed. */
const MISSED_MAX = 2

/** Time limits of connections, in milliseconds. */
export interface ConnectionTimes {
  readonly connectMs: number
  /** How long an idle connection is kept, unless the upstream announces a shorter time. */
  readonly keepAliveMs: number
  /** Age from which a connection takes no new request. */
  readonly connectionAgeMs: number
  /** Interval of the checks of an HTTP/2 connection. */
  readonly pingMs: number
}

/** How an upstream is connected to. */
export interface Peer {
  /** The egress proxy, if there is one. */
  readonly proxy: URL | undefined
  readonly timeouts: ConnectionTimes
  /** Whether HTTP/2 is used if the server offers it. */
  readonly http2: boolean
}

/** A connection, which undici makes anew if it was closed. */
export class Connection {
  readonly client: Client
  readonly wire = new Wire()
  readonly #times: ConnectionTimes
  /** What carries the request that it was made for. */
  inUse: ConnectionInUse | undefined
  /** Whether it speaks HTTP/2, and can carry many requests at a time. */
  multiplexed = false
  /** How many requests at a time its server has accepted. */
  #streamsMax = STREAMS_MAX
  /** Bytes of the bodies of its running requests. */
  bodyBytes = 0
  #connectedAt = performance.now()

  constructor(origin: string, { proxy, timeouts, http2 }: Peer) {
    this.#times = timeouts
    const connect = connectorBy(proxy, timeouts.connectMs, http2)
    this.client = new Client(origin, {
      pipelining: 1,
      allowH2: http2,
      h2Options: { maxConcurrentStreams: STREAMS_MAX, pingInterval: timeouts.pingMs, ...WINDOW },
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: HEADER_BYTES_MAX,
      keepAliveTimeout: timeouts.keepAliveMs,
      keepAliveMaxTimeout: timeouts.keepAliveMs,
      connect: (options, callback) => {
        const began = performance.now()
        connect(options, (...made: [Error, null] | [null, Socket]) => {
          const [, socket] = made
          const done = callback as (...made: unknown[]) => void
          // Many requests may wait for it, which HTTP/1.1 would carry one after the other.
          if (socket && this.multiplexed && protocolOf(socket) !== 'h2') {
            socket.destroy()
            return done(new Error('the upstream no longer offers HTTP/2'), null)
          }
          if (socket) this.#connected(socket, performance.now() - began)
          done(...made)
        })
      },
    })
  }

  #connected(socket: Socket, connectMs: number): void {
    this.#connectedAt = performance.now()
    if (protocolOf(socket) !== 'h2') return this.wire.watch(socket, connectMs)
    this.multiplexed = true
    if (this.inUse) this.inUse.wire = new StreamWire()
    this.#check()
  }

  /** Closes the connection if its server no longer answers. */
  #check(): void {
    let missed = 0
    const heard = (): void => void (missed = 0)
    const checking = setInterval(() => {
      if (++missed > MISSED_MAX) void this.client.destroy(new Error('the upstream no longer answers'))
    }, this.#times.pingMs).unref()
    // undici reports the answers to its pings.
    const events = this.client as unknown as NodeJS.EventEmitter
    events.on('ping', heard)
    this.client.once('disconnect', () => {
      clearInterval(checking)
      events.off('ping', heard)
    })
  }

  /** Whether it is too old for another request: the upstream's name may lead elsewhere now. */
  get old(): boolean {
    return performance.now() - this.#connectedAt > this.#times.connectionAgeMs
  }

  /** Whether it can carry another request at the same time. @param bodyBytes of the request */
  hasRoom(bodyBytes: number): boolean {
    const { pending, running } = this.client.stats
    return pending === 0 && running < this.#streamsMax && this.bodyBytes + bodyBytes <= SHARED_BODY_BYTES_MAX
  }

  /** Learns how many requests its server accepts, from one that has had to wait. @returns whether one has */
  learnsItIsFull(): boolean {
    const { pending, running } = this.client.stats
    if (pending > 0) this.#streamsMax = Math.max(1, running)
    return pending > 0
  }
}

function protocolOf(socket: Socket): unknown {
  return (socket as TLSSocket).alpnProtocol
}

/** The connections to one upstream by one proxy. */
interface Connected {
  /** The idle ones, for one request at a time. */
  readonly idle: Connection[]
  /** Those that speak HTTP/2, and whose server has said how many requests it accepts. */
  readonly shared: Set<Connection>
}

/** A connection in use by one request. */
export interface ConnectionInUse {
  readonly connection: Connection
  wire: RequestWire
  /** Whether other requests may run on it. */
  readonly joins: boolean
  readonly of: Connected
  /** Bytes of the request's body. */
  readonly bodyBytes: number
}

/** The connections to all upstreams. */
export class Connections {
  /** By the upstream's origin, then by its terms and the proxy. */
  readonly #all = new Map<string, Map<string, Connected>>()

  /**
   * Takes a connection.
   * @param bodyBytes of the request
   * @param fresh whether to ignore connections that exist
   */
  take(origin: string, peer: Peer, bodyBytes: number, fresh: boolean): ConnectionInUse {
    const of = this.#of(origin, peer)
    if (!fresh) {
      for (const connection of of.shared) {
        if (connection.old) retire(connection, of)
        else if (connection.hasRoom(bodyBytes)) {
          connection.bodyBytes += bodyBytes
          return { connection, wire: new StreamWire(), joins: true, of, bodyBytes }
        }
      }
    }
    let connection = fresh ? undefined : of.idle.pop()
    while (connection?.old) {
      void connection.client.destroy()
      connection = of.idle.pop()
    }
    connection ??= new Connection(origin, peer)
    connection.wire.begin(bodyBytes)
    connection.bodyBytes += bodyBytes
    const inUse = { connection, wire: connection.wire, joins: false, of, bodyBytes }
    connection.inUse = inUse
    return inUse
  }

  /** Returns a connection. A broken one reconnects at its next use; one with unsent bytes is closed. */
  give({ connection, joins, of, bodyBytes }: ConnectionInUse): void {
    connection.bodyBytes -= bodyBytes
    if (!joins) connection.inUse = undefined
    if (connection.multiplexed) {
      // Its server has not answered, so that nothing is known of it.
      if (!of.shared.has(connection)) close(connection)
      return
    }
    if (of.idle.length < IDLE_MAX && !connection.wire.writing && !connection.old) of.idle.push(connection)
    else void connection.client.destroy()
  }

  /**
   * Notes that a connection has answered. An HTTP/2 server says before its first answer how many requests it accepts, so
   * that others may join from now on, until the connection is closed.
   */
  answered({ connection, joins, of }: ConnectionInUse): void {
    const { client, multiplexed } = connection
    // A retired one connects anew for what its server has not processed.
    if (!multiplexed || joins || client.closed || of.shared.has(connection)) return
    of.shared.add(connection)
    client.once('disconnect', () => retire(connection, of))
  }

  /** Closes all idle connections. */
  close(): void {
    for (const byTerms of this.#all.values()) {
      for (const { idle, shared } of byTerms.values()) {
        for (const { client } of idle) void client.destroy()
        for (const connection of shared) retire(connection, { shared })
      }
    }
    this.#all.clear()
  }

  #of(origin: string, { proxy, timeouts, http2 }: Peer): Connected {
    const { connectMs, keepAliveMs, connectionAgeMs, pingMs } = timeouts
    const name = `${connectMs} ${keepAliveMs} ${connectionAgeMs} ${http2 ? pingMs : ''} ${proxy?.href ?? ''}`
    let byTerms = this.#all.get(origin)
    if (!byTerms) this.#all.set(origin, (byTerms = new Map()))
    let of = byTerms.get(name)
    if (!of) byTerms.set(name, (of = { idle: [], shared: new Set() }))
    return of
  }
}

/** Takes a connection out of use. What runs on it goes on. */
function retire(connection: Connection, { shared }: Pick<Connected, 'shared'>): void {
  if (shared.delete(connection)) close(connection)
}

/** Closes a connection when nothing runs on it any more. It may have been closed already. */
function close({ client }: Connection): void {
  client.close().catch(() => {})
}
