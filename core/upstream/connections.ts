/**
 * Kept-alive connections to upstreams. Each is an undici client of its own, so that taking one costs the same however
 * many exist.
 */
import type { Socket } from 'node:net'
import { type buildConnector, Client } from 'undici'
import { connectorBy } from './egress.ts'
import { Wire } from './wire.ts'

/** Maximum idle connections per upstream. */
const IDLE_MAX = 1024
/** Maximum bytes of a reply's headers. */
const HEADER_BYTES_MAX = 64 * 1024

/** A connection that waits for the next request. */
interface IdleConnection {
  readonly client: Client
  readonly wire: Wire
}

/**
 * Time limits in milliseconds: for connecting, and for keeping an idle connection unless the upstream announces a
 * shorter time.
 */
export interface ConnectionTimes {
  readonly connectMs: number
  readonly keepAliveMs: number
}

/** A connection in use. */
export interface ConnectionInUse extends IdleConnection {
  /** The list that it returns to. */
  readonly idle: IdleConnection[]
}

/** A pool of connections to all upstreams. */
export class Connections {
  /** By the upstream's origin, then by its times and the proxy. */
  readonly #idle = new Map<string, Map<string, IdleConnection[]>>()

  /**
   * Takes a connection.
   * @param proxy the egress proxy to connect by, if there is one
   * @param fresh whether to ignore idle connections
   */
  take(origin: string, proxy: URL | undefined, times: ConnectionTimes, fresh: boolean): ConnectionInUse {
    const idle = this.#of(origin, `${times.connectMs} ${times.keepAliveMs} ${proxy?.href ?? ''}`)
    const kept = fresh ? undefined : idle.pop()
    if (kept) {
      kept.wire.begin()
      return { ...kept, idle }
    }
    const wire = new Wire()
    wire.begin()
    const options = {
      pipelining: 1,
      allowH2: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: HEADER_BYTES_MAX,
      keepAliveTimeout: times.keepAliveMs,
      keepAliveMaxTimeout: times.keepAliveMs,
      connect: watched(wire, connectorBy(proxy, times.connectMs)),
    }
    return { client: new Client(origin, options), wire, idle }
  }

  /** Returns a connection. A broken one reconnects at its next use; one with unsent bytes is closed. */
  give({ client, wire, idle }: ConnectionInUse): void {
    if (idle.length < IDLE_MAX && !wire.writing) idle.push({ client, wire })
    else void client.destroy()
  }

  /** Closes all idle connections. */
  close(): void {
    for (const byTimes of this.#idle.values())
      for (const kept of byTimes.values()) for (const { client } of kept) void client.destroy()
    this.#idle.clear()
  }

  #of(origin: string, times: string): IdleConnection[] {
    let byTimes = this.#idle.get(origin)
    if (!byTimes) this.#idle.set(origin, (byTimes = new Map()))
    let idle = byTimes.get(times)
    if (!idle) byTimes.set(times, (idle = []))
    return idle
  }
}

/** Connects and lets the wire observe each new connection. */
function watched(wire: Wire, connect: buildConnector.connector): buildConnector.connector {
  return (options, callback) => {
    const began = performance.now()
    connect(options, (...made: [Error, null] | [null, Socket]) => {
      const [, socket] = made
      if (socket) wire.watch(socket, performance.now() - began)
      ;(callback as (...made: unknown[]) => void)(...made)
    })
  }
}
