/** One request and its reply as stages see them, what the chain learns on the way, and how an exchange ends. */
import type { IncomingHttpHeaders } from 'node:http'
import type { Body } from '../formats/body.ts'
import type { GatewayError } from '../errors.ts'
import type { Failure, Format, ReplyEvent, Rewriter, Translation } from '../formats/index.ts'
import type { Key } from '../ledger/keys.ts'
import type { Usage } from '../money/usage.ts'
import type { Outlet } from './outlet.ts'
import type { Account, ModelEntry, Upstream } from '../config/config.ts'
import type { Calls, Conditions } from '../money/price.ts'
import type { ProviderTool } from '../formats/provider-tools.ts'

/** The model of a request, once the gate has let it through. */
export interface Model {
  /** The name the client used, or the default that was filled in. */
  readonly asked: string
  readonly entry: ModelEntry
  /** Request headers that the name's suffix stands for. */
  readonly headers: Readonly<Record<string, string>>
}

/** Where a request goes: candidates in the order in which they are tried. */
export interface Route {
  /** The format in which the upstream is spoken to. */
  readonly format: Format
  /** What stands between client and upstream where their formats are not the same. */
  readonly translation?: Translation | undefined
  readonly candidates: readonly { readonly upstream: Upstream; readonly account: Account }[]
}

/** State that lies with a provider and that a request refers to, as far as the key that sends it has made it. */
export interface Stored {
  /** Input tokens that all of it stands for. */
  readonly tokens: number
}

/** The members of a request that are billed and were let through. */
export interface Extras {
  /** The dearest conditions that it asks for; undefined where they are the standard ones. */
  readonly conditions: Conditions | undefined
  /** The dearest conditions that it may be served under, asked for or not: it is held for at their price. */
  readonly held: Conditions | undefined
  /** Tools that the provider may run. */
  readonly tools: readonly ProviderTool[]
  /** Calls that are billed for the mere asking. */
  readonly leastCalls: Calls | undefined
  /** Other models that may be asked, or serve it, by the name that goes upstream. */
  readonly models: ReadonlyMap<string, ModelEntry>
  /** Those of them that may be asked beside the request's own. */
  readonly advisors: readonly Advisor[]
  /** Media that the reply may hold. */
  readonly media: readonly ('audioOutput' | 'imageOutput')[]
  /** Tokens of a prediction, which may be billed as output on top of the reply's own. */
  readonly predicted: number
}

/** A model that may be asked for advice, and the most times; Infinity where the request does not say. */
export interface Advisor {
  readonly entry: ModelEntry
  readonly most: number
}

/**
 * What the chain has learnt about an exchange. Each fact is given once, by one stage, and read-only after.
 * Plugins add theirs by declaration merging.
 */
export interface Facts {
  key: Key
  body: Body
  model: Model
  route: Route
  /** The stored state that the request refers to. */
  stored: Stored
  /** What of the request is billed beside its tokens, as far as that was let through. */
  extras: Extras
}
export type Fact = keyof Facts

/** One try at one account of an upstream. */
export interface Attempt {
  readonly upstream: string
  readonly account: string
  /** The upstream's status, once it answered. */
  readonly status?: number
  /** Why the try failed, in words fit for a log. */
  readonly failure?: string
}

/** Every exchange ends in exactly one of these. */
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
      readonly by: 'client' | 'upstream' | StopReason
      readonly status: number
      readonly attempts: readonly Attempt[]
    }

/** Why the gateway itself ends a running reply: the balance is used up, the gateway stops, or the key is off. */
export type StopReason = 'budget' | 'drain' | 'disabled'

/** The upstream's answer before anything of it has gone to the client. */
export interface Head {
  readonly status: number
  /** The upstream's headers, whole: they name its accounts and must not be passed on. */
  readonly headers: Readonly<IncomingHttpHeaders>
  /** The reply is a stream of server-sent events. */
  readonly stream: boolean
  /** What the upstream said went wrong: for error statuses, for errors under status 200, and for what is no reply at all. */
  readonly failure: Failure | undefined
  /** What the reply calls its model at its beginning; undefined where it does not say. */
  readonly model: string | undefined
  /** What the client will get; a stage may add to it. */
  readonly reply: Record<string, string>
  readonly attempt: Attempt
}

/** One request and its reply. */
export interface Exchange extends Readonly<Partial<Facts>> {
  readonly id: string
  readonly method: string
  /** The path exactly as sent, without the query. */
  readonly path: string
  readonly query: URLSearchParams
  readonly headers: Readonly<IncomingHttpHeaders>
  /** The wire format of the path, or of the endpoint it stands below; look-ups and the like use the chat shape for their errors. */
  readonly format: Format
  /** The path is an inference endpoint. */
  readonly inference: boolean
  /** The client's address. */
  readonly address: string
  /** Aborts when the client goes away. */
  readonly signal: AbortSignal
  /** Milliseconds since the epoch, by the host's clock. */
  readonly startedAt: number
  /** Milliseconds from the start to the first byte of the reply; undefined while there is none. */
  readonly firstByteAfter: number | undefined
  /** The reply has said that it is complete. */
  readonly complete: boolean
  /** Bytes of model output that went to the client so far, as text: what an estimate is made from. */
  readonly delivered: number
  /** Bytes of reasoning that came encrypted, or as signatures. */
  readonly encryptedBytes: number
  /** Milliseconds in which the upstream has sent nothing that shows what its model does, since the last encrypted reasoning. */
  readonly silentMs: number
  /** Milliseconds for which the upstream has been at work. */
  readonly elapsedMs: number
  /** All clients have left; the reply may be read on. */
  readonly gone: boolean
  /** Nobody waits for the reply any more, and it is not read on. */
  readonly over: boolean
  /** Where the reply goes. */
  readonly outlet: Outlet
  /**
   * The request body.
   * @param limit bytes
   * @param watch sees all that has come so far whenever more has come, and again where it returns false; what it throws ends the reading
   * @throws GatewayError body_too_large, unsupported_encoding, or request_timeout
   */
  read(limit: number, watch?: (bytes: Buffer) => boolean | void): Promise<Buffer>
  /**
   * Takes memory for the request before it is used; it is given back when the exchange is over.
   * @throws GatewayError unavailable where there is not so much left for this key
   */
  reserve(bytes: number): void
  /** Calls back when the exchange is over and its memory is given back. @returns what takes the wish back */
  whenClosed(callback: () => void): () => void
  /** Gives back some of the memory that was taken. */
  release(bytes: number): void
  /**
   * Ends a running reply: by `drain` the way its format reports a failure, with `disabled` as the error that is given, by
   * `budget` as one whose output limit is reached. One of which nothing has gone out becomes an error. Does nothing once
   * the reply has ended.
   */
  stop(reason: 'drain'): void
  stop(reason: 'disabled', error: GatewayError): void
  stop(reason: 'budget', usage: Usage): void
  /** Ends the reading of a reply whose clients have left. Does nothing while one listens. */
  giveUp(): void
}

/** An exchange on which the named facts are known. */
export type With<F extends Fact> = Exchange & { readonly [K in F]: Facts[K] }

export type { Failure, Format, Key, ReplyEvent, Rewriter }
