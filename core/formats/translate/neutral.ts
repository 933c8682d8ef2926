/**
 * The form between the formats: what is asked, what is replied, and the events of a reply, with nothing in it that only
 * one vendor spells so. Each format decodes into it and encodes from it. Traffic in the upstream's own format never
 * passes through here.
 */
import type { GatewayError } from '../../errors.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { OutgoingEvent, ReplyEvent } from '../events.ts'
import type { FormatName, RawUsage, Json } from '../terms.ts'

/** Whence an image or a file comes; files that lie with a provider are nobody else's. */
export type Source =
  | { readonly from: 'url'; readonly url: string }
  /** `data` is base64. */
  | { readonly from: 'data'; readonly mediaType: string; readonly data: string }

/** A piece of what somebody says. */
export type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'refusal'; readonly text: string }
  | { readonly kind: 'image'; readonly source: Source; readonly detail?: string }
  | { readonly kind: 'file'; readonly source: Source; readonly name?: string }
  /** `data` is base64, `encoding` a name such as `wav`. */
  | { readonly kind: 'audio'; readonly data: string; readonly encoding: string }

/**
 * What proves to the maker of a reasoning that it is his own: a signature, or the reasoning encrypted. Only the format
 * `by` understands `data`; to the others' clients it goes as an opaque string and comes back as it went.
 */
export interface ReasoningSignature {
  readonly by: FormatName
  readonly data: Json
}

export type Role = 'system' | 'developer' | 'user' | 'assistant'

/** What the model reasoned; a hidden one has no text. */
export interface Reasoning {
  readonly kind: 'reasoning'
  readonly text: string
  readonly signature?: ReasoningSignature
}

/** The model calls a tool; `input` is JSON text, for a freeform tool `{"input": "…"}`. */
export interface Call {
  readonly kind: 'call'
  readonly id: string
  readonly name: string
  readonly input: string
}

/** One step of a conversation. */
export type Item =
  | { readonly kind: 'message'; readonly role: Role; readonly parts: readonly Part[] }
  | Reasoning
  | Call
  | { readonly kind: 'result'; readonly id: string; readonly parts: readonly Part[]; readonly failed: boolean }

export interface Tool {
  /** The name that calls bear here; of a tool in a namespace `space__name`. */
  readonly name: string
  readonly description?: string
  /** JSON Schema of the input; undefined for a tool that takes none. */
  readonly schema?: Json
  readonly strict?: boolean
  /** Takes text rather than JSON. */
  readonly freeform: boolean
  /** The namespace it came in, and its name there. */
  readonly home?: { readonly space: string; readonly name: string }
}

export type ToolChoice = { readonly kind: 'auto' | 'any' | 'none' } | { readonly kind: 'tool'; readonly name: string }

/** How much the model is to reason. `on` without an effort leaves it to the model. */
export interface Thinking {
  readonly on: boolean
  readonly effort?: string
  /** The most tokens. */
  readonly budget?: number
  /** Whether the client wants to read it. */
  readonly shown: boolean
}

/** The form the answer must have: any JSON, or what a schema admits. */
export type AnswerFormat =
  | { readonly kind: 'json' }
  | {
      readonly kind: 'schema'
      readonly name: string
      readonly schema: unknown
      readonly strict?: boolean
      readonly description?: string
    }

export interface Request {
  readonly model: string
  readonly stream: boolean
  /** Whether a stream is to end with its usage, where that is not a matter of course. */
  readonly usageAsked: boolean
  readonly items: readonly Item[]
  readonly tools: readonly Tool[]
  readonly toolChoice?: ToolChoice
  readonly parallelTools?: boolean
  readonly maxOutput?: number
  readonly stops: readonly string[]
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly thinking?: Thinking
  readonly answerFormat?: AnswerFormat
  readonly verbosity?: string
  /** Who speaks, as the client names him to the provider. */
  readonly user?: string
  /** The conversation, for the provider's cache. */
  readonly cacheKey?: string
  readonly serviceTier?: string
  readonly metadata?: Json
}

/** Why a reply ended. `sequence` carries the stop sequence that was met. */
export type Stop =
  | { readonly reason: 'stop' | 'length' | 'calls' | 'filtered' | 'paused' | 'context' }
  | { readonly reason: 'sequence'; readonly sequence: string | null }

/** What a reply is made of, in order. */
export type ReplyPart = { readonly kind: 'text' | 'refusal'; readonly text: string } | Reasoning | Call

export interface Reply {
  readonly id: string
  readonly parts: readonly ReplyPart[]
  readonly stop: Stop
}

/** What kind of part begins; of a call all but its input. */
export type Opening =
  | { readonly kind: 'text' | 'refusal' | 'reasoning' }
  | { readonly kind: 'call'; readonly id: string; readonly name: string }

/** One event of a reply. Parts are numbered by the decoder and may overlap; `Sequence` puts them one after the other. */
export type NeutralEvent =
  | { readonly kind: 'start'; readonly id: string }
  | { readonly kind: 'open'; readonly part: number; readonly what: Opening }
  | { readonly kind: 'delta'; readonly part: number; readonly text: string }
  | { readonly kind: 'close'; readonly part: number; readonly signature?: ReasoningSignature }
  | { readonly kind: 'stop'; readonly stop: Stop }
  /** The upstream has said all, usage included. */
  | { readonly kind: 'end' }

/** Reads one upstream's stream. */
export interface Decoder {
  read(event: ReplyEvent): readonly NeutralEvent[]
}

/** Writes one client's stream: a state machine that knows what is open and what comes next. */
export interface Encoder {
  /** Everything but `end`, parts one after the other. */
  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[]
  /** Ends a reply whose stop was written. */
  end(usage: RawUsage): readonly OutgoingEvent[]
  /** Ends it as a failure. */
  fail(error: GatewayError, requestId: string): readonly OutgoingEvent[]
}

/** What an encoder of replies must know of the request and its client. */
export interface ReplyContext {
  /** The model's name as the client asked for it. */
  readonly model: string
  /** Seconds since the epoch. */
  readonly at: number
  /** Whether a stream is to end with its usage. */
  readonly usageAsked: boolean
  /** The request's tools by name. */
  readonly tools: ReadonlyMap<string, Pick<Tool, 'name' | 'freeform' | 'home'>>
  /** A member of the request as the client spelt it. */
  readonly member: (name: string) => unknown
}

/** What is the gateway's to choose for a model where a request leaves it open. */
export interface ModelLimits {
  /** Output tokens asked for where the format wants a number and the request has none. */
  readonly output: number
  /** How the model is told to reason. */
  readonly thinking: 'adaptive' | 'budget'
}

/** A format's way into the neutral form and out of it. */
export interface Codec {
  /** The request's members that are translated, and those that are refused, with the reason. All others are dropped and named. */
  readonly translates: readonly string[]
  readonly refuses: Readonly<Record<string, string>>
  /** @throws GatewayError invalid_body, naming what no other format can carry */
  decodeRequest(body: Json, headers: Readonly<Record<string, unknown>>, dropped: DroppedFields): Request
  /** @throws GatewayError invalid_body, naming what this format cannot carry */
  encodeRequest(request: Request, dropped: DroppedFields, limits: ModelLimits): Json
  decodeReply(json: Json): Reply
  /** Members of a request that its replies repeat. */
  readonly repeats: readonly string[]
  encodeReply(reply: Reply, usage: RawUsage, context: ReplyContext): Json
  decoder(): Decoder
  encoder(context: ReplyContext): Encoder
}

/** Text that a list of parts says, in one piece; media say none. */
export function textOf(parts: readonly Part[]): string {
  return parts.map(part => ('text' in part ? part.text : '')).join('')
}
