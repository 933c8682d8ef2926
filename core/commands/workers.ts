/**
 * `tollgate start` with several workers: this process keeps the store and the workers running and tells them of changes;
 * each worker is a gateway of its own on the same port and the same store.
 */
import cluster, { type Worker } from 'node:cluster'
import type { Config } from '../config/config.ts'
import { watchFile } from '../config/watch.ts'
import { Gateway, soundConfig, type Surround } from '../gateway.ts'
import { Keys } from '../ledger/keys.ts'
import { Ledger } from '../ledger/ledger.ts'
import { openStore, type Store } from '../store/store.ts'
import type { Shell } from './shell.ts'

/** What the host tells its workers. */
type Message = 'reload' | 'stop'

/** Milliseconds before a worker that ended is replaced: one that cannot start must not be started in a loop. */
const REPLACE_MS = 500

/** Whether this process is a worker of another. */
export function isWorker(): boolean {
  return cluster.isWorker
}

export class Workers {
  readonly config: Config
  readonly store: Store
  readonly keys: Keys
  /** The port they listen on. */
  port = 0
  readonly #surround: Surround
  #unwatch: () => void = () => {}
  #stopping = false

  /** Starts the workers and waits until all of them listen. @throws Error when one cannot */
  static async start(surround: Surround, config: Config): Promise<Workers> {
    const store = await openStore(config.store, 'gateway', surround.log, surround)
    const workers = new Workers(surround, config, store)
    try {
      await Promise.all(Array.from({ length: config.workers }, () => workers.#first()))
    } catch (thrown) {
      await workers.stop()
      throw thrown
    }
    cluster.on('exit', worker => workers.#replace(worker))
    workers.#unwatch = watchFile(surround.file, surround.log, () => void workers.reload())
    return workers
  }

  private constructor(surround: Surround, config: Config, store: Store) {
    this.#surround = surround
    this.config = config
    this.store = store
    this.keys = new Keys(new Ledger(store, config, surround.log), 0, surround.now)
  }

  /** What is to be drained, in words. */
  get load(): string {
    return `${all().length} workers`
  }

  /** Has the workers read the file again if it is sound. */
  async reload(): Promise<void> {
    if (await soundConfig(this.#surround)) tell('reload')
  }

  /** Drains the workers; stops the store when the last of them has ended. */
  async stop(): Promise<void> {
    this.#stopping = true
    this.#unwatch()
    const ended = all().map(worker => new Promise(resolve => worker.once('exit', resolve)))
    tell('stop')
    await Promise.all(ended)
    await this.store.close()
  }

  #first(): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = cluster.fork()
      worker.once('listening', ({ port }) => {
        this.port = port
        resolve()
      })
      worker.once('exit', () => reject(new Error('a worker ended before it listened')))
    })
  }

  #replace(dead: Worker): void {
    if (this.#stopping) return
    this.#surround.log.error({ worker: dead.id }, 'a worker ended; another takes its place')
    setTimeout(() => {
      if (!this.#stopping) cluster.fork()
    }, REPLACE_MS)
  }
}

/** Runs a gateway as one of several, until its host has it stop. */
export async function work(shell: Shell, surround: Surround, config: Config): Promise<void> {
  const gateway = await Gateway.start(surround, config, 'guest')
  let stopping = false
  const stop = (): void => {
    if (stopping) return
    stopping = true
    gateway.stop().then(
      () => shell.exit(0),
      () => shell.exit(1),
    )
  }
  cluster.worker?.on('message', (message: Message) => (message === 'stop' ? stop() : void gateway.reload()))
  shell.onSignal('SIGTERM', stop)
  // A terminal's Ctrl-C and hang-up reach every process; the host speaks for all of them.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) shell.onSignal(signal, () => {})
}

function all(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter(worker => worker !== undefined)
}

function tell(message: Message): void {
  for (const worker of all()) worker.send(message)
}
