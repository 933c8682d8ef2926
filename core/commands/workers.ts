/**
 * `tollgate start` with several workers: the host process runs the store and the workers and informs them of changes.
 * Each worker is a gateway of its own on the same port and the same store.
 */
import cluster, { type Worker } from 'node:cluster'
import type { Config } from '../config/config.ts'
import type { ValidConfig } from '../config/load.ts'
import { watchFile } from '../config/watch.ts'
import { readValidFile } from '../chain/valid-file.ts'
import { Gateway } from '../gateway.ts'
import { Keys } from '../keys/keys.ts'
import { settingsOf } from '../keys/settings.ts'
import { Ledger } from '../ledger/ledger.ts'
import { configureLog } from '../config/secrets.ts'
import { openRecords } from '../ledger/open-records.ts'
import type { Records } from '../records/records.ts'
import { freePort } from '../lib/free-port.ts'
import { openStore, type Store } from '../store/store.ts'
import type { Environment } from '../lib/environment.ts'

/**
 * Messages from the host to its workers. Workers do not read the configuration file; all use what the host has checked.
 */
type Message =
  | { readonly kind: 'start'; readonly first: string; readonly current: string; readonly port: number }
  | { readonly kind: 'reload'; readonly text: string }
  | { readonly kind: 'stop' }

/** Milliseconds before a dead worker is replaced. They prevent a tight loop if workers cannot start. */
const REPLACE_MS = 500

/** Returns whether this process is a worker. */
export function isWorker(): boolean {
  return cluster.isWorker
}

/** What is there before the workers. */
interface WorkersParts {
  readonly environment: Environment
  readonly valid: ValidConfig
  readonly store: Store
  readonly records: Records
  readonly port: number
}

/** The host's view of its workers. */
export class Workers {
  readonly config: Config
  readonly store: Store
  readonly keys: Keys
  /** The port of all workers. */
  readonly port: number
  readonly #environment: Environment
  readonly records: Records
  /** The configuration's text at the start, which determines address and store, and the text in force. */
  readonly #first: string
  #secretFiles: readonly string[]
  #current: string
  #unwatch: () => void = () => {}
  /** Serializes reloads, so that an older file never comes into force after a newer one. */
  #reloading: Promise<void> = Promise.resolve()
  #stopping = false

  /** Starts the workers and waits until all of them listen. @throws Error if one cannot */
  static async start(environment: Environment, valid: ValidConfig): Promise<Workers> {
    configureLog(environment, valid.config)
    // Each worker accepts connections itself. A connection passed from the host would be lost if its worker died in
    // that moment.
    cluster.schedulingPolicy = cluster.SCHED_NONE
    const store = await openStore(valid.config.store, 'gateway', environment)
    let port = 0
    const records = await openRecords(environment, valid.config.store, store, async () => {
      // Port 0 is resolved now, so that a replacement worker gets the same port.
      port = await freePort(valid.config.listen, 'listen.port')
    })
    const workers = new Workers({ environment, valid, store, records, port })
    try {
      await Promise.all(Array.from({ length: valid.config.workers }, () => workers.#listening()))
    } catch (thrown) {
      // The error of the start is the one to report.
      await workers.stop().catch(() => {})
      throw thrown
    }
    cluster.on('exit', (worker, code, signal) => workers.#replace(worker, signal ?? code))
    workers.#unwatch = watchFile({
      file: valid.config.file,
      text: valid.text,
      log: environment.log,
      changed: () => void workers.reload(),
      others: () => workers.#secretFiles,
    })
    return workers
  }

  private constructor({ environment, valid, store, records, port }: WorkersParts) {
    const { config, text } = valid
    this.#environment = environment
    this.config = config
    this.#secretFiles = config.secretFiles
    this.#first = text
    this.#current = text
    this.store = store
    this.port = port
    this.records = records
    this.keys = new Keys(new Ledger({ store, records, config, environment }), 0, environment.now, settingsOf(config))
  }

  /** Describes what a drain waits for. */
  get load(): string {
    return `${all().length} workers`
  }

  /** Reads the file again and lets the workers put it in force if it is valid. */
  reload(): Promise<void> {
    return (this.#reloading = this.#reloading.then(() => this.#reload()))
  }

  async #reload(): Promise<void> {
    const found = await readValidFile(this.#environment, this.config.file)
    if (!found || this.#stopping) return
    configureLog(this.#environment, found.config)
    this.#current = found.text
    this.#secretFiles = found.config.secretFiles
    for (const worker of all()) send(worker, { kind: 'reload', text: found.text })
  }

  /** Drains the workers. Stops the store after the last of them has ended. @throws Error if one of them lost something */
  async stop(): Promise<void> {
    this.#stopping = true
    this.#unwatch()
    const ended = all().map(worker => new Promise<number | null>(resolve => worker.once('exit', resolve)))
    for (const worker of all()) send(worker, { kind: 'stop' })
    const codes = await Promise.all(ended)
    try {
      await this.records.close()
    } finally {
      await this.store.close()
    }
    const failed = codes.filter(code => code !== 0).length
    if (failed > 0) throw new Error(`${failed} of ${codes.length} workers did not stop cleanly`)
  }

  #listening(): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = this.#fork()
      // Stages with addresses of their own listen first.
      worker.on('listening', ({ port }) => port === this.port && resolve())
      worker.once('exit', () => reject(new Error('a worker ended before it listened')))
    })
  }

  #fork(): Worker {
    const worker = cluster.fork()
    worker.on('error', cause => this.#environment.log.warn({ worker: worker.id, err: cause }, 'cannot reach a worker'))
    send(worker, { kind: 'start', first: this.#first, current: this.#current, port: this.port })
    return worker
  }

  /** Replaces a worker that ended. @param by its exit code, or the signal that ended it */
  #replace(dead: Worker, by: number | string): void {
    if (this.#stopping) return
    const { log } = this.#environment
    log.error({ worker: dead.id, by }, 'a worker ended; starting another one')
    setTimeout(() => {
      if (this.#stopping) return
      const next = this.#fork()
      next.on('listening', ({ port }) => {
        if (port === this.port) log.info({ worker: next.id }, 'started a worker in place of one that ended')
      })
    }, REPLACE_MS)
  }
}

/** Runs one gateway as a worker until its host stops it. */
export async function work(environment: Environment, file: string): Promise<void> {
  let gateway: Gateway | undefined
  let latest: string | undefined
  let stopping = false
  const stop = (): void => {
    if (stopping) return
    stopping = true
    const stopped = gateway?.stop() ?? Promise.resolve()
    stopped.then(
      () => environment.exit(0),
      (cause: unknown) => {
        environment.complain(`The worker did not stop cleanly: ${(cause as Error).message}`)
        return environment.exit(1)
      },
    )
  }
  // Subscribes first, so that no message of the host is lost.
  const started = new Promise<Extract<Message, { kind: 'start' }>>(resolve => {
    cluster.worker?.on('message', (message: Message) => {
      if (message.kind === 'start') resolve(message)
      else if (message.kind === 'stop') stop()
      else {
        latest = message.text
        void gateway?.reload(latest)
      }
    })
  })
  environment.onSignal('SIGTERM', stop)
  // The terminal sends Ctrl-C and hang-up to every process. The host forwards what the workers need.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) environment.onSignal(signal, () => {})
  gateway = await Gateway.start(environment, await mergedConfig(environment, file, await started), 'guest')
  if (latest !== undefined) void gateway.reload(latest)
}

/** Combines the file in force with the address and the store from the host's start. */
async function mergedConfig(
  environment: Environment,
  file: string,
  { first, current, port }: Extract<Message, { kind: 'start' }>,
): Promise<ValidConfig> {
  const [atStart, inForce] = [
    await readValidFile(environment, file, first),
    await readValidFile(environment, file, current),
  ]
  // The host checked both, but a plugin file may have changed since.
  if (!atStart || !inForce) throw new Error('the configuration in force can no longer be set up')
  const { listen, workers, store, ledger } = atStart.config
  return { ...inForce, config: { ...inForce.config, listen: { ...listen, port }, workers, store, ledger } }
}

function all(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter(worker => worker !== undefined)
}

/** Sends a message and ignores failures: the end of a dead worker is reported by an event. */
function send(worker: Worker, message: Message): void {
  worker.send(message, () => {})
}
