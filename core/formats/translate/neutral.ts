/**
 * The neutral model between the formats: requests, replies and events of replies without the spelling of any vendor.
 * Each format decodes into it and encodes from it. Requests and replies in the upstream's own format never pass through
 * it.
 */
import type { GatewayError } from '../../errors.ts'
import type { DroppedFields } from './dropped-fields.ts'
import type { OutgoingEvent, ReplyEvent } from '../events.ts'
import type { FormatName, RawUsage, Json, Reading } from '../terms.ts'

/** Where an image or a file is. Files stored at a provider cannot be translated. */
export type Source =
  | { readonly from: 'url'; readonly url: string }
  /** `data` is base64. */
  | { readonly from: 'data'; readonly mediaType: string; readonly data: string }

/** How long the provider keeps the prompt up to a mark. */
export type CacheMark = '5m' | '1h'

/** A part of a message. */
export type Part = (
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'refusal'; readonly text: string }
  | { readonly kind: 'image'; readonly source: Source; readonly detail?: string }
  | { readonly kind: 'file'; readonly source: Source; readonly name?: string }
  /** `data` is base64, `encoding` a name such as `wav`. */
  | { readonly kind: 'audio'; readonly data: string; readonly encoding: string }
) & { readonly cache?: CacheMark }

/**
 * What proves to a provider that a reasoning is its own: a signature, or the encrypted reasoning. Only the format `by`
 * can read `data`. Clients of other formats get it as an opaque string and send it back.
 */
export interface ReasoningSignature {
  readonly by: FormatName
  readonly data: Json
}

/** Who says something. */
export type Role = 'system' | 'developer' | 'user' | 'assistant'

/** The reasoning of a model. Hidden reasoning has no text. */
export interface Reasoning {
  readonly kind: 'reasoning'
  readonly text: string
  readonly signature?: ReasoningSignature
}

/** A call of a tool. `input` is JSON text: `{"input": "…"}` for a freeform tool. */
export interface Call {
  readonly cache?: CacheMark
  readonly kind: 'call'
  readonly id: string
  readonly name: string
  readonly input: string
}

/** A step of a conversation. */
export type Item =
  | { readonly kind: 'message'; readonly role: Role; readonly parts: readonly Part[] }
  | Reasoning
  | Call
  | { readonly kind: 'result'; readonly id: string; readonly parts: readonly Part[]; readonly failed: boolean }

/** A step of a conversation that has parts. */
export type Spoken = Extract<Item, { readonly parts: readonly Part[] }>

/** A tool that the client runs. */
export interface Tool {
  /** The name that calls use. For a tool in a namespace: `space__name`. */
  readonly name: string
  readonly description?: string
  /** JSON Schema of the input; undefined if the tool takes none. */
  readonly schema?: Json
  readonly strict?: boolean
  /** The path of its schema in the request. */
  readonly at: string
  /** The input is text, and not JSON. */
  readonly freeform: boolean
  /** What that text must be like: a language, and its definition. */
  readonly grammar?: { readonly syntax: string; readonly definition: string }
  /** The namespace of the tool, and its name there. */
  readonly home?: { readonly space: string; readonly name: string }
  readonly cache?: CacheMark
}

/** Which tool the model must call, if any. */
export type ToolChoice = { readonly kind: 'auto' | 'any' | 'none' } | { readonly kind: 'tool'; readonly name: string }

/** How much the model reasons. `on` without an effort leaves it to the model. */
export interface Thinking {
  readonly on: boolean
  readonly effort?: string
  /** Most tokens. */
  readonly budget?: number
  /** Whether the client wants to see the reasoning. */
  readonly shown: boolean
}

/** The format of the answer: any JSON, or JSON that a schema describes. */
export type AnswerFormat =
  | { readonly kind: 'json' }
  | {
      readonly kind: 'schema'
      readonly name: string
      readonly schema: unknown
      /** The path of the schema in the request. */
      readonly at: string
      readonly strict?: boolean
      readonly description?: string
    }

/** A request. */
export interface Request {
  readonly model: string
  readonly stream: boolean
  /** Whether a stream ends with its usage, in formats where the client has to ask for it. */
  readonly usageAsked: boolean
  readonly items: readonly Item[]
  /** Whether all items but the last one are older than the last turn. */
  readonly isPast?: boolean
  readonly tools: readonly Tool[]
  readonly toolChoice?: ToolChoice
  readonly parallelTools?: boolean
  readonly maxOutput?: number
  /** The member that limits the output, in the client's spelling. */
  readonly maxOutputMember?: string
  readonly stops: readonly string[]
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly thinking?: Thinking
  readonly answerFormat?: AnswerFormat
  readonly verbosity?: string
  /** The customer's name for its user. */
  readonly user?: string
  /** The name of the conversation, for the provider's prompt cache. */
  readonly cacheKey?: string
  /** The provider is to mark the prompt for its cache itself. */
  readonly cache?: CacheMark
  readonly serviceTier?: string
  readonly metadata?: Json
}

/** Why a reply ended. `sequence` names the stop sequence that the model produced. */
export type Stop =
  | { readonly reason: 'stop' | 'length' | 'calls' | 'filtered' | 'paused' | 'context' }
  | { readonly reason: 'sequence'; readonly sequence: string | null }

/** A part of a reply, in order. */
export type ReplyPart = { readonly kind: 'text' | 'refusal'; readonly text: string } | Reasoning | Call

/** A reply. */
export interface Reply {
  readonly id: string
  readonly parts: readonly ReplyPart[]
  readonly stop: Stop
}

/** What begins with a part: for a call, everything but its input. */
export type Opening =
  | { readonly kind: 'text' | 'refusal' | 'reasoning' }
  | { readonly kind: 'call'; readonly id: string; readonly name: string }

/** An event of a reply. The decoder numbers the parts. They may overlap; `PartOrder` puts them one after the other. */
export type NeutralEvent =
  | { readonly kind: 'start'; readonly id: string }
  | { readonly kind: 'open'; readonly part: number; readonly what: Opening }
  | { readonly kind: 'delta'; readonly part: number; readonly text: string }
  | { readonly kind: 'close'; readonly part: number; readonly signature?: ReasoningSignature }
  | { readonly kind: 'stop'; readonly stop: Stop }
  /** The upstream has sent everything, usage included. */
  | { readonly kind: 'end' }

/** Decodes one stream. */
export interface Decoder {
  read(event: ReplyEvent): readonly NeutralEvent[]
}

/** Encodes one stream. It keeps track of what is open and what comes next. */
export interface Encoder {
  /** Writes any event but `end`. Parts come one after the other. */
  write(event: Exclude<NeutralEvent, { kind: 'end' }>): readonly OutgoingEvent[]
  /** Whether `end` has ended the reply with an error of the gateway. */
  readonly failed?: boolean
  /** Ends a reply after its stop was written. */
  end(usage: RawUsage): readonly OutgoingEvent[]
  /** Ends a reply with an error. */
  fail(error: GatewayError, requestId: string): readonly OutgoingEvent[]
}

/** What an encoder of replies needs to know about the request. */
export interface ReplyContext {
  /** The name of the model that the client used. */
  readonly model: string
  /** Seconds since the epoch. */
  readonly at: number
  /** Whether a stream ends with its usage. */
  readonly usageAsked: boolean
  /** The tools of the request, by name. */
  readonly tools: ReadonlyMap<string, Pick<Tool, 'name' | 'freeform' | 'home'>>
  /** A member of the request, in the client's spelling. */
  readonly member: (name: string) => unknown
}

/** Where a request is marked for the prompt cache: where the client says, also in conversations with a name, or always. */
export type CacheMarks = 'client' | 'conversations' | 'always'

/** What a model accepts, and what the gateway chooses for it if a request leaves it open. */
export interface ModelTraits {
  /** Output tokens to ask for if the format requires a number. */
  readonly output: number
  /** How the request asks a messages model to reason. */
  readonly thinking: 'adaptive' | 'budget'
  /** Whether its reasoning can be turned off; true by default. */
  readonly thinkingOff?: boolean
  /** Whether it takes tools whose input is text. By default, they become tools with one member. */
  readonly textTools?: boolean
  /** Whether it accepts a temperature, `top_p` and `top_k`; true by default. */
  readonly sampling?: boolean
  /** Conversations by default. */
  readonly cacheMarks?: CacheMarks
  /** `none` for a model that does not reason, which refuses to be asked for it. */
  readonly reasoning?: 'hidden' | 'shown' | 'none' | undefined
}

/** Translates a format to and from the neutral model. */
export interface Codec {
  /**
   * The members of a request that are translated, and those that are refused, with the reason. All others are dropped.
   */
  readonly translates: readonly string[]
  readonly refuses: Readonly<Record<string, string>>
  /** @throws GatewayError invalid_body, naming what no other format can carry */
  decodeRequest(body: Json, headers: Readonly<Record<string, unknown>>, dropped: DroppedFields): Request
  /** @throws GatewayError invalid_body, naming what this format cannot carry */
  encodeRequest(request: Request, dropped: DroppedFields, traits: ModelTraits): Json
  /** Whether `encodeRequest` may mark the prompt for a cache that costs something to fill. Without it, never. */
  marksPrompt?(request: Request, traits: ModelTraits): boolean
  /** @param reading what the reply says, with its end */
  decodeReply(json: Json, reading: Reading): Reply
  /** Members of a request that its replies repeat. */
  readonly repeats: readonly string[]
  encodeReply(reply: Reply, usage: RawUsage, context: ReplyContext): Json
  decoder(): Decoder
  encoder(context: ReplyContext): Encoder
}

/** The text of parts, joined. Media have none. */
export function joinedText(parts: readonly Part[]): string {
  return parts.map(part => ('text' in part ? part.text : '')).join('')
}
