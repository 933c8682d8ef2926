/**
 * The contract of a wire format. Only `formats/` and the simulator contain the vendors' spellings. All other code asks
 * the format of the exchange, and never which format it is.
 */
import type { Body } from './body.ts'
import type { RateState } from './rate-headers.ts'
import type { GatewayError } from '../errors.ts'
import type { Usage } from '../money/usage.ts'
import type { OutgoingEvent, ReplyEvent, Rewriter } from './events.ts'
import type { ItemReferences } from './item-references.ts'
import type { Codec } from './translate/neutral.ts'
import type { CountedUsage, Failure, FormatName, RawUsage, Reading } from './terms.ts'
import type { SaidReading } from './usage-reading.ts'

/** What a format needs to know in order to end a running stream. */
export interface RunningStream {
  /** How many replies were asked for at once. */
  readonly choices: number
  readonly opening: ReplyEvent | undefined
  /** The bytes that were sent last. */
  readonly recent: Buffer | undefined
  /** Numbers of the parts of the reply that have begun, and of those that have ended. */
  readonly opened: ReadonlySet<number>
  readonly closed: ReadonlySet<number>
}

/** The type of a required member. `any` accepts every value, null included. */
export type MemberType = 'string' | 'array' | 'any'

/** Where output text stands in the events of a stream, and in a JSON reply. */
export interface OutputText {
  /** Names of the members with text, in the events that add to it. */
  readonly stream: readonly string[]
  /** What precedes the text of such a member if it only repeats another one. */
  readonly repeats?: string
  /** Events that repeat the whole text of a part when it ends: their types end with one of these, and these members have it. */
  readonly whole?: { readonly types: readonly string[]; readonly members: readonly string[] }
  /** Names of the members with text, in a JSON reply. */
  readonly reply: readonly string[]
}

/** How a format asks for compactions. */
export interface Compactions {
  /** The endpoint whose reply is a compacted conversation, here and at upstreams that make compactions. */
  readonly path: string
  /**
   * The format for a client that asks for a compaction, which the gateway makes by translating; undefined if the request
   * asks for none.
   */
  asked(path: string, body: Body): Format | undefined
  /**
   * Shortens a conversation that is too long for its model.
   * @param overflow the size of the prompt and the most that the model takes, as far as the provider says so
   * @returns what was left out; undefined if nothing more can be
   */
  shorten(body: Body, overflow: { readonly tokens?: number; readonly most?: number }): string | undefined
}

/** A wire format. To add one, implement this interface in a folder of its own and add it to `index.ts`. */
export interface Format {
  readonly name: FormatName
  /** The name of a variant of a format, for a client that asks for something else than a reply. */
  readonly variant?: string
  /** The path of its endpoint, here and at every upstream. */
  readonly path: string
  /** The endpoint that counts the tokens of a request, here and at upstreams that have it. */
  readonly counting?: string
  /** How conversations are made shorter, if the format has a way to ask for that. */
  readonly compaction?: Compactions
  /** The members that a body must have. `model` is not one, as a default may fill it in. */
  readonly required: Readonly<Record<string, MemberType>>
  /** The member that holds the conversation. */
  readonly conversationMember: string
  /** The type that each optional member must have. */
  readonly typed: Readonly<Record<string, 'boolean' | 'count' | 'count or 0' | 'choices'>>
  /** Whether a request header passes to the upstream. @param header lower-case name */
  forwards(header: string): boolean
  /** Returns what passes of a header that is forwarded; undefined for nothing. Without it, every value passes. */
  passedValue?(header: string, value: string): string | undefined
  /** The query parameters that pass to the upstream. */
  readonly query: readonly string[]
  /** The reply of `counting`. */
  counted?(tokens: number): unknown
  /** How many replies the request asks for at once. An output limit is for each of them. */
  choices(body: Pick<Body, 'get'>): number
  /** Whether a stream is complete. @param closed parts that have ended */
  isComplete(closed: number, choices: number): boolean
  /** The most output tokens for each reply: the largest limit of the request, undefined if it has none. */
  outputLimit(body: Pick<Body, 'get'>): number | undefined
  /** Sets every output limit of the outgoing request to a number of tokens. */
  limitOutput(body: Body, tokens: number): void
  /** The least output limit that its providers accept, in tokens. */
  readonly leastOutput: number
  /** The service tier that plain rates are for, as a request names it. */
  readonly standardTier: string
  /**
   * A stream reports its input at its beginning, and its models show their reasoning, in full or as a summary, where
   * gateway.yaml does not say otherwise. Little is unknown if it ends early.
   */
  readonly reportsInputFirst: boolean
  /** Texts in events that show reasoning, of which they may be only a summary. */
  readonly summaries: readonly string[]
  /** Whether each event of a stream has a name, which is its type. */
  readonly namesEvents: boolean
  /** The text that ends a complete stream whose upstream left it out, for clients that wait for it. */
  readonly ending: string
  /** Whether a parsed JSON reply with status 200 has what every reply has. */
  isReply(json: unknown): boolean
  /** Whether `Reading.usageIsFinal` can be relied on before the reply is complete. If not, content may follow that usage. */
  readonly marksFinalUsage: boolean
  /** A stream reports each call of a provider's tool when it begins. */
  readonly reportsCalls: boolean
  /** Whether a request can limit how often the provider runs its tools: each of them, or all together. */
  readonly callLimit: 'each tool' | 'all tools' | 'none'
  /**
   * Lowers how often the provider may run its tools, as far as the format allows.
   * @param unsaid the limit if the request has none
   */
  limitCalls(body: Body, most: number, unsaid: number): void
  /** The items of its replies that later requests may refer to, if the format has such references. */
  readonly items?: ItemReferences
  /** A reply is stored at the provider unless the request says otherwise. */
  readonly storesByDefault: boolean
  /** Whether the reply may leave something at its provider that later requests can refer to. */
  storesReply(body: Pick<Body, 'get'>): boolean
  /** The body of a small request with a short answer, which finds out whether an account works. */
  probe(model: string): Readonly<Record<string, unknown>>
  /** Whether a parsed event of a stream can only come before its content. */
  isOpening(json: unknown): boolean
  /** Whether a stream may have sent its last content. @param recent the text of the last events */
  mayBeComplete(recent: string): boolean
  /** Request headers that go upstream if the client did not send them. */
  readonly defaultHeaders: Readonly<Record<string, string>>
  /**
   * Changes the outgoing body so that the upstream accepts it and reports usage.
   * @returns what hides the effect in the reply from the client; undefined if there is none
   */
  prepare(body: Body, model: { readonly output: number }): Rewriter | undefined
  /** Every event that `read` can learn something from contains one of these texts, or matches one of these expressions. */
  readonly signals: readonly (string | RegExp)[]
  /** Where output text stands. */
  readonly text: OutputText
  /** What a parsed event, or a parsed JSON reply, says. */
  read(json: unknown): Reading
  /** The name of the model in a parsed event or JSON reply; undefined if there is none. */
  modelOf(json: unknown): string | undefined
  /** The member of an event that holds the reply, and with it the name of the model, if it is not the event itself. */
  readonly replyMember?: string
  /** The usage of a reply in normal form; undefined if it counts nothing. @param said what the operator says of its counters */
  decodeUsage(raw: RawUsage, said?: SaidReading): CountedUsage | undefined
  /** Usage as this format spells it: `decodeUsage` reads it. */
  encodeUsage(usage: Usage): RawUsage
  /** The headers that say what is left of a key's rates. @param now milliseconds since the epoch */
  rateHeaders(rates: readonly RateState[], now: number): Record<string, string>
  /** HTTP status of an error in this format. */
  status(error: GatewayError): number
  /** Body of an error reply. */
  error(error: GatewayError, requestId: string): unknown
  /** A parsed event, or JSON reply, that reports a failure, with another error in its place. */
  replaceError(json: unknown, error: GatewayError, requestId: string): unknown
  /** The text that ends a running stream with an error. */
  errorEvent(error: GatewayError, requestId: string, running: RunningStream): string
  /** A failure of an upstream of this format as the format's agents recognise it. Its own words and codes are kept. */
  recognisable(failure: Failure): Failure
  /** The message for a client whose input is too long, in the words that make agents shorten it. */
  overflow(tokens: number | undefined, most: number | undefined): string
  /** Translates to and from the neutral model, for clients and upstreams of different formats. */
  readonly codec: Codec
  /** The events that end a running stream as if its output limit was reached. */
  truncate(usage: Usage, running: RunningStream): readonly OutgoingEvent[]
}
