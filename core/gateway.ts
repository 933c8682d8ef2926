/** The gateway as one thing: store, ledger, the configuration in force and its successors, the server, start and stop. */
import { watch, type FSWatcher } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { Config } from './config/config.ts'
import { loadConfig, type Loaded } from './config/load.ts'
import type { Env } from './config/yaml.ts'
import { Generation } from './generation.ts'
import { Keys } from './ledger/keys.ts'
import { Ledger } from './ledger/ledger.ts'
import type { Log, Scrubber } from './log.ts'
import type { Host, Status } from './plugin.ts'
import { findPlugins } from './plugins.ts'
import { GatewayServer } from './server.ts'
import { openStore, type Store } from './store/store.ts'
import { forwarder } from './upstream/forward.ts'
import { Sender } from './upstream/send.ts'
import { startSimulated, type SimulatedProvider } from './upstream/simulated.ts'

/** What the gateway needs of the process it runs in. */
export interface Surround {
  readonly file: string
  readonly env: Env
  readonly pid: number
  readonly log: Log
  readonly scrubber: Scrubber
  readonly now: () => number
  readonly newId: () => string
  /** The settings of a file that cannot be put in force. */
  reject(loaded: Loaded): void
}

/** Quiet time after a change of the file before it is read, in milliseconds: editors write in several steps. */
const DEBOUNCE_MS = 100

export class Gateway {
  readonly store: Store
  readonly ledger: Ledger
  readonly keys: Keys
  /** The port it listens on. */
  port = 0
  readonly #surround: Surround
  readonly #simulated: SimulatedProvider
  readonly #sender = new Sender()
  #generation: Generation
  #server: GatewayServer
  #watcher: FSWatcher | undefined
  #timer: NodeJS.Timeout | undefined
  #reloading: Promise<boolean> = Promise.resolve(true)
  #draining = false

  /** Starts a gateway with a configuration that was loaded. @throws Error in words for the operator */
  static async start(surround: Surround, config: Config): Promise<Gateway> {
    watchSecrets(surround.scrubber, config)
    const store = await openStore(config.store, 'gateway', surround.log, surround)
    const simulated = await startSimulated(surround.newId)
    const gateway = new Gateway(surround, config, store, simulated)
    try {
      await gateway.ledger.start()
      gateway.#generation = await gateway.#build(config, 1)
      gateway.#server = new GatewayServer({
        current: () => gateway.#generation,
        forward: forwarder(gateway.#sender, () => simulated.url),
        newId: surround.newId,
        now: surround.now,
      })
      gateway.port = await gateway.#server.listen(config.listen.host, config.listen.port)
    } catch (thrown) {
      await gateway.ledger.close()
      simulated.close()
      await store.close()
      throw thrown
    }
    gateway.#watch()
    return gateway
  }

  private constructor(surround: Surround, config: Config, store: Store, simulated: SimulatedProvider) {
    this.#surround = surround
    this.store = store
    this.#simulated = simulated
    this.ledger = new Ledger(store, config.store.prefix, config.ledger, surround.log, { folder: join(config.store.data, 'outbox'), pid: surround.pid })
    this.keys = new Keys(this.ledger, config.ledger.keyCache, surround.now)
    // Both are set by `start` before anybody sees the gateway.
    this.#generation = undefined as unknown as Generation
    this.#server = undefined as unknown as GatewayServer
  }

  get config(): Config {
    return this.#generation.config
  }

  /** Exchanges under way, of all generations. */
  get running(): number {
    return this.#server.running
  }

  /** Reads the file again and puts it in force if it is sound. @returns whether it was */
  reload(): Promise<boolean> {
    return (this.#reloading = this.#reloading.then(() => this.#reload()))
  }

  /** Drains and stops, the store last. */
  async stop(): Promise<void> {
    this.#draining = true
    this.#watcher?.close()
    clearTimeout(this.#timer)
    await this.#reloading
    const { drain, drainDelay } = this.config.limits
    if (drainDelay > 0) await new Promise(resolve => setTimeout(resolve, drainDelay))
    await this.#server.drain(drain)
    await this.#generation.retire()
    await this.ledger.close()
    this.#sender.close()
    this.#simulated.close()
    await this.store.close()
  }

  async #reload(): Promise<boolean> {
    const { file, env, log, scrubber } = this.#surround
    if (this.#draining) return false
    let loaded: Loaded
    try {
      loaded = await loadConfig(file, env, findPlugins)
    } catch (cause) {
      log.error({ err: cause }, 'the configuration cannot be read; the old one stays in force')
      return false
    }
    if (!loaded.config) {
      this.#surround.reject(loaded)
      log.error({ problems: loaded.problems.length }, 'the configuration has problems; the old one stays in force')
      return false
    }
    const old = this.#generation
    for (const part of ['listen', 'store', 'ledger'] as const) {
      if (JSON.stringify(loaded.config[part]) !== JSON.stringify(old.config[part])) log.warn(`a change of "${part}" takes effect at the next start`)
    }
    watchSecrets(scrubber, loaded.config)
    try {
      this.#generation = await this.#build(loaded.config, old.number + 1)
    } catch (cause) {
      log.error({ err: cause }, 'the configuration cannot be set up; the old one stays in force')
      return false
    }
    log.info({ generation: this.#generation.number }, 'configuration in force')
    void old.retire()
    return true
  }

  async #build(config: Config, number: number): Promise<Generation> {
    const { plugins } = await findPlugins(config.plugins)
    return Generation.build(number, config, plugins, this.#host(config))
  }

  #host(config: Config): Host {
    const { log, now, newId } = this.#surround
    return { config, ledger: this.ledger, keys: this.keys, log, now, newId, status: this.#status(config) }
  }

  #status(config: Config): Status {
    const { redis } = this.store
    const draining = (): boolean => this.#draining
    return {
      store: this.store.kind === 'embedded' ? 'embedded (first look only)' : this.store.kind,
      simulated: simulatedNames(config),
      get draining() {
        return draining()
      },
      probe: async () => {
        await redis.ping()
      },
    }
  }

  /** The folder is watched, not the file: editors and deployments replace a file rather than write into it. */
  #watch(): void {
    const { file, log } = this.#surround
    this.#watcher = watch(dirname(file), (_event, name) => {
      if (name !== null && name !== basename(file)) return
      clearTimeout(this.#timer)
      this.#timer = setTimeout(() => void this.reload(), DEBOUNCE_MS)
    })
    this.#watcher.on('error', cause => log.warn({ err: cause }, 'the configuration is not watched any more; SIGHUP still reloads it'))
  }
}

/** Names of the upstreams that the simulated provider stands in for. */
export function simulatedNames(config: Config): string[] {
  return [...config.upstreams.values()].filter(({ url }) => url === undefined).map(({ name }) => name)
}

function watchSecrets(scrubber: Scrubber, config: Config): void {
  scrubber.watch([...config.upstreams.values()].flatMap(({ accounts }) => accounts.map(({ key }) => key)).filter(key => key !== 'simulated'))
}
