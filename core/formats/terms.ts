/** The terms that the readers of all formats share. */
import type { JsonView } from '../lib/json/view.ts'
import type { CallName, Conditions } from '../money/price.ts'
import type { Usage } from '../money/usage.ts'

/** A JSON object whose members have not been checked. */
export type Json = Readonly<Record<string, unknown>>

/** The names of the formats, as gateway.yaml spells them. */
export const FORMAT_NAMES = ['chat-completions', 'responses', 'messages'] as const
/** The name of a format. */
export type FormatName = (typeof FORMAT_NAMES)[number]

/** The usage object of a reply, in the vendor's spelling. Vendors report totals, and not increments. */
export type RawUsage = Readonly<Record<string, unknown>>

/** Why a reply has ended. `stop` is the regular end, `context` a full window. `failed`: the rest of the reply is missing. */
export const END_MEANINGS = ['stop', 'calls', 'length', 'context', 'filtered', 'paused', 'sequence', 'failed'] as const
/** One of them. */
export type EndMeaning = (typeof END_MEANINGS)[number]

/** What an operator says of words by which replies end, in lower case. */
export type EndWords = Readonly<Record<string, EndMeaning>>

/** What an event of a reply says. A JSON reply is a stream of one event. */
export interface Reading {
  readonly usage?: RawUsage
  /** The reply is complete with this event, successful or not. */
  readonly completes?: boolean
  /** No event follows. */
  readonly endsStream?: boolean
  /** No later event can change the usage of this event. */
  readonly usageIsFinal?: boolean
  /** The service tier that the reply reports outside its usage. */
  readonly serviceTier?: string
  /** Calls of provider tools that this event reports. */
  readonly calls?: readonly SeenCall[]
  /** Calls of provider tools that begin with this event, or whose results it carries. */
  readonly rounds?: readonly SeenRound[]
  /** Bytes of reasoning that the event carries encrypted, or as a signature. */
  readonly encryptedBytes?: number
  /** Bytes of the name of a call that begins with the event, if its text is elsewhere. */
  readonly nameBytes?: number
  /** The event reports a failure. */
  readonly failure?: Failure
  /** The words by which the reply, or its choices, have ended: what the first one means, and the first unknown one. */
  readonly ends?: readonly string[]
  readonly end?: EndMeaning
  readonly unknownEnd?: string
  /** Numbers of the parts of the reply that begin, or end, with this event. */
  readonly opens?: readonly number[]
  readonly closes?: readonly number[]
}

/** A call of a provider's tool, as an event reports it. */
export interface SeenCall {
  readonly kind: CallName | 'advisor'
  /** The same in every event about this call, so that it is billed once. */
  readonly id: string
  /** The call is the provider's only if the request lets the provider run such a tool. */
  readonly ifAsked?: boolean
}

/** A call of a provider's tool that a further pass of the model follows, whether the call itself is billed or not. */
export interface SeenRound {
  /** `reread`: a pass without a tool, after a search for tools or a compaction of the conversation. */
  readonly kind: CallName | 'advisor' | 'reread'
  /** The same in every event about this call. A later call may have it too. */
  readonly id: string
  /** Whether the event is the first about this call, and whether it is the last. */
  readonly begins?: boolean
  readonly ends?: boolean
  /** Bytes of its results; undefined if the event has none. */
  readonly resultBytes?: number
  /** It has begun, and only its end shows whether it is billed. */
  readonly isOpen?: boolean
  /** The call is the provider's only if the request lets the provider run such a tool. */
  readonly ifAsked?: boolean
}

/**
 * A failure as the upstream reports it. Its message may name the operator's account, so it must not reach a customer
 * unchecked.
 */
export interface Failure {
  readonly message: string
  readonly type?: string
  readonly code?: string
  /** A stable code in `details`, by which newer SDKs choose their exception. */
  readonly errorCode?: string
  readonly param?: string
  /** How long to wait, in milliseconds, as the body of a plan's limit says. */
  readonly waitMs?: number
}

/** Usage in normal form. */
export interface CountedUsage {
  readonly usage: Usage
  /** Both input and output were reported. A count that was not reported is 0. */
  readonly complete: boolean
  /**
   * The conditions that it was served under, as far as reported; standard conditions by the names that the upstream has
   * for them.
   */
  readonly conditions?: Conditions
  /** The passes of models that make up the usage, if the upstream reports them. Each is priced separately. */
  readonly passes?: readonly Pass[]
  /** Set if the usage object has neither all input nor all output, or only zeros. */
  readonly empty?: boolean
  /** All tokens by the upstream's own sum, if that is not the sum of the counters. */
  readonly total?: number
  /** Paths in the usage object that were not understood. */
  readonly unread?: readonly string[]
  /** Paths of counters that do not add up. */
  readonly odd?: readonly string[]
  /** Dollars that the request costs the operator, as a plain decimal, if the upstream reports them. */
  readonly cost?: string
}

/** One pass of a model. */
export interface Pass {
  /** The upstream's name of the model; undefined for the model of the request. */
  readonly model: string | undefined
  /**
   * It is not an answer of the request's model but advice, or an image. The limits of the request do not apply to it.
   */
  readonly separate?: boolean
  readonly usage: Usage
}

/** The top-level members of a request body, for readers that change nothing. */
export interface RequestMembers {
  /** Whether the request has the member. */
  has(name: string): boolean
  /** The member, parsed; undefined if the request has none. */
  get(name: string): unknown
  /** The member, not parsed; undefined if the request has none. */
  view(name: string): JsonView | undefined
}

/** Reads events: a format, or the part of one that reads. */
export interface EventReader {
  /** What a parsed event, or a whole parsed JSON reply, says. */
  read(json: unknown): Reading
  /** What the operator says of words by which replies end. */
  readonly ends?: EndWords | undefined
}
