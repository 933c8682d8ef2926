/** The gateway: store, ledger, the configuration in force and its successors, the server, start and stop. */
import { join } from 'node:path'
import { ClientRequests } from './exchange/client-requests.ts'
import type { Config } from './config/config.ts'
import type { ValidConfig } from './config/load.ts'
import { watchFile } from './config/watch.ts'
import { presented } from './client/credential.ts'
import { Generation } from './chain/generation.ts'
import { RequestBook } from './chain/request-book.ts'
import { audit } from './ledger/audit.ts'
import { Keys } from './keys/keys.ts'
import { settingsOf } from './keys/settings.ts'
import { Ledger } from './ledger/ledger.ts'
import { pricesOf } from './config/prices.ts'
import { configureLog } from './config/secrets.ts'
import { simulatedNames } from './config/upstreams.ts'
import { budgetOf } from './client/memory.ts'
import { FairBudget } from './lib/fair-budget.ts'
import type { BuiltInHost, Status } from './chain/built-in-stage.ts'
import { findPlugins } from './chain/plugins.ts'
import { Listeners } from './server/listeners.ts'
import type { Role } from './store/connect.ts'
import { readiness } from './ledger/readiness.ts'
import { printUntaken } from './ledger/settlement.ts'
import { freePort } from './lib/free-port.ts'
import { openRecords } from './ledger/open-records.ts'
import type { Records } from './records/records.ts'
import { openStore, type Store } from './store/store.ts'
import { LongJobs } from './jobs/long-jobs.ts'
import { forwarder } from './upstream/attempts/forward.ts'
import { Sender } from './upstream/connection/send.ts'
import { startSimulated, type SimulatedProvider } from './simulator/server.ts'
import { MeterState } from './metering/meter-state.ts'
import { Pool } from './pool/pool.ts'
import { PoolSharing } from './pool/sharing.ts'
import { readValidFile } from './chain/valid-file.ts'
import type { Environment } from './lib/environment.ts'

/** Interval of the warnings about refused requests, in milliseconds. */
const WARN_MS = 60_000

/** What is there before a gateway. */
interface GatewayParts {
  readonly environment: Environment
  readonly config: Config
  readonly store: Store
  readonly records: Records
  readonly simulated: SimulatedProvider
}

/** A running gateway in one process. */
export class Gateway {
  readonly store: Store
  readonly ledger: Ledger
  readonly keys: Keys
  readonly clientRequests: ClientRequests
  readonly meter = new MeterState()
  readonly pool: Pool
  readonly #sharing: PoolSharing
  readonly memory: FairBudget
  readonly longJobs: LongJobs
  /** The port that the gateway listens on. */
  port = 0
  readonly #environment: Environment
  /** The configuration at the start. Some settings stay in force until a restart. */
  readonly #started: Config
  readonly #simulated: SimulatedProvider
  readonly records: Records
  readonly #sender = new Sender()
  #generation: Generation
  /** Undefined until the configuration is in force. */
  #listeners: Listeners | undefined
  #unwatch: () => void = () => {}
  #auditing: NodeJS.Timeout | undefined
  #warning: NodeJS.Timeout | undefined
  #reloading: Promise<boolean> = Promise.resolve(true)
  #draining = false

  /**
   * Starts a gateway with a loaded configuration.
   * @param role a guest has a host that runs the store and announces configuration changes
   * @throws Error for the operator
   */
  static async start(
    environment: Environment,
    { config, text }: ValidConfig,
    role: Role = 'gateway',
  ): Promise<Gateway> {
    configureLog(environment, config)
    const store = await openStore(config.store, role, environment)
    const first = role === 'gateway' ? () => freePort(config.listen, 'listen.port') : undefined
    const records = await openRecords(environment, config.store, store, first)
    const simulated = await startSimulated(environment)
    const gateway = new Gateway({ environment, config, store, records, simulated })
    try {
      gateway.ledger.prices.add(pricesOf(config))
      await gateway.ledger.prices.keep()
      gateway.ledger.reads.lookUpOn(await store.second())
      await gateway.ledger.start({
        mayRebuild: store.kind === 'embedded',
        // The lock of the data folder refuses a second gateway.
        alone: role === 'gateway' && store.kind !== 'redis',
      })
      await gateway.#sharing.start(config, records)
      gateway.#generation = await gateway.#build(config, 1)
      records.recorder.watcher = recorded => gateway.#generation.recorded(recorded)
      gateway.#listeners = new Listeners({
        current: () => gateway.#generation,
        forward: forwarder({
          sender: gateway.#sender,
          pool: gateway.pool,
          simulated: () => simulated.url,
          now: environment.now,
        }),
        newId: environment.newId,
        now: environment.now,
        log: environment.log,
        memory: gateway.memory,
        openFiles: environment.openFiles(),
        recognises: headers => gateway.keys.recognises(presented(headers) ?? ''),
      })
      await gateway.#listeners.open(gateway.#generation)
      // Sockets that share a port would not find out that another gateway has it.
      await first?.()
      gateway.port = await gateway.#listeners.listen(config.listen)
    } catch (thrown) {
      await gateway.#listeners?.drain(0)
      await gateway.#sharing.stop()
      await gateway.ledger.close()
      simulated.close()
      await gateway.#closeStore()
      throw thrown
    }
    gateway.#auditing = setInterval(() => void gateway.#audit(), config.ledger.auditEveryMs).unref()
    gateway.#warning = setInterval(() => gateway.#listeners?.warn(), WARN_MS).unref()
    if (role === 'gateway')
      gateway.#unwatch = watchFile({
        file: config.file,
        text,
        log: environment.log,
        changed: () => void gateway.reload(),
        others: () => gateway.config.secretFiles,
      })
    return gateway
  }

  private constructor({ environment, config, store, records, simulated }: GatewayParts) {
    this.#environment = environment
    this.#started = config
    this.store = store
    this.#simulated = simulated
    this.records = records
    const outboxFolder = join(config.store.data, 'outbox')
    this.ledger = new Ledger({ store, records, config, environment, outboxFolder })
    this.keys = new Keys(this.ledger, config.ledger.keyCacheMs, environment.now, settingsOf(config))
    this.pool = new Pool(environment)
    this.#sharing = new PoolSharing(this.pool, this.ledger.scripts, environment.log)
    this.memory = new FairBudget(budgetOf(config.limits.memoryBytes, config.workers, environment.memoryBytes))
    this.longJobs = new LongJobs(this.memory.total, () => this.config.limits.stageMs, environment.log)
    this.clientRequests = new ClientRequests(config.ledger.retriesMs, config.ledger.keptRepliesBytes)
    // `start` sets it before anything can access the gateway.
    this.#generation = undefined as unknown as Generation
  }

  get config(): Config {
    return this.#generation.config
  }

  /** Describes what a drain waits for. */
  get load(): string {
    return this.running === 1 ? 'one running request' : `${this.running} running requests`
  }

  /** Number of running exchanges, of all generations. */
  get running(): number {
    return this.#listeners?.running ?? 0
  }

  /** Number of open client connections. */
  get connections(): number {
    return this.#listeners?.connections ?? 0
  }

  /** The ports of the addresses that stages have for themselves, by the names of their plugins. */
  get sidePorts(): ReadonlyMap<string, number> {
    return this.#listeners?.sidePorts ?? new Map()
  }

  /**
   * Reads the file again and puts it in force if it is valid.
   * @param text the content to use instead of reading the file
   * @returns whether it was valid
   */
  reload(text?: string): Promise<boolean> {
    return (this.#reloading = this.#reloading.then(() => this.#reload(text)))
  }

  /** Drains and stops. The store stops last. @throws Error if settlements are lost, which are printed */
  async stop(): Promise<void> {
    const beganMs = performance.now()
    this.#draining = true
    this.#unwatch()
    clearInterval(this.#auditing)
    clearInterval(this.#warning)
    await this.#reloading
    const { drainMs, drainDelayMs } = this.config.limits
    if (drainDelayMs > 0) await new Promise(resolve => setTimeout(resolve, drainDelayMs))
    this.#generation.endLong()
    await this.#listeners?.drain(drainMs)
    await this.#generation.retire()
    await this.#sharing.stop()
    await this.ledger.close(beganMs + drainDelayMs + drainMs)
    const lost = this.reportUntaken()
    await this.longJobs.close()
    this.#sender.close()
    this.#simulated.close()
    await this.#closeStore()
    const named = lost === 1 ? 'settlement' : 'settlements'
    if (lost > 0) throw new Error(`neither the store nor the disk has taken ${lost} ${named}, printed above`)
  }

  /** Prints the settlements that are in the memory of this process only. @returns their number */
  reportUntaken(): number {
    return printUntaken(this.ledger.unwritten, this.#environment)
  }

  async #closeStore(): Promise<void> {
    // The lock of the data folder goes with the store, when nothing of the folder is in use any more.
    try {
      await this.records.close()
    } finally {
      await this.store.close()
    }
  }

  async #reload(text: string | undefined): Promise<boolean> {
    const { log } = this.#environment
    if (this.#draining) return false
    const config = (await readValidFile(this.#environment, this.config.file, text))?.config
    if (!config) return false
    const old = this.#generation
    for (const part of ['listen', 'workers', 'store', 'ledger'] as const) {
      if (JSON.stringify(config[part]) !== JSON.stringify(this.#started[part]))
        log.warn(`the change of "${part}" takes effect after a restart`)
    }
    configureLog(this.#environment, config)
    this.memory.total = budgetOf(config.limits.memoryBytes, this.#started.workers, this.#environment.memoryBytes)
    this.ledger.prices.add(pricesOf(config))
    const later = (cause: unknown): void => log.warn({ err: cause }, 'the new prices are not stored yet')
    // The ledger retries until the store has them.
    await this.ledger.prices.keep().catch(later)
    try {
      const next = await this.#build(config, old.number + 1)
      await this.#open(next)
      this.#generation = next
      this.keys.settings = settingsOf(config)
    } catch (cause) {
      configureLog(this.#environment, old.config)
      log.error({ err: cause }, 'cannot set up the configuration; the old one stays in force')
      return false
    }
    log.info({ generation: this.#generation.number }, 'configuration in force')
    const gone = [...old.config.keyTypes.keys()].filter(name => !config.keyTypes.has(name))
    if (gone.length > 0) log.warn({ keyTypes: gone }, 'key types were removed from the file; their keys are refused')
    this.#listeners?.closeUnused()
    void old.retire()
    return true
  }

  /** Opens the addresses that a new configuration adds. @throws Error if one is not available; its stages are closed */
  async #open(next: Generation): Promise<void> {
    try {
      await this.#listeners?.open(next)
    } catch (cause) {
      this.#listeners?.closeUnused()
      await next.retire()
      throw cause
    }
  }

  /** Checks the sums of every account, and logs and counts those that do not agree. */
  async #audit(): Promise<void> {
    const { log } = this.#environment
    if (!this.ledger.background.leading) return
    try {
      const { drifts } = await audit(this.ledger, undefined, 'sums')
      this.ledger.drifted = drifts.length
      for (const { account, findings } of drifts)
        log.error({ account, findings }, 'the sums of some accounts do not agree')
    } catch (cause) {
      log.warn({ err: cause }, 'the ledger cannot be checked')
    }
  }

  async #build(config: Config, number: number): Promise<Generation> {
    const { plugins } = await findPlugins(config.plugins)
    const book = new RequestBook(config, this.records.recorder.requests, this.#environment)
    const generation = await Generation.build({ number, config, plugins, host: this.#host(config), book })
    this.pool.use(config.upstreams.values())
    return generation
  }

  #host(config: Config): Omit<BuiltInHost, 'retired'> {
    const { log, now, newId } = this.#environment
    const { reads } = this.ledger
    return {
      config,
      ledger: this.ledger,
      keys: this.keys,
      meter: this.meter,
      pool: this.pool,
      sharing: this.#sharing,
      clientRequests: this.clientRequests,
      longJobs: this.longJobs,
      log,
      now,
      newId,
      balance: ({ account }) => reads.balance(account),
      usage: ({ whose }) => reads.summary(whose, now()),
      status: this.#status(config),
    }
  }

  #status(config: Config): Status {
    const sender = this.#sender
    const draining = (): boolean => this.#draining
    return {
      store: this.store.kind === 'embedded' ? 'embedded (for a first try only)' : this.store.kind,
      simulated: simulatedNames(config),
      get draining() {
        return draining()
      },
      memory: this.memory,
      get repeated() {
        return sender.repeated
      },
      probe: readiness(this.ledger, this.#environment.now),
    }
  }
}
