/** The terms that the readers of all formats share. */
import type { JsonView } from '../lib/json/view.ts'
import type { CallName, Conditions } from '../money/price.ts'
import type { Usage } from '../money/usage.ts'

/** A JSON object whose members have not been checked. */
export type Json = Readonly<Record<string, unknown>>

/** The formats' names, as gateway.yaml spells them. */
export const FORMAT_NAMES = ['chat-completions', 'responses', 'messages'] as const
export type FormatName = (typeof FORMAT_NAMES)[number]

/** The usage object of a reply as the vendor spelt it, members of later events laid over those of earlier ones. */
export type RawUsage = Readonly<Record<string, unknown>>

/** What one event of a reply says; a JSON reply is a stream of one event. */
export interface Reading {
  readonly usage?: RawUsage
  /** The reply is complete with this event, well or badly. */
  readonly last?: boolean
  /** Nothing comes after this event. */
  readonly terminal?: boolean
  /** The usage of this event is that of the whole reply: no later event can change it. */
  readonly final?: boolean
  /** The service tier that the reply says it is served in, where that is not a part of its usage. */
  readonly serviceTier?: string
  /** Calls of tools that the provider runs, of which this event tells. */
  readonly calls?: readonly SeenCall[]
  /** Bytes of reasoning that the event carries encrypted, or as a signature that stands for it. */
  readonly encryptedBytes?: number
  /** The event reports a failure. */
  readonly failure?: Failure
  /** Numbers of the parts of the reply that begin or end with this event. */
  readonly opens?: readonly number[]
  readonly closes?: readonly number[]
}

/** A call of a tool that a provider runs, as one event of the reply shows it. */
export interface SeenCall {
  readonly kind: CallName | 'advisor'
  /** The same in every event that shows this call, so that it is billed once. */
  readonly id: string
  /** It is the provider's only where the request lets the provider run such a tool. */
  readonly ifAsked?: boolean
}

/** A failure as the upstream tells it; its words may name the operator's account and go to no customer unchecked. */
export interface Failure {
  readonly message: string
  readonly type?: string
  readonly code?: string
  /** A stable code inside `details`, by which newer SDKs choose their exception. */
  readonly errorCode?: string
  readonly param?: string
}

/** Raw usage in normal form. */
export interface CountedUsage {
  readonly usage: Usage
  /** Every count is a plain whole number; else all of them are worthless. */
  readonly valid: boolean
  /** Both the input and the output were told; of what was not, the count is 0. */
  readonly complete: boolean
  /** The conditions that it was served under, as far as they were told; standard ones by the names that the upstream has for them. */
  readonly conditions?: Conditions
  /** The passes of the model that make the usage up, where the upstream tells them apart; each is priced by itself. */
  readonly passes?: readonly Pass[]
  /** Counters above zero that are not known here, and so have no price. */
  readonly unknown?: readonly string[]
  /** Dollars that the upstream says the request costs the operator, as a plain decimal, where it does. */
  readonly cost?: string
}

/** One pass of a model. */
export interface Pass {
  /** The upstream's name of the model; undefined for the one that was asked for. */
  readonly model: string | undefined
  /** It is no answer of the model that was asked for: advice, or an image. The limits of the request do not bound it. */
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

/** What an event of a reply is read with: a format, or the part of one that reads. */
export interface EventReader {
  /** What a parsed event, or a whole parsed JSON reply, says. */
  read(json: unknown): Reading
}
