/** An exchange, one request and its reply, as stages see it; the facts that stages give; and how an exchange ends. */
import type { IncomingHttpHeaders } from 'node:http'
import type { Body } from '../formats/body.ts'
import type { GatewayError, Party } from '../errors.ts'
import type { Verdict } from '../formats/classify.ts'
import type { Failure, Format, ReplyEvent, Rewriter } from '../formats/index.ts'
import type { Key } from '../keys/keys.ts'
import type { Usage } from '../money/usage.ts'
import type { Outlet } from '../client/outlet.ts'
import type { ModelEntry } from '../config/config.ts'
import type { Route } from './route.ts'
import type { Calls, Conditions } from '../money/price.ts'
import type { ProviderTool } from '../formats/provider-tools.ts'

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

/** What a request asks for beside the plain tokens of its model, as far as the chain let it through. */
export interface Extras {
  /** The dearest conditions that it asks for; undefined for the standard ones. */
  readonly conditions: Conditions | undefined
  /** The dearest conditions that it may be served under. They determine what is held. */
  readonly held: Conditions | undefined
  /** Tools that the provider may run. */
  readonly tools: readonly ProviderTool[]
  /** The provider may read the input again without a tool of its own: it searches for tools, or compacts. */
  readonly rereads: boolean
  /** Calls that are billed even if the reply reports none. */
  readonly leastCalls: Calls | undefined
  /** Other models that may serve the request or be asked for advice, by their upstream names. */
  readonly models: ReadonlyMap<string, ModelEntry>
  /** Those of them that may be asked for advice. */
  readonly advisors: readonly Advisor[]
  /** Media that the reply may contain. */
  readonly media: readonly ('audioOutput' | 'imageOutput')[]
  /** Tokens of a prediction, which may be billed as output in addition to the reply's own. */
  readonly predicted: number
}

/** A model that may be asked for advice, and how often at most: Infinity if the request does not say. */
export interface Advisor {
  readonly entry: ModelEntry
  readonly most: number
}

/**
 * What stages have learnt about an exchange. One stage gives each fact, once, and it is read-only after that. A plugin
 * adds a fact of its own by declaration merging: `declare module 'tollgate/plugin' { interface Facts { … } }`.
 */
export interface Facts {
  key: Key
  body: Body
  model: Model
  route: Route
  /** The stored state that the request refers to. */
  stored: Stored
  /** What the request asks for beside plain tokens. */
  extras: Extras
}
/** The name of a fact. */
export type Fact = keyof Facts

/** One try at one account of an upstream. */
export interface Attempt {
  readonly upstream: string
  readonly account: string
  /** The upstream's status, if it answered. */
  readonly status?: number
  /** Why the try failed, for the log. */
  readonly failure?: string | undefined
  /** What the failure is about, as in docs/pools.md, and who failed. */
  readonly about?: string
  readonly who?: Party
  /** When it began, in milliseconds since the request came, and how many it took. Only for tries that failed. */
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
  readonly format: Format
  /** The path is an inference endpoint. */
  readonly inference: boolean
  /** The client's address. */
  readonly address: string
  /** The group of addresses that limits per address count for: of IPv6, a network of 64 bits. */
  readonly addressGroup: string
  /** Aborts when the client leaves. */
  readonly signal: AbortSignal
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  /** Milliseconds from the start to the first byte of the reply; undefined before it. */
  readonly firstByteAfter: number | undefined
  /** The upstream has said that the reply is complete. */
  readonly complete: boolean
  /** Bytes of model output that have gone to the client, as text. Estimates are made from it. */
  readonly delivered: number
  /** Bytes of reasoning that arrived encrypted, or as signatures. */
  readonly encryptedBytes: number
  /**
   * Milliseconds in which the upstream has sent nothing that shows what its model does, since the last encrypted
   * reasoning.
   */
  readonly silentMs: number
  /** Milliseconds since the request went out, until the upstream ended. */
  readonly elapsedMs: number
  /** All clients have left. The reply may still be read on. */
  readonly gone: boolean
  /** No client waits for the reply, and it is not read on. */
  readonly over: boolean
  /** The key whose request it is, also if it is refused. Undefined without a valid key. */
  readonly caller: Key | undefined
  /** Notes whose request it is. */
  identify(key: Key): void
  /** Adds headers to the reply, whatever it will be. Those of the reply itself take precedence. */
  addHeaders(headers: Readonly<Record<string, string>>): void
  /** Where the reply goes. */
  readonly outlet: Outlet
  /**
   * Reads the request body.
   * @param limit bytes
   * @param watch is called with all bytes so far whenever more have arrived, and again as long as it returns false.
   * What it throws ends the reading
   * @throws GatewayError body_too_large, unsupported_encoding or request_timeout
   */
  read(limit: number, watch?: (bytes: Buffer) => boolean | void): Promise<Buffer>
  /**
   * Takes memory for the request. It is given back when the exchange is over.
   * @throws GatewayError unavailable if there is too little left for this key
   */
  reserve(bytes: number): void
  /**
   * Calls back when the exchange is over and its memory has been given back.
   * @returns a function that cancels the call
   */
  whenClosed(callback: () => void): () => void
  /** Gives back some of the memory. */
  release(bytes: number): void
  /**
   * Ends a running reply in its own format: `drain` as a failure, `disabled` with the given error, `budget` as if the
   * output limit was reached. If nothing has been sent, the client gets an error. Does nothing if the reply has ended.
   */
  stop(reason: 'drain'): void
  stop(reason: 'disabled', error: GatewayError): void
  stop(reason: 'budget', usage: Usage): void
  /** Stops reading a reply whose clients have left. Does nothing while a client listens. */
  giveUp(): void
}

/** An exchange on which these facts are known. */
export type With<F extends Fact> = Exchange & { readonly [K in F]: Facts[K] }

export type { Failure, Format, Key, ReplyEvent, Rewriter, Route }
