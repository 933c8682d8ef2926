/** Connections to upstreams, kept alive: each is an undici client of its own, so that taking one costs the same however many run. */
import { Client } from 'undici'

/** Idle connections kept for one upstream. */
const MOST_IDLE = 1024
/** Milliseconds after which an idle connection is closed, unless the upstream names a shorter time. */
const IDLE_MS = 15_000
/** Bytes of a reply's headers. */
const HEADERS_MAX = 64 * 1024

/** A connection in use. */
export interface Lease {
  readonly client: Client
  /** It is a connection that has carried a request before this one. */
  readonly reused: boolean
  /** Where it goes when it is given back. */
  readonly idle: Client[]
}

export class Connections {
  /** By the upstream's origin and by how long a new connection may take. */
  readonly #idle = new Map<string, Map<number, Client[]>>()

  /** @param connect milliseconds for a new connection */
  take(origin: string, connect: number): Lease {
    const idle = this.#of(origin, connect)
    const client = idle.pop()
    if (client) return { client, reused: client.stats.connected, idle }
    const options = {
      pipelining: 1,
      allowH2: false,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: HEADERS_MAX,
      keepAliveTimeout: IDLE_MS,
      connect: { timeout: connect },
    }
    return { client: new Client(origin, options), reused: false, idle }
  }

  /** Gives a connection back; a broken one connects anew when it is next taken. */
  give({ client, idle }: Lease): void {
    if (idle.length < MOST_IDLE) idle.push(client)
    else void client.destroy()
  }

  /** Closes all idle connections. */
  close(): void {
    for (const byTime of this.#idle.values()) for (const clients of byTime.values()) for (const client of clients) void client.destroy()
    this.#idle.clear()
  }

  #of(origin: string, connect: number): Client[] {
    let byTime = this.#idle.get(origin)
    if (!byTime) this.#idle.set(origin, (byTime = new Map()))
    let idle = byTime.get(connect)
    if (!idle) byTime.set(connect, (idle = []))
    return idle
  }
}
