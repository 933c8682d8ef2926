/**
 * The plugin contract: what a plugin declares, the hooks of the stage that it sets up, and what the gateway provides to
 * it.
 */
import type { FromSchema, JSONSchema } from 'json-schema-to-ts'
import type { Config } from '../config/config.ts'
import type { Reply } from '../errors.ts'
import type { Attempts } from '../exchange/attempts.ts'
import type { Attempt, Exchange, Fact, Facts, Head, Outcome, ReplyEvent, Rewriter, With } from '../exchange/exchange.ts'
import type { LongJobs } from '../jobs/long-jobs.ts'
import type { Keys } from '../keys/keys.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Log } from '../lib/log.ts'
import type { MeterState } from '../metering/meter-state.ts'
import type { Sql } from '../records/database.ts'
import type { Recorded } from '../records/watcher.ts'
import type { Pool } from '../pool/pool.ts'
import type { PoolSharing } from '../pool/sharing.ts'

/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>

/** What a request hook returns: the facts that the plugin gives, or nothing if it gives none. */
export type Given<G extends Fact> = [G] extends [never] ? void : { readonly [K in G]: Facts[K] }

/**
 * The exchanges that a stage takes part in: all, those at inference endpoints, those at endpoints that count tokens, or
 * those at single endpoints. A path that ends in `/*` stands for everything below it.
 */
export type Scope = (typeof SCOPE_WORDS)[number] | `${(typeof METHODS)[number]} /${string}` | readonly Scope[]

/** The scopes that are not endpoints. */
export const SCOPE_WORDS = ['all', 'inference', 'counting'] as const
/** The methods of endpoints. HEAD is answered like GET. */
export const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const

/** The hooks of a plugin that has been set up. All of them are optional. */
export interface Stage<N extends Fact = never, G extends Fact = never> {
  /**
   * When a request has arrived where customers call, on any path, before anything else happens. It may add headers to the reply, whatever it
   * will be. It must be quick.
   */
  arrive?(x: Exchange): void
  /**
   * On the way down, in the order of the chain. Returns facts, throws a GatewayError, or returns a Reply, which ends
   * the way down. The gateway waits for a promise for at most `limits.stage`.
   */
  request?(x: With<N>): Awaitable<Given<G> | Reply>
  /**
   * On the way up, when an account has failed before anything of its reply was sent, and the request is about to go to
   * another one: `route` is the new one already. What the failed attempt has reported must be forgotten here. Returns
   * false if the new account cannot be used, so that the next one is asked. The gateway waits for a promise for at most
   * `limits.stage`.
   */
  reroute?(x: With<N | G>, failed: Attempt): Awaitable<boolean | void>
  /**
   * On the way up, when the upstream has answered and nothing has been sent. A GatewayError that it throws, and a Reply
   * that it returns, replaces the upstream's answer. The gateway waits for a promise for at most `limits.stage`.
   */
  response?(x: With<N | G>, head: Head): Awaitable<Reply> | undefined | void
  /**
   * On the way up, before the reply begins: returns what changes the events of the reply. Without it the bytes pass
   * unchanged.
   */
  rewrite?(x: With<N | G>, head: Head): Rewriter | undefined
  /** On the way up: sees events as they pass. What it throws is logged, and the bytes go on. */
  event?(x: With<N | G>, event: ReplyEvent): void
  /**
   * On the way up: more of a stream has gone to the client; `delivered` tells how much. It is called often and must be
   * quick. The stream waits for a promise for at most `limits.stage`.
   */
  progress?(x: With<N | G>): Promise<void> | undefined | void
  /**
   * On the way up: `anybody` is false when all clients of a reply have left and the reply is read on, and true when a
   * retry has joined it.
   */
  listening?(x: With<N | G>, anybody: boolean): void
  /**
   * Which events the `event` hook sees: all, or only those that can carry usage, a failure or the end. `all` by
   * default.
   */
  readonly events?: 'all' | 'signals'
  /**
   * On the way up, once, before the last bytes of a complete reply whose usage is final. These bytes wait for a promise for
   * at most `limits.stage`, so that what is decided here is on its way before the client has its reply. `settle` runs in any
   * case.
   */
  decide?(x: With<N | G>, outcome: Outcome): Promise<void> | void
  /** After the last byte: runs once for each stage that the request passed, however the exchange ended. */
  settle?(x: With<N | G>, outcome: Outcome): Awaitable<void>
  /**
   * When exchanges have just been recorded, in the transaction that records them. Only the process that records calls it.
   * What it writes is written if and only if the exchanges are. If it throws, or takes longer than `limits.stage`, they are
   * recorded without it.
   */
  recorded?(sql: Sql, recorded: Recorded): Promise<void>
  /** Runs when a newer configuration is in force, or the gateway stops: ends what would go on for long. */
  retire?(): void
  /** Runs when the generation has drained. */
  close?(): Awaitable<void>
}

/** The members that a stage may have. */
export const HOOKS = [
  'arrive',
  'request',
  'reroute',
  'response',
  'rewrite',
  'event',
  'events',
  'progress',
  'listening',
  'decide',
  'settle',
  'recorded',
  'retire',
  'close',
] as const satisfies readonly (keyof Stage)[]

/** What the gateway provides to a plugin. Time and ids come from here, so that a test can control them. */
export interface Host {
  readonly config: Config
  readonly ledger: Ledger
  readonly keys: Keys
  readonly meter: MeterState
  /** The accounts of the upstreams, and their health. */
  readonly pool: Pool
  /** What the processes share of that. */
  readonly sharing: PoolSharing
  /** Requests that may be sent again. */
  readonly attempts: Attempts
  /** Runs large translations on another thread. */
  readonly longJobs: LongJobs
  readonly log: Log
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** A new unique id, safe in headers and store keys. */
  readonly newId: () => string
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

/** A page for people: its path, and whom it is for, as in "Operators sign in at". */
export interface PersonsPage {
  readonly path: string
  readonly words: string
}

/** A plugin, as `definePlugin` returns it. */
export interface Plugin {
  readonly name: string
  readonly summary: string
  readonly on: Scope
  readonly needs: readonly Fact[]
  readonly gives: readonly Fact[]
  readonly meters: boolean
  readonly listens: boolean
  readonly page: PersonsPage | undefined
  readonly options: JSONSchema
  setup(options: never, host: Host): Awaitable<Stage<Fact, Fact>>
}

interface Definition<S extends JSONSchema, N extends Fact, G extends Fact, O> {
  /** The word in `chain:`. It must equal the name of the file. */
  readonly name: string
  /** One sentence, for `tollgate plugins` and the documentation. */
  readonly summary: string
  readonly on: Scope
  /** Facts that stages above must give. */
  readonly needs?: readonly N[]
  /** Facts that `request` returns. */
  readonly gives?: readonly G[]
  /** Whether it meters what goes upstream. A chain that sends requests upstream must have such a stage. */
  readonly meters?: boolean
  /**
   * Whether its endpoints are served at an address of their own, which its option `listen` names, and not where customers
   * call. No other stage takes part in them, except those that only watch.
   */
  readonly listens?: boolean
  /** A page for people, if it serves one. The start prints its address behind the words. */
  readonly page?: PersonsPage
  /** JSON Schema of the options, as plain data. Defaults in it are filled in. */
  readonly options?: S
  setup(options: NoInfer<O>, host: Host): Awaitable<Stage<NoInfer<N>, NoInfer<G>>>
}

/** The schema of the option `listen` of a plugin that listens. @param port its default */
export function listenOption<const P extends number>(port: P) {
  return {
    type: 'object',
    additionalProperties: false,
    default: {},
    description: 'Where it listens: an address of its own.',
    properties: {
      host: { type: 'string', minLength: 1, default: '127.0.0.1', description: 'Address to listen on.' },
      port: {
        type: 'integer',
        minimum: 0,
        maximum: 65535,
        default: port,
        description: 'Port to listen on; 0 takes a free one.',
      },
    },
  } as const
}

/** The options of a plugin that declares none: any option is an error. */
const NO_OPTIONS = { type: 'object', additionalProperties: false } as const

/**
 * Defines a plugin. `needs` and `gives` determine the types of the hooks, and the gateway checks them when it loads a
 * chain.
 */
export function definePlugin<
  const S extends JSONSchema = typeof NO_OPTIONS,
  const N extends Fact = never,
  const G extends Fact = never,
  O = FromSchema<S>,
>(definition: Definition<S, N, G, O>): Plugin {
  return {
    needs: [],
    gives: [],
    meters: false,
    listens: false,
    page: undefined,
    options: NO_OPTIONS,
    ...definition,
  } as unknown as Plugin
}
