/** The gateway as one thing: store, ledger, the configuration in force and its successors, the server, start and stop. */
import { statSync } from 'node:fs'
import type { IncomingHttpHeaders } from 'node:http'
import { join } from 'node:path'
import { Attempts } from './exchange/attempts.ts'
import type { Config } from './config/config.ts'
import { loadConfig, type Loaded, type ValidConfig } from './config/load.ts'
import { positionOf } from './config/locate.ts'
import { watchFile } from './config/watch.ts'
import type { Env } from './config/yaml.ts'
import { presented } from './exchange/credential.ts'
import { Generation } from './chain/generation.ts'
import { audit } from './ledger/audit.ts'
import { Keys } from './ledger/keys.ts'
import { Ledger } from './ledger/ledger.ts'
import type { Price } from './money/price.ts'
import { configureLog } from './config/secrets.ts'
import type { Log, Scrubber } from './lib/log.ts'
import { budgetOf } from './exchange/memory.ts'
import { Shares } from './lib/shares.ts'
import type { Host, Status } from './chain/stage.ts'
import { findPlugins } from './chain/plugins.ts'
import { GatewayServer } from './server.ts'
import { openStore, type Role, type Store } from './store/store.ts'
import { LongJobs } from './jobs/long-jobs.ts'
import { forwarder } from './upstream/forward.ts'
import { Sender } from './upstream/send.ts'
import { startSimulated, type SimulatedProvider } from './simulator/server.ts'
import { MeterState } from './metering/meter-state.ts'
import { checkChain } from './chain/check-chain.ts'

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

/** Milliseconds between two looks at what was refused. */
const WARN_MS = 60_000

export class Gateway {
  readonly store: Store
  readonly ledger: Ledger
  readonly keys: Keys
  readonly attempts: Attempts
  readonly meter = new MeterState()
  readonly memory: Shares
  readonly longJobs: LongJobs
  /** The port it listens on. */
  port = 0
  readonly #surround: Surround
  /** The configuration at the start: parts of it stay in force until the next. */
  readonly #started: Config
  readonly #simulated: SimulatedProvider
  readonly #sender = new Sender()
  #generation: Generation
  #server: GatewayServer
  #unwatch: () => void = () => {}
  #auditing: NodeJS.Timeout | undefined
  #warning: NodeJS.Timeout | undefined
  #reloading: Promise<boolean> = Promise.resolve(true)
  #draining = false

  /**
   * Starts a gateway with a configuration that was loaded.
   * @param role a guest has a host that keeps the store running and says when the file is to be read again
   * @throws Error in words for the operator
   */
  static async start(surround: Surround, { config, text }: ValidConfig, role: Role = 'gateway'): Promise<Gateway> {
    configureLog(surround, config)
    const store = await openStore(config.store, role, surround.log, surround)
    const simulated = await startSimulated(surround.newId)
    const gateway = new Gateway(surround, config, store, simulated)
    try {
      gateway.ledger.prices.add(pricesOf(config))
      await gateway.ledger.prices.keep()
      gateway.ledger.lookUpOn(await store.second())
      await gateway.ledger.start()
      gateway.#generation = await gateway.#build(config, 1)
      gateway.#server = new GatewayServer({
        current: () => gateway.#generation,
        forward: forwarder(gateway.#sender, () => simulated.url),
        newId: surround.newId,
        now: surround.now,
        log: surround.log,
        memory: gateway.memory,
        recognises: headers => recognised(gateway.keys, headers),
      })
      gateway.port = await gateway.#server.listen(config.listen.host, config.listen.port)
    } catch (thrown) {
      await gateway.ledger.close()
      simulated.close()
      await store.close()
      throw thrown
    }
    gateway.#auditing = setInterval(() => void gateway.#audit(), config.ledger.auditEvery)
    gateway.#auditing.unref()
    gateway.#warning = setInterval(() => gateway.#server.warn(), WARN_MS).unref()
    if (role === 'gateway') gateway.#unwatch = watchFile(surround.file, text, surround.log, () => void gateway.reload())
    return gateway
  }

  private constructor(surround: Surround, config: Config, store: Store, simulated: SimulatedProvider) {
    this.#surround = surround
    this.#started = config
    this.store = store
    this.#simulated = simulated
    this.ledger = new Ledger(store, config, surround.log, { folder: join(config.store.data, 'outbox'), pid: surround.pid })
    this.keys = new Keys(this.ledger, config.ledger.keyCache, surround.now)
    this.memory = new Shares(budgetOf(config.limits.memory, config.workers))
    this.longJobs = new LongJobs(this.memory.total, () => this.config.limits.stage, surround.log)
    this.attempts = new Attempts(config.ledger.retries, config.ledger.keptReplies)
    // Both are set by `start` before anybody sees the gateway.
    this.#generation = undefined as unknown as Generation
    this.#server = undefined as unknown as GatewayServer
  }

  get config(): Config {
    return this.#generation.config
  }

  /** What is to be drained, in words. */
  get load(): string {
    return this.running === 1 ? 'one running request' : `${this.running} running requests`
  }

  /** Exchanges under way, of all generations. */
  get running(): number {
    return this.#server.running
  }

  /** Open connections of clients. */
  get connections(): number {
    return this.#server.connections
  }

  /**
   * Reads the file again and puts it in force if it is sound.
   * @param text what it is to be taken to hold
   * @returns whether it was
   */
  reload(text?: string): Promise<boolean> {
    return (this.#reloading = this.#reloading.then(() => this.#reload(text)))
  }

  /** Drains and stops, the store last. */
  async stop(): Promise<void> {
    this.#draining = true
    this.#unwatch()
    clearInterval(this.#auditing)
    clearInterval(this.#warning)
    await this.#reloading
    const { drain, drainDelay } = this.config.limits
    if (drainDelay > 0) await new Promise(resolve => setTimeout(resolve, drainDelay))
    await this.#server.drain(drain)
    await this.#generation.retire()
    await this.ledger.close()
    await this.longJobs.close()
    this.#sender.close()
    this.#simulated.close()
    await this.store.close()
  }

  async #reload(text: string | undefined): Promise<boolean> {
    const { log } = this.#surround
    if (this.#draining) return false
    const config = (await readValidFile(this.#surround, text))?.config
    if (!config) return false
    const old = this.#generation
    for (const part of ['listen', 'workers', 'store', 'ledger'] as const) {
      if (JSON.stringify(config[part]) !== JSON.stringify(this.#started[part])) log.warn(`a change of "${part}" takes effect at the next start`)
    }
    configureLog(this.#surround, config)
    this.memory.total = budgetOf(config.limits.memory, this.#started.workers)
    this.ledger.prices.add(pricesOf(config))
    // The ledger tries again until the store has them.
    await this.ledger.prices.keep().catch((cause: unknown) => log.warn({ err: cause }, 'the new prices are not kept yet'))
    try {
      this.#generation = await this.#build(config, old.number + 1)
    } catch (cause) {
      configureLog(this.#surround, old.config)
      log.error({ err: cause }, 'the configuration cannot be set up; the old one stays in force')
      return false
    }
    log.info({ generation: this.#generation.number }, 'configuration in force')
    const gone = [...old.config.keyTypes.keys()].filter(name => !config.keyTypes.has(name))
    if (gone.length > 0) log.warn({ keyTypes: gone }, 'key types have gone from the file: their keys are refused')
    void old.retire()
    return true
  }

  /** Compares the sums of every account; what does not agree is told of, and counted until the next time. */
  async #audit(): Promise<void> {
    const { log } = this.#surround
    try {
      const { drifts } = await audit(this.ledger, undefined, 'sums')
      this.ledger.drifted = drifts.length
      for (const { account, findings } of drifts) log.error({ account, findings }, 'the ledger has drifted')
    } catch (cause) {
      log.warn({ err: cause }, 'the ledger could not be audited')
    }
  }

  async #build(config: Config, number: number): Promise<Generation> {
    const { plugins } = await findPlugins(config.plugins)
    return Generation.build(number, config, plugins, this.#host(config))
  }

  #host(config: Config): Host {
    const { log, now, newId } = this.#surround
    return {
      config,
      ledger: this.ledger,
      keys: this.keys,
      meter: this.meter,
      attempts: this.attempts,
      longJobs: this.longJobs,
      log,
      now,
      newId,
      status: this.#status(config),
    }
  }

  #status(config: Config): Status {
    const { redis } = this.store
    const sender = this.#sender
    const draining = (): boolean => this.#draining
    return {
      store: this.store.kind === 'embedded' ? 'embedded (first look only)' : this.store.kind,
      simulated: simulatedNames(config),
      get draining() {
        return draining()
      },
      memory: this.memory,
      get repeated() {
        return sender.repeated
      },
      probe: async () => {
        await redis.ping()
      },
    }
  }
}

/** Whether the headers carry a key that was valid of late. */
function recognised(keys: Keys, headers: IncomingHttpHeaders): boolean {
  const secret = presented(headers)
  return secret !== undefined && keys.recognises(secret)
}

/** What the file holds now; undefined, and told of, when it cannot be put in force. */
export async function readValidFile(surround: Surround, text?: string): Promise<ValidConfig | undefined> {
  const { file, env, log } = surround
  // A pipe has said what it has to say, and its reader would wait for ever.
  if (text === undefined && statSync(file, { throwIfNoEntry: false })?.isFile() === false) {
    log.error('the configuration is no file that can be read again; the old one stays in force')
    return undefined
  }
  let loaded: Loaded
  try {
    loaded = await loadConfig(file, env, checkChain, text)
  } catch (cause) {
    log.error({ err: cause }, 'the configuration cannot be checked; the old one stays in force')
    return undefined
  }
  if (loaded.config) return loaded
  surround.reject(loaded)
  log.error({ problems: loaded.problems.map(positionOf) }, 'the configuration has problems; the old one stays in force')
  return undefined
}

/** Every price that a charge or a cost can be made at. */
function pricesOf({ keyTypes, upstreams }: Config): Price[] {
  const charged = [...keyTypes.values()].flatMap(({ models }) => [...models.values()].map(({ price }) => price))
  return [...charged, ...[...upstreams.values()].flatMap(({ cost }) => [...cost.values()])]
}

/** Names of the upstreams that the simulated provider stands in for. */
export function simulatedNames(config: Config): string[] {
  return [...config.upstreams.values()].filter(({ url }) => url === undefined).map(({ name }) => name)
}
