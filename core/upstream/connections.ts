/** Connections to upstreams, kept alive: each is an undici client of its own, so that taking one costs the same however many run. */
import type { Socket } from 'node:net'
import { buildConnector, Client } from 'undici'
import { Wire } from './wire.ts'

/** Idle connections kept for one upstream. */
const MOST_IDLE = 1024
/** Bytes of a reply's headers. */
const HEADERS_MAX = 64 * 1024

/** A connection that is kept for the next request. */
interface IdleConnection {
  readonly client: Client
  readonly wire: Wire
}

/** How long connecting may take, and how long an idle connection is kept unless the upstream names a shorter time, in milliseconds. */
export interface ConnectionTimes {
  readonly connect: number
  readonly keepAlive: number
}

/** A connection in use. */
export interface ConnectionInUse extends IdleConnection {
  /** Where it goes when it is given back. */
  readonly idle: IdleConnection[]
}

export class Connections {
  /** By the upstream's origin and times. */
  readonly #idle = new Map<string, Map<string, IdleConnection[]>>()

  /** @param fresh a new connection is wanted, and none that was kept */
  take(origin: string, times: ConnectionTimes, fresh: boolean): ConnectionInUse {
    const idle = this.#of(origin, `${times.connect} ${times.keepAlive}`)
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
      maxHeaderSize: HEADERS_MAX,
      keepAliveTimeout: times.keepAlive,
      keepAliveMaxTimeout: times.keepAlive,
      connect: watched(wire, times.connect),
    }
    return { client: new Client(origin, options), wire, idle }
  }

  /** Gives a connection back. A broken one connects anew when it is next taken; one that still has bytes to write is closed. */
  give({ client, wire, idle }: ConnectionInUse): void {
    if (idle.length < MOST_IDLE && !wire.writing) idle.push({ client, wire })
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

/** Connects, and has the wire watch each connection that is made. */
function watched(wire: Wire, connectMs: number): buildConnector.connector {
  const connect = buildConnector({ allowH2: false, timeout: connectMs })
  return (options, callback) => {
    const began = performance.now()
    connect(options, (...made: [Error, null] | [null, Socket]) => {
      const [, socket] = made
      if (socket) wire.watch(socket, performance.now() - began)
      ;(callback as (...made: unknown[]) => void)(...made)
    })
  }
}
