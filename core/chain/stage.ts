/** The plugin contract: what a plugin declares, the hooks of the stage that it sets up, and what it is lent. */
import type { FromSchema, JSONSchema } from 'json-schema-to-ts'
import type { Config } from '../config/config.ts'
import type { Reply } from '../errors.ts'
import type { Attempts } from '../exchange/attempts.ts'
import type { Fact, Facts, Head, Outcome, ReplyEvent, Rewriter, With } from '../exchange/exchange.ts'
import type { LongJobs } from '../jobs/long-jobs.ts'
import type { Keys } from '../ledger/keys.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Log } from '../lib/log.ts'
import type { MeterState } from '../metering/meter-state.ts'

export type Awaitable<T> = T | Promise<T>

/** What a request hook returns: the facts it promised, or nothing when it promised none. */
export type Given<G extends Fact> = [G] extends [never] ? void : { readonly [K in G]: Facts[K] }

/**
 * The exchanges a stage takes part in: all of them, the inference endpoints, those that count a request's tokens, or
 * single endpoints. A path may end in `/*` for everything below it.
 */
export type Scope =
  'all' | 'inference' | 'counting' | `${'GET' | 'POST' | 'DELETE' | 'PATCH'} /${string}` | readonly Scope[]

/** A plugin set up: its hooks, all optional. README draws the order in which they run. */
export interface Stage<N extends Fact = never, G extends Fact = never> {
  /** Down: learn, throw a GatewayError, or answer with a Reply. */
  request?(x: With<N>): Awaitable<Given<G> | Reply>
  /** Up: the upstream answered and nothing has been sent yet. A GatewayError thrown or a Reply returned here replaces its answer. */
  response?(x: With<N | G>, head: Head): Awaitable<Reply> | undefined | void
  /** Up: what changes the reply's events; without one its bytes pass untouched. */
  rewrite?(x: With<N | G>, head: Head): Rewriter | undefined
  /** Up: sees events as they pass. What it throws is logged; the bytes go on. */
  event?(x: With<N | G>, event: ReplyEvent): void
  /**
   * Up: more of a stream has gone to the client; `delivered` says how much it is by now. Called often: be quick. The stream
   * waits for a promise that it returns.
   */
  progress?(x: With<N | G>): Promise<void> | undefined | void
  /**
   * Up: all clients of a reply have left and it is read on without them (`anybody` is false), or a retry has taken it over
   * (true).
   */
  listening?(x: With<N | G>, anybody: boolean): void
  /** Which events `event` wants: all, or only those its format can learn usage, failure or the end from. All by default. */
  readonly events?: 'all' | 'signals'
  /** Up: once, after the last byte, however the exchange ended. */
  settle?(x: With<N | G>, outcome: Outcome): Awaitable<void>
  /** This generation of the configuration has drained. */
  close?(): Awaitable<void>
}

/** What the gateway lends to a plugin. Clocks and ids come from here, so that a test can hold them. */
export interface Host {
  readonly config: Config
  readonly ledger: Ledger
  readonly keys: Keys
  readonly meter: MeterState
  /** Requests that may be asked again. */
  readonly attempts: Attempts
  /** Translates large requests and replies on another thread. */
  readonly longJobs: LongJobs
  readonly log: Log
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** A new unique id, safe in headers and store keys. */
  readonly newId: () => string
  /** The gateway's own state, for probes. */
  readonly status: Status
}

/** The gateway as its probes show it. */
export interface Status {
  /** Where balances live, in words: `redis`, `managed redis-server`, `embedded (first look only)`. */
  readonly store: string
  /** Names of upstreams that the simulated provider stands in for. */
  readonly simulated: readonly string[]
  readonly draining: boolean
  /** Bytes that requests and replies in flight have taken, of those there are, and how many were refused for lack of them. */
  readonly memory: { readonly taken: number; readonly total: number; readonly refused: number }
  /** Requests that were sent to an upstream again although all of them had left, since the start. */
  readonly repeated: number
  /** Resolves when the store answers; rejects when it does not. */
  probe(): Promise<void>
}

/** A plugin as the core keeps it, its types checked when it was defined. */
export interface Plugin {
  readonly name: string
  readonly summary: string
  readonly on: Scope
  readonly needs: readonly Fact[]
  readonly gives: readonly Fact[]
  readonly meters: boolean
  readonly options: JSONSchema
  setup(options: never, host: Host): Awaitable<Stage<Fact, Fact>>
}

interface Definition<S extends JSONSchema, N extends Fact, G extends Fact, O> {
  /** The word in `chain:`; equals the file's name. */
  readonly name: string
  /** One sentence for `tollgate plugins` and README. */
  readonly summary: string
  readonly on: Scope
  /** Facts that stages above must have given. */
  readonly needs?: readonly N[]
  /** Facts that `request` returns. */
  readonly gives?: readonly G[]
  /** It accounts for what goes upstream: a chain that sends requests there must have one that does. */
  readonly meters?: boolean
  /** JSON Schema of the options, as plain data; its defaults are filled in. */
  readonly options?: S
  setup(options: NoInfer<O>, host: Host): Awaitable<Stage<N, G>>
}

/** Options of a plugin that declares none: any setting is an error. */
const NO_OPTIONS = { type: 'object', additionalProperties: false } as const

/** Defines a plugin. `needs` and `gives` type the hooks here and are checked against the chain when it is loaded. */
export function definePlugin<
  const S extends JSONSchema = typeof NO_OPTIONS,
  const N extends Fact = never,
  const G extends Fact = never,
  O = FromSchema<S>,
>(definition: Definition<S, N, G, O>): Plugin {
  return { needs: [], gives: [], meters: false, options: NO_OPTIONS, ...definition } as unknown as Plugin
}
