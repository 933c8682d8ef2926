/** The hooks and the host of the built-in plugins. They may change at any time. */
import type { FromSchema, JSONSchema } from 'json-schema-to-ts'
import type { BuiltInExchange, BuiltInFacts, BuiltInWith } from '../exchange/built-in.ts'
import type { ClientRequests } from '../exchange/client-requests.ts'
import type { Fact, Outcome } from '../exchange/exchange.ts'
import type { LongJobs } from '../jobs/long-jobs.ts'
import type { Keys } from '../keys/keys.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { reportingMisspelt } from '../lib/misspelt.ts'
import type { MeterState } from '../metering/meter-state.ts'
import type { Pool } from '../pool/pool.ts'
import type { PoolSharing } from '../pool/sharing.ts'
import type { Notice } from '../records/notices.ts'
import type { Recorded } from '../records/watcher.ts'
import {
  type Awaitable,
  type Definition,
  type Hooks,
  HOOKS,
  type Host,
  HOST_MEMBERS,
  type Plugin,
  pluginOf,
} from './stage.ts'

/** What a request hook of a built-in plugin returns: the facts that the plugin gives, or nothing if it gives none. */
export type BuiltInGiven<G extends Fact> = [G] extends [never] ? void : { readonly [K in G]: BuiltInFacts[K] }

/** A stage of a built-in plugin, with the hooks that only such plugins have. */
export interface BuiltInStage<N extends Fact = never, G extends Fact = never> extends Hooks<
  BuiltInExchange,
  BuiltInWith<N>,
  BuiltInWith<N | G>,
  BuiltInGiven<G>
> {
  /**
   * On the way up: `anybody` is false when all clients of a reply have left and the reply is read on, and true when a
   * resend has joined it.
   */
  listening?(x: BuiltInWith<N | G>, anybody: boolean): void
  /**
   * On the way up, once, before the last bytes of a complete reply whose usage is final. These bytes wait for a promise for
   * at most `limits.stage`, so that what is decided here is on its way before the client has its reply. `settle` runs in any
   * case.
   */
  decide?(x: BuiltInWith<N | G>, outcome: Outcome): Promise<void> | void
  /**
   * When exchanges are being recorded, in the process that does so, and when something happens to a plan. The notices that it
   * returns are recorded in the same transaction. If it throws, or takes longer than `limits.stage`, there are none.
   */
  recorded?(recorded: Recorded): Promise<readonly Notice[]>
}

/** The members that a stage of a built-in plugin may have. */
export const BUILT_IN_HOOKS = [
  ...HOOKS,
  'listening',
  'decide',
  'recorded',
] as const satisfies readonly (keyof BuiltInStage)[]

/** What the gateway provides to a built-in plugin. */
export interface BuiltInHost extends Host {
  readonly ledger: Ledger
  readonly keys: Keys
  readonly meter: MeterState
  /** The accounts of the upstreams, and their health. */
  readonly pool: Pool
  /** What the processes share of that. */
  readonly sharing: PoolSharing
  /** Requests that may be sent again. */
  readonly clientRequests: ClientRequests
  /** Runs large translations on another thread. */
  readonly longJobs: LongJobs
  /** The state of the gateway, for probes. */
  readonly status: Status
}

/** The state of the gateway, as probes show it. */
export interface Status {
  /** The kind of the store: `redis`, `managed redis-server` or `embedded (for a first try only)`. */
  readonly store: string
  /** Names of the upstreams that the simulated provider replaces. */
  readonly simulated: readonly string[]
  readonly draining: boolean
  /**
   * Bytes that requests and replies in flight have taken, bytes that they may take, and how many were refused for lack
   * of memory.
   */
  readonly memory: { readonly taken: number; readonly total: number; readonly refused: number }
  /** Requests that were sent to an upstream a second time after all their bytes had left, since the start. */
  readonly repeated: number
  /** Returns why requests cannot be served at this moment, for operators; undefined if they can. */
  probe(): Promise<string | undefined>
}

const AUTHORS_HOST = reportingMisspelt('host', HOST_MEMBERS)

/** Returns the host that a plugin gets: a plugin of an author gets only the members of `Host`, and misspelt ones throw. */
export function hostFor(plugin: Pick<Plugin, 'builtIn'>, host: BuiltInHost): Host {
  if (plugin.builtIn) return host
  const members = HOST_MEMBERS.map(name => [name, { value: host[name], enumerable: true }] as const)
  return Object.create(AUTHORS_HOST, Object.fromEntries(members)) as Host
}

interface BuiltInDefinition<S extends JSONSchema, N extends Fact, G extends Fact, O> extends Definition<S, N, G> {
  setup(options: NoInfer<O>, host: BuiltInHost): Awaitable<BuiltInStage<NoInfer<N>, NoInfer<G>>>
}

/** Defines a built-in plugin, like `definePlugin`. */
export function defineBuiltIn<
  const S extends JSONSchema = { readonly type: 'object'; readonly additionalProperties: false },
  const N extends Fact = never,
  const G extends Fact = never,
  O = FromSchema<S>,
>(definition: BuiltInDefinition<S, N, G, O>): Plugin {
  return pluginOf(definition, true)
}
