/** What a request may cost beside the plain tokens of its model. */
import type { ModelEntry } from '../config/config.ts'
import { mostRuns, type ProviderTool } from '../formats/index.ts'
import type { Calls, Conditions } from './price.ts'

/** The members of a request that are billed and were let through. */
export interface Extras {
  /** The dearest conditions that it may be served under; undefined where they are the standard ones. */
  readonly conditions: Conditions | undefined
  /** Tools that the provider may run. */
  readonly tools: readonly ProviderTool[]
  /** Calls that are billed for the mere asking. */
  readonly leastCalls: Calls | undefined
  /** Other models that may be asked, or serve it, by the name that goes upstream. */
  readonly models: ReadonlyMap<string, ModelEntry>
  /** Those of them that may be asked beside the request's own. */
  readonly advisors: readonly ModelEntry[]
  /** Media that the reply may hold. */
  readonly media: readonly ('audioOutput' | 'imageOutput')[]
  /** Tokens of a prediction, which may be billed as output on top of the reply's own. */
  readonly predicted: number
}

/** Nothing but tokens. */
export const NO_EXTRAS: Extras = { conditions: undefined, tools: [], leastCalls: undefined, models: new Map(), advisors: [], media: [], predicted: 0 }

/** What is left of the extras of a request that is translated: only a service tier may reach an upstream of another format. */
export function translatedExtras({ conditions: { serviceTier } = {} }: Extras, asksForTier: boolean): Extras {
  return asksForTier && serviceTier !== undefined ? { ...NO_EXTRAS, conditions: { serviceTier } } : NO_EXTRAS
}

/** The calls that are held for: as many as the request allows, or `most` where it does not say. */
export function callsHeld({ tools, leastCalls }: Extras, most: number): Calls {
  return { ...leastCalls, ...mostRuns(tools, most) }
}
