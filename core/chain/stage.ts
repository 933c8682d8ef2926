/** The plugin contract: what a plugin declares, the hooks of the stage that it sets up, and what the gateway gives it. */
import type { FromSchema, JSONSchema } from 'json-schema-to-ts'
import type { Config } from '../config/config.ts'
import type { Reply } from '../errors.ts'
import type { Attempt, Exchange, Fact, Facts, Head, Outcome, ReplyEvent, Rewriter, With } from '../exchange/exchange.ts'
import type { Key } from '../keys/keys.ts'
import type { Log } from '../lib/log.ts'
import type { Balance, Count } from '../records/entry.ts'

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

/** The hooks of a stage on exchanges as `Seen` and `Known` describe them. */
export interface Hooks<Seen, Below, Known, Gives> {
  /**
   * A request has arrived where customers call, on any path, before anything else happens. May add headers to the reply,
   * whatever it will be. Must be quick.
   */
  arrive?(x: Seen): void
  /**
   * The request goes down the chain. Returns facts, throws a GatewayError, or returns a Reply, which ends the way down.
   * It runs again if the key was changed meanwhile. The gateway waits for a promise for at most `limits.stage`.
   */
  request?(x: Below): Awaitable<Gives | Reply>
  /**
   * An attempt has failed before anything of its reply was sent, and the request is about to go out again: to another
   * account, which `route` names already, or shortened to the same one. Must forget what the failed attempt has reported.
   * Returns false if the new account cannot be used, so that the next one is asked. The gateway waits for a promise for at
   * most `limits.stage`.
   */
  attempt?(x: Known, failed: Attempt): Awaitable<boolean | void>
  /**
   * The upstream has answered, and nothing has been sent. A GatewayError that it throws, and a Reply that it returns,
   * replaces the upstream's answer. The gateway waits for a promise for at most `limits.stage`.
   */
  response?(x: Known, head: Head): Awaitable<Reply> | undefined | void
  /** The reply is about to begin: returns what changes its events. Without it the bytes pass unchanged. */
  rewrite?(x: Known, head: Head): Rewriter | undefined
  /** An event passes. What it throws is logged, and the bytes go on. */
  event?(x: Known, event: ReplyEvent): void
  /** Which events the `event` hook sees: all, or at least those that can carry usage, a failure or the end. */
  readonly events?: 'all' | 'signals'
  /**
   * More of a stream has gone to the client; `delivered` tells how much. It is called often and must be quick. The stream
   * waits for a promise for at most `limits.stage`.
   */
  progress?(x: Known): Promise<void> | undefined | void
  /** The exchange has ended, however: runs once for each stage that the request passed. */
  settle?(x: Known, outcome: Outcome): Awaitable<void>
  /** The last exchange of the configuration has ended: releases what `setup` acquired. */
  close?(): Awaitable<void>
}

/** A stage: the hooks of a plugin that has been set up. All of them are optional. */
export interface Stage<N extends Fact = never, G extends Fact = never> extends Hooks<
  Exchange,
  With<N>,
  With<N | G>,
  Given<G>
> {}

/** The members that a stage may have. */
export const HOOKS = [
  'arrive',
  'request',
  'attempt',
  'response',
  'rewrite',
  'event',
  'events',
  'progress',
  'settle',
  'close',
] as const satisfies readonly (keyof Stage)[]

/** What the gateway provides to a plugin. Time and ids come from here, so that a test can control them. */
export interface Host {
  /** The checked gateway.yaml. */
  readonly config: Config
  readonly log: Log
  /** Returns the time, in milliseconds since the epoch. */
  readonly now: () => number
  /** Returns a new unique id, safe in headers and store keys. */
  readonly newId: () => string
  /**
   * Aborts when a newer configuration is in force, or the gateway stops. Exchanges still run then. End what would go on for
   * long, such as a stream of events.
   */
  readonly retired: AbortSignal
  /** Returns the sums of a key, in nano-credits. @throws GatewayError unavailable */
  balance(key: Pick<Key, 'account'>): Promise<Balance>
  /** Returns what a key has used: in all, by UTC day and by model. @throws GatewayError unavailable */
  usage(key: Pick<Key, 'whose'>): Promise<KeyUsage>
}

/** What a key has used. Amounts are in nano-credits. */
export interface KeyUsage {
  readonly total: Count
  /** By days since 1970-01-01, in UTC. */
  readonly days: ReadonlyMap<number, Count>
  readonly models: ReadonlyMap<string, Count>
}

/** The members of a host. */
export const HOST_MEMBERS = [
  'config',
  'log',
  'now',
  'newId',
  'retired',
  'balance',
  'usage',
] as const satisfies readonly (keyof Host)[]

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
  /** Whether its hooks and its host are those of the built-in plugins. */
  readonly builtIn: boolean
  readonly page: PersonsPage | undefined
  readonly options: JSONSchema
  setup(options: never, host: never): Awaitable<object>
}

/** What a plugin declares. */
export interface Definition<S extends JSONSchema, N extends Fact, G extends Fact> {
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
}

/** What a plugin of an author declares. */
interface AuthorsDefinition<S extends JSONSchema, N extends Fact, G extends Fact, O> extends Definition<S, N, G> {
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
>(definition: AuthorsDefinition<S, N, G, O>): Plugin {
  return pluginOf(definition, false)
}

/** Returns a plugin with all its members. */
export function pluginOf(definition: object, builtIn: boolean): Plugin {
  return {
    needs: [],
    gives: [],
    meters: false,
    listens: false,
    page: undefined,
    options: NO_OPTIONS,
    ...definition,
    builtIn,
  } as unknown as Plugin
}
