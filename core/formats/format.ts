/**
 * What a wire format is to the rest of the gateway. Only this folder knows how the vendors spell things; everybody else
 * asks the Format of the exchange, so no plugin and no part of the core asks which format it is in.
 */
import type { Body } from './body.ts'
import type { GatewayError } from '../errors.ts'
import type { Usage } from '../money/usage.ts'
import type { OutgoingEvent, ReplyEvent, Rewriter } from './events.ts'
import type { Codec } from './translate/neutral.ts'
import type { CountedUsage, FormatName, RawUsage, Reading } from './terms.ts'

/** What a format needs in order to end a running stream. */
export interface RunningStream {
  /** How many replies were asked for at once. */
  readonly choices: number
  readonly opening: ReplyEvent | undefined
  /** The bytes that went out last. */
  readonly recent: Buffer | undefined
  /** Parts of the reply that have begun, and those that have ended. */
  readonly opened: ReadonlySet<number>
  readonly closed: ReadonlySet<number>
}

/** A required member of the request body and its type; `any` accepts every JSON value, null included. */
export type MemberType = 'string' | 'array' | 'any'

export interface Format {
  readonly name: FormatName
  /** The endpoint's path, here and at every upstream. */
  readonly path: string
  /** The endpoint that counts the tokens of such a request without serving it, here and at upstreams that have it. */
  readonly counting?: string
  /** The members a body must have, `model` apart: a default may fill that. */
  readonly required: Readonly<Record<string, MemberType>>
  /** The member in which a request says what is to be answered. */
  readonly conversationMember: string
  /** Optional members that must be of a type where they are present. */
  readonly typed: Readonly<Record<string, 'boolean' | 'count' | 'choices'>>
  /** Whether a request header of this lower-case name passes to the upstream. */
  forwards(header: string): boolean
  /** How many replies the request asks for at once; a limit of output is for each of them. */
  choices(body: Pick<Body, 'get'>): number
  /** Whether a stream is complete of which so many parts have ended. */
  isComplete(closed: number, choices: number): boolean
  /** Output tokens the request asks for at most, in each choice; the largest where several members say; undefined when none does. */
  outputLimit(body: Pick<Body, 'get'>): number | undefined
  /** Makes the outgoing request ask for at most so many output tokens, in each choice, in every member that limits them. */
  limitOutput(body: Body, tokens: number): void
  /** The service tier that plain rates are for, as a request asks for it. */
  readonly standardTier: string
  /** A stream tells its input at its beginning, and shows what it reasons: little is unknown of one that is cut short. */
  readonly reportsInputFirst: boolean
  /** A stream tells of each call of a provider's tool when it begins. */
  readonly reportsCalls: boolean
  /** Asks the upstream to run the provider's tools no more than so many times, where the request does not say, as far as the format can say it. */
  limitCalls(body: Body, most: number): void
  /** A reply is stored where the request does not say. */
  readonly storesByDefault: boolean
  /** Whether the reply may leave something with its provider that later requests can refer to. */
  storesReply(body: Pick<Body, 'get'>): boolean
  /** Whether a stream may have sent its last content, by the text of the events that came last. */
  mayBeComplete(recent: string): boolean
  /** Request headers that go upstream where the client sent none of the name. */
  readonly defaultHeaders: Readonly<Record<string, string>>
  /**
   * Changes the outgoing body so that the upstream accepts it and reports usage; returns what hides the difference in
   * the reply from the client, if there is any.
   */
  prepare(body: Body, model: { readonly output: number }): Rewriter | undefined
  /** Byte strings one of which stands in every event that `read` can learn from. */
  readonly signals: readonly string[]
  /** Names of the members that carry output text: in a stream's events, and in a JSON reply. */
  readonly text: { readonly stream: readonly string[]; readonly reply: readonly string[] }
  /** What a parsed event, or a whole parsed JSON reply, says. */
  read(json: unknown): Reading
  /** The model's name as a parsed event, or JSON reply, tells it; undefined where it tells none. */
  modelOf(json: unknown): string | undefined
  /** The member beside the reply itself in which an event may carry the reply, and with it the model's name. */
  readonly replyMember?: string
  /** Raw usage, complete as far as it was reported, in normal form; undefined when it counts nothing. */
  decodeUsage(raw: RawUsage): CountedUsage | undefined
  /** Usage as this format spells it: what `count` reads. */
  encodeUsage(usage: Usage): RawUsage
  /** HTTP status of an error in this format. */
  status(error: GatewayError): number
  /** Body of an error reply. */
  error(error: GatewayError, requestId: string): unknown
  /** The parsed event, or JSON reply, that reports a failure, with the error in its place. */
  replaceError(json: unknown, error: GatewayError, requestId: string): unknown
  /** SSE text that ends a stream already begun, as this format reports a failure. */
  errorEvent(error: GatewayError, requestId: string, running: RunningStream): string
  /** What a client of this format is told when its input is too long, in the words that make agents shorten it. */
  overflow(tokens: number | undefined, most: number | undefined): string
  /** The way into the neutral form and out of it, for clients and upstreams of different formats. */
  readonly codec: Codec
  /** The events that end a running stream as one whose output limit is reached. */
  truncate(usage: Usage, running: RunningStream): readonly OutgoingEvent[]
}
