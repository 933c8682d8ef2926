/**
 * An exchange, one request and its reply, as plugins see it; the facts that stages give; and how an exchange ends. It is the
 * contract with authors: docs/plugins.md explains each member.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { UpstreamAccount, ModelEntry, Upstream } from '../config/config.ts'
import type { GatewayError, Party } from '../errors.ts'
import type { Verdict } from '../formats/classify.ts'
import type { Failure, FormatName, ReplyEvent, Rewriter } from '../formats/index.ts'
import type { Key } from '../keys/keys.ts'
import type { Conditions } from '../money/price.ts'
import type { Usage } from '../money/usage.ts'

/** The model of a request, when the key may use it. */
export interface Model {
  /** The name that the client used, or the default that was filled in. */
  readonly asked: string
  readonly entry: ModelEntry
  /** Request headers that the suffix of the name stands for. */
  readonly headers: Readonly<Record<string, string>>
}

/** State stored at a provider that the request refers to, and that its own key has made. */
export interface Stored {
  /** The most input tokens that the state can stand for. */
  readonly tokens: number
  /** The input tokens that it probably stands for. */
  readonly likely: number
}

/** The JSON body of a request. It goes upstream as the bytes that arrived, with single top-level members replaced. */
export interface RequestBody {
  /** The bytes as they arrived. */
  readonly received: Buffer
  /** The names of the top-level members that arrived. */
  readonly names: Iterable<string>
  /** Whether a top-level member will be sent. */
  has(name: string): boolean
  /** Returns a top-level member as it will be sent, parsed; undefined if it will not be sent. */
  get(name: string): unknown
  /** Replaces or adds a top-level member. All other bytes stay the same. */
  set(name: string, value: unknown): void
  /** Removes a top-level member. */
  remove(name: string): void
}

/** Where a request goes now. Another account may follow if this one fails. */
export interface CurrentRoute {
  readonly upstream: Pick<Upstream, 'name'>
  /** The account that is asked there. */
  readonly account: Pick<UpstreamAccount, 'name'>
  /** The format that the gateway speaks to the upstream. */
  readonly format: { readonly name: FormatName }
}

/** What a reply has reported about itself so far. */
export interface ReplyTally {
  /** The name of the model in the reply. */
  readonly model: string | undefined
  /** The failure that the reply reported, if any. */
  readonly failure: Failure | undefined
  /** Whether later events can no longer change the usage. */
  readonly usageIsFinal: boolean
  /** Returns the usage reported so far. Undefined if nothing was reported. */
  usage(): { readonly usage: Usage } | undefined
}

/** What is held for a running request. */
export interface HeldAmount {
  /** In nano-credits. */
  readonly amount: bigint
}

/** What a request asks for beside the plain tokens of its model. */
export interface RequestExtras {
  /** The dearest conditions that it asks for; undefined for the standard ones. */
  readonly conditions: Conditions | undefined
  /** Media that the reply may contain. */
  readonly media: readonly ('audioOutput' | 'imageOutput')[]
  /** Other models that may serve the request or be asked for advice, by their upstream names. */
  readonly models: ReadonlyMap<string, ModelEntry>
}

/**
 * What stages have learnt about an exchange. One stage gives each fact, once, and it is read-only after that. A plugin
 * adds a fact of its own by declaration merging: `declare module 'tollgate/plugin' { interface Facts { … } }`.
 */
export interface Facts {
  key: Key
  /** The secret that the customer presented. It must not be logged, kept or passed on. */
  secret: string
  body: RequestBody
  model: Model
  route: CurrentRoute
  /** The stored state that the request refers to. */
  stored: Stored
  extras: RequestExtras
  tally: ReplyTally
  /** What is held for the request: the least of what the balance and the quotas gave. */
  runningHold: HeldAmount
}
/** The name of a fact. */
export type Fact = keyof Facts

/** One attempt at an upstream account. */
export interface Attempt {
  readonly upstream: string
  readonly account: string
  /** The upstream's status, if it answered. */
  readonly status?: number
  /** Why the attempt failed, for the log. */
  readonly failure?: string | undefined
  /** What the failure is about, as in docs/pools.md, and who failed. */
  readonly about?: string
  readonly who?: Party
  /** When it began, in milliseconds since the request came, and how many it took. Only for attempts that failed. */
  readonly afterMs?: number
  readonly ms?: number
}

/**
 * How an exchange ended: exactly one of these. answered: a stage replied. failed: the client got an error, or nothing.
 * relayed: the upstream's reply was sent. broken: a reply began and was not completed.
 */
export type Outcome =
  | { readonly kind: 'answered'; readonly status: number }
  | {
      readonly kind: 'failed'
      readonly error: GatewayError
      readonly attempts: readonly Attempt[]
      readonly by?: 'client' | StopReason
    }
  | { readonly kind: 'relayed'; readonly status: number; readonly attempts: readonly Attempt[] }
  | {
      readonly kind: 'broken'
      readonly by: 'client' | 'upstream' | 'gateway' | StopReason
      readonly status: number
      readonly attempts: readonly Attempt[]
    }

/**
 * Why the gateway ends a running reply: the balance is used up, the gateway stops, or the key was disabled, expired or
 * rotated.
 */
export type StopReason = 'budget' | 'drain' | 'disabled'

/** The upstream's answer before anything of it has been sent to the client. */
export interface Head {
  readonly status: number
  /** All headers of the upstream. They name its accounts, so they must not be passed on. */
  readonly headers: Readonly<IncomingHttpHeaders>
  /** The client gets a stream of server-sent events. */
  readonly stream: boolean
  /**
   * The failure that the upstream reported: with an error status, under status 200, or because its answer is not a
   * reply.
   */
  readonly failure: Failure | undefined
  /** What the failure is about, if there is one. */
  readonly verdict: Verdict | undefined
  /** The name of the model at the beginning of the reply, if there is one. */
  readonly model: string | undefined
  /** The headers that the client will get. A stage may add to them. */
  readonly reply: Record<string, string>
  readonly attempt: Attempt
}

/** One request and its reply. */
export interface Exchange extends Readonly<Partial<Facts>> {
  readonly id: string
  readonly method: string
  /** The path as it was sent, without the query. */
  readonly path: string
  readonly query: URLSearchParams
  readonly headers: Readonly<IncomingHttpHeaders>
  /**
   * The wire format of the endpoint, or of the one that the path is below. Other paths have the chat-completions
   * format, for their errors.
   */
  readonly format: { readonly name: FormatName }
  /** Whether the path is an inference endpoint. */
  readonly inference: boolean
  /** The client's address. */
  readonly address: string
  /** The group of addresses that limits per address count for: of IPv6, a network of 64 bits. */
  readonly addressGroup: string
  /** Aborts when all clients have left and the reply is not read on, or when the gateway ends the exchange. */
  readonly signal: AbortSignal
  /** When the request came, in milliseconds since the epoch. */
  readonly startedAt: number
  /** Milliseconds from the start to the first byte of the reply; undefined before it. */
  readonly firstByteAfter: number | undefined
  /** Whether the upstream has said that the reply is complete. */
  readonly complete: boolean
  /** Bytes of model output that have gone to the client, as text. */
  readonly delivered: number
  /** Milliseconds since the request went out, until the upstream ended. */
  readonly elapsedMs: number
  /** Whether all clients have left. The reply may still be read on. */
  readonly gone: boolean
  /** The key whose request it is, also if it is refused. Undefined without a valid key. */
  readonly caller: Key | undefined
  /** Adds headers to the reply, whatever it will be. Those of the reply itself take precedence. */
  addHeaders(headers: Readonly<Record<string, string>>): void
  /**
   * Returns the texts that the model reads, in any format: the system prompt, the messages, and the arguments and results
   * of tools. Ids, types and data of media are left out.
   * @throws TypeError if no stage above gives `body`
   */
  prompt(): Promise<readonly string[]>
  /**
   * Reads the request body. Only for endpoints of the plugin's own: at others, `json-body` has read it.
   * @param limit bytes
   * @throws GatewayError body_too_large, unsupported_encoding or request_timeout
   */
  read(limit: number): Promise<Buffer>
  /**
   * Calls back when the exchange has ended and is settled.
   * @returns a function that cancels the call
   */
  whenClosed(callback: () => void): () => void
  /**
   * Ends a running reply in its own format: `drain` as a failure, `disabled` with the given error, `budget` as if the
   * output limit was reached. If nothing has been sent, the client gets an error. Does nothing if the reply has ended.
   */
  stop(reason: 'drain'): void
  stop(reason: 'disabled', error: GatewayError): void
  stop(reason: 'budget', usage: Usage): void
}

/** The members of an exchange, without its facts. */
export const EXCHANGE_MEMBERS = [
  'id',
  'method',
  'path',
  'query',
  'headers',
  'format',
  'inference',
  'address',
  'addressGroup',
  'signal',
  'startedAt',
  'firstByteAfter',
  'complete',
  'delivered',
  'elapsedMs',
  'gone',
  'caller',
  'addHeaders',
  'prompt',
  'read',
  'whenClosed',
  'stop',
] as const satisfies readonly Exclude<keyof Exchange, Fact>[]

/** The facts of the built-in stages. */
export const FACTS = [
  'key',
  'secret',
  'body',
  'model',
  'route',
  'stored',
  'extras',
  'tally',
  'runningHold',
] as const satisfies readonly Fact[]

/** The members of a request body. */
export const BODY_MEMBERS = [
  'received',
  'names',
  'has',
  'get',
  'set',
  'remove',
] as const satisfies readonly (keyof RequestBody)[]

/** An exchange on which these facts are known. */
export type With<F extends Fact> = Exchange & { readonly [K in F]: Facts[K] }

export type { Failure, Key, ReplyEvent, Rewriter }
