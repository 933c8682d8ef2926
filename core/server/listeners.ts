/** The addresses that a process listens on: the one that customers call, and those that stages have for themselves. */
import type { Generation } from '../chain/generation.ts'
import { GatewayServer, type ServerOptions } from './server.ts'

/** What all servers of a process share. */
export type SharedOptions = Omit<ServerOptions, 'site' | 'isPublic' | 'setting'>

/** A server at an address of a stage. */
interface Side {
  readonly plugin: string
  readonly server: GatewayServer
  readonly port: number
}

/** The servers of one process. */
export class Listeners {
  readonly #options: SharedOptions
  readonly #main: GatewayServer
  /** Addresses that are no longer used, and whose exchanges still run. */
  readonly #closing = new Set<Promise<void>>()
  /** By plugin, host and port. */
  readonly #sides = new Map<string, Side>()

  constructor(options: SharedOptions) {
    this.#options = options
    this.#main = new GatewayServer({
      ...options,
      site: ({ main }) => main,
      isPublic: true,
      setting: 'listen.port',
    })
  }

  /** Starts to listen where customers call. @returns the port; @throws if the address is not available */
  listen({ host, port }: { readonly host: string; readonly port: number }): Promise<number> {
    return this.#main.listen(host, port)
  }

  /** Opens the addresses of a configuration's stages that are not open. @throws Error if one is not available */
  async open({ sides }: Generation): Promise<void> {
    for (const [plugin, { host, port }] of sides) {
      const name = addressName(plugin, host, port)
      if (this.#sides.has(name)) continue
      const server = new GatewayServer({
        ...this.#options,
        // While an address changes, the old one serves the same for a moment.
        site: generation => generation.sides.get(plugin),
        isPublic: false,
        setting: `port of ${plugin}`,
      })
      this.#sides.set(name, { plugin, server, port: await server.listen(host, port) })
    }
  }

  /** Closes the addresses that the configuration in force does not have. Their running exchanges go on. */
  closeUnused(): void {
    const { sides, config } = this.#options.current()
    const used = new Set([...sides].map(([plugin, { host, port }]) => addressName(plugin, host, port)))
    for (const [name, { server }] of this.#sides) {
      if (used.has(name)) continue
      this.#sides.delete(name)
      const closing = server.drain(config.limits.drainMs).finally(() => this.#closing.delete(closing))
      this.#closing.add(closing)
    }
  }

  /** Number of running exchanges. */
  get running(): number {
    return this.#all.reduce((sum, { running }) => sum + running, 0)
  }

  /** Number of open client connections. */
  get connections(): number {
    return this.#main.connections
  }

  /** The ports of the stages' addresses, by plugin. */
  get sidePorts(): ReadonlyMap<string, number> {
    return new Map([...this.#sides.values()].map(({ plugin, port }) => [plugin, port]))
  }

  /** Accepts no more requests and waits for running ones, at most for so many milliseconds. */
  async drain(limit: number): Promise<void> {
    await Promise.all([...this.#closing, ...this.#all.map(server => server.drain(limit))])
  }

  /** Logs refusals since the last call, if there were any. */
  warn(): void {
    for (const server of this.#all) server.warn()
  }

  get #all(): GatewayServer[] {
    return [this.#main, ...[...this.#sides.values()].map(({ server }) => server)]
  }
}

function addressName(plugin: string, host: string, port: number): string {
  return `${plugin} ${host} ${port}`
}
