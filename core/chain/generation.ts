/**
 * A generation: a configuration in force, with its stages set up and its endpoints fixed, until its last exchange has
 * ended.
 */
import { Chain, type ChainNeeds } from './chain.ts'
import type { RequestBook } from './request-book.ts'
import type { PlacedStage } from './reply-hooks.ts'
import type { Notice } from '../records/notices.ts'
import type { Recorded } from '../records/watcher.ts'
import type { Config } from '../config/config.ts'
import type { BuiltInExchange } from '../exchange/built-in.ts'
import { guardedSignal } from '../lib/guarded-signal.ts'
import type { Log } from '../lib/log.ts'
import { type BuiltInHost, hostFor } from './built-in-stage.ts'
import { checkedStage } from './checked-stage.ts'
import type { Plugin } from './stage.ts'
import { covers, endpointsOf, RouteTable } from './routes.ts'
import { withTimeout } from '../lib/with-timeout.ts'

/** What a configuration serves at one address. */
export interface Site {
  readonly routes: RouteTable<Chain>
}

/** A site at an address of its own. */
export interface SideSite extends Site {
  readonly host: string
  readonly port: number
}

/** What a generation is made of. */
export interface GenerationNeeds {
  readonly number: number
  readonly config: Config
  readonly plugins: ReadonlyMap<string, Plugin>
  readonly host: Omit<BuiltInHost, 'retired'>
  readonly book: RequestBook
}

/** A configuration in force. */
export class Generation {
  readonly number: number
  readonly config: Config
  /** What customers call. */
  readonly main: Site
  /** What stages serve at addresses of their own, by the names of their plugins. */
  readonly sides: ReadonlyMap<string, SideSite>
  /** The stages that only watch. They also see requests for which there is no endpoint. */
  readonly watchers: Chain
  readonly #stages: readonly PlacedStage[]
  readonly #arrivals: readonly PlacedStage[]
  readonly #log: Log
  /** Aborts `host.retired` of the stages. */
  readonly #retiring: AbortController
  #running = 0
  #retired = false
  #drained: () => void = () => {}
  /** Resolves when the generation was retired and its last exchange has ended. */
  readonly drained: Promise<void>

  private constructor(
    { number, config, host, book }: GenerationNeeds,
    stages: readonly PlacedStage[],
    retired: AbortController,
  ) {
    const { log } = host
    this.number = number
    this.config = config
    this.#stages = stages
    this.#arrivals = stages.filter(({ stage }) => 'arrive' in stage)
    this.#log = log
    this.#retiring = retired
    this.drained = new Promise(resolve => (this.#drained = resolve))
    const shared: ChainNeeds = {
      log,
      limitMs: config.limits.stageMs,
      book,
      async rereadKey(x) {
        const hasChanged = await host.keys.hasChanged(x.secret, x.key)
        x.keyIsCurrent = true
        return hasChanged
      },
    }
    const chain = (of: readonly PlacedStage[]): Chain => new Chain(of, shared)
    const site = (parts: readonly PlacedStage[], serves: (stage: PlacedStage) => boolean): Site => {
      const routes = new RouteTable<Chain>()
      for (const endpoint of endpointsOf(parts.filter(serves).map(({ plugin }) => plugin.on)))
        routes.add(endpoint, chain(parts.filter(({ plugin }) => covers(plugin.on, endpoint))))
      return { routes }
    }
    const watching = stages.filter(({ plugin, stage }) => plugin.on === 'all' && !stage.request)
    this.watchers = chain(watching)
    this.main = site(
      stages.filter(({ plugin }) => !plugin.listens),
      () => true,
    )
    this.sides = new Map(
      stages
        .filter(({ plugin }) => plugin.listens)
        .map(own => {
          const entry = config.chain.find(({ plugin }) => plugin === own.plugin.name)
          const { listen } = (entry?.options ?? {}) as unknown as Listening
          const parts = stages.filter(stage => stage === own || watching.includes(stage))
          return [own.plugin.name, { ...listen, ...site(parts, stage => stage === own) }] as const
        }),
    )
  }

  /**
   * Sets up the stages of a checked configuration, in order.
   * @throws what the setup of a plugin throws; the stages that were set up before it are closed
   */
  static async build(needs: GenerationNeeds): Promise<Generation> {
    const { config, plugins, host } = needs
    const { log } = host
    const stages: PlacedStage[] = []
    const retiring = new AbortController()
    try {
      for (const { plugin: name, options } of config.chain) {
        const plugin = plugins.get(name) as Plugin
        const retired = guardedSignal(retiring.signal, cause =>
          log.error({ stage: name, err: cause }, 'a listener of host.retired failed'),
        )
        const own = hostFor(plugin, { ...host, retired })
        const setUp = plugin.setup(options as never, own as never)
        stages.push({
          plugin,
          stage: checkedStage(await withTimeout(setUp, config.limits.stageMs, 'its setup'), plugin),
        })
      }
      return new Generation(needs, stages, retiring)
    } catch (cause) {
      retiring.abort()
      await closeAll(stages, log, config.limits.stageMs)
      const { message, stack } = cause as Error
      const error = new Error(`stage ${config.chain[stages.length]?.plugin ?? ''} cannot be set up: ${message}`)
      // With a cause, the log would have the message twice.
      if (stack !== undefined) error.stack = stack
      throw error
    }
  }

  /** Lets the stages see a request that has arrived. What they throw is logged. */
  arrived(x: BuiltInExchange): void {
    for (const { plugin, stage } of this.#arrivals) {
      try {
        stage.arrive?.(x)
      } catch (cause) {
        this.#log.error({ exchange: x.id, stage: plugin.name, err: cause }, 'arrive hook failed')
      }
    }
  }

  /** Lets the stages see exchanges that are being recorded. @returns their notices */
  async recorded(recorded: Recorded): Promise<readonly Notice[]> {
    const notices: Notice[] = []
    for (const { plugin, stage } of this.#stages) {
      if (!stage.recorded) continue
      try {
        const own = stage.recorded(recorded)
        notices.push(...(await withTimeout(own, this.config.limits.stageMs, 'its recorded hook')))
      } catch (cause) {
        this.#log.error({ stage: plugin.name, err: cause }, 'recorded hook failed')
      }
    }
    return notices
  }

  enter(): void {
    this.#running++
  }

  leave(): void {
    this.#running--
    this.#checkDrained()
  }

  /** Exchanges under way. */
  get running(): number {
    return this.#running
  }

  /** Tells the stages to end what would go on for long. */
  endLong(): void {
    this.#retiring.abort()
  }

  /** Lets no new exchange enter, and closes the stages when the last one has left. */
  async retire(): Promise<void> {
    this.#retired = true
    this.endLong()
    this.#checkDrained()
    await this.drained
    await closeAll(this.#stages, this.#log, this.config.limits.stageMs)
  }

  #checkDrained(): void {
    if (this.#retired && this.#running === 0) this.#drained()
  }
}

/** The options of a plugin with an address of its own. */
interface Listening {
  readonly listen: { readonly host: string; readonly port: number }
}

/** Closes stages, the last one first. @param limit milliseconds that each may take */
async function closeAll(stages: readonly PlacedStage[], log: Log, limit: number): Promise<void> {
  for (const { plugin, stage } of [...stages].reverse()) {
    try {
      await withTimeout(stage.close?.(), limit, 'its close hook')
    } catch (cause) {
      log.error({ stage: plugin.name, err: cause }, 'close hook failed')
    }
  }
}
