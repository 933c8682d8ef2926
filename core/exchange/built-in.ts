/** An exchange as the core and the built-in stages see it: what plugins see, and more. It may change at any time. */
import type { Body } from '../formats/body.ts'
import type { Failure, Format, ReplyEvent, Rewriter } from '../formats/index.ts'
import type { ProviderTool } from '../formats/provider-tools.ts'
import type { ModelEntry } from '../config/config.ts'
import type { Key } from '../keys/keys.ts'
import type { Calls, Conditions } from '../money/price.ts'
import type { Outlet } from '../client/outlet.ts'
import type { Exchange, Fact, Facts } from './exchange.ts'
import type { Route } from './route.ts'
import type { Tally } from './tally.ts'

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

/** The facts with all their members. */
export interface BuiltInFacts extends Facts {
  body: Body
  route: Route
  extras: Extras
  tally: Tally
}

/** One request and its reply, with the members of which plugins are not told. */
export interface BuiltInExchange extends Omit<Exchange, Fact | 'format' | 'read'>, Readonly<Partial<BuiltInFacts>> {
  readonly format: Format
  /** Bytes of reasoning that arrived encrypted, or as signatures. */
  readonly encryptedBytes: number
  /**
   * Milliseconds in which the upstream has sent nothing that shows what its model does, since the last encrypted
   * reasoning.
   */
  readonly silentMs: number
  /** Whether no client waits and the reply is not read on, or the gateway has ended the exchange. */
  readonly over: boolean
  /** Where the reply goes. */
  readonly outlet: Outlet
  /** Whether the store has shown, during this request, that the record of its key is the latest one. */
  keyIsCurrent: boolean
  /** Notes whose request it is. */
  identify(key: Key): void
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
  /** Gives back some of the memory. */
  release(bytes: number): void
  /** Stops reading a reply whose clients have left. Does nothing while a client listens. */
  giveUp(): void
}

/** An exchange on which these facts are known. */
export type BuiltInWith<F extends Fact> = BuiltInExchange & { readonly [K in F]: BuiltInFacts[K] }

export type { Failure, Format, ReplyEvent, Rewriter, Route }
