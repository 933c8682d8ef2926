/** What a request may cost beside the plain tokens of its model. */
import type { ModelEntry } from '../config/config.ts'
import type { Extras } from '../exchange/exchange.ts'
import { mostRuns } from '../formats/index.ts'
import type { CallName, Calls } from '../money/price.ts'

/** Nothing but tokens. */
export const NO_EXTRAS: Extras = {
  conditions: undefined,
  held: undefined,
  tools: [],
  leastCalls: undefined,
  models: new Map(),
  advisors: [],
  media: [],
  predicted: 0,
}

/** What is left of the extras of a request that is translated: only a service tier may reach an upstream of another format. */
export function translatedExtras(
  { conditions: { serviceTier: asked } = {}, held: { serviceTier } = {} }: Extras,
  asksForTier: boolean,
): Extras {
  return {
    ...NO_EXTRAS,
    ...(asksForTier && asked !== undefined && { conditions: { serviceTier: asked } }),
    ...(serviceTier !== undefined && { held: { serviceTier } }),
  }
}

/** The most calls of one tool that are held for, and that a report may tell of, where a request bounds them itself. */
const MOST_CALLS = 1000
/** Calls of a kind that was not asked for which a report may tell of. */
const UNASKED_CALLS = 10

/**
 * The calls that are held for.
 * @param unsaid for each tool of which the request does not say how often it may be run
 * @param most for each tool, whatever the request says
 */
export function callsHeld(
  { tools, leastCalls }: Pick<Extras, 'tools' | 'leastCalls'>,
  unsaid: number,
  most = Math.min(unsaid, MOST_CALLS),
): Calls {
  return { ...leastCalls, ...mostRuns(tools, unsaid, most) }
}

/** What is held for beside tokens: calls of tools, and how often each advisor may be asked. */
export interface HeldCalls {
  readonly calls: Calls | undefined
  readonly advice: readonly (readonly [ModelEntry, times: number])[]
}

/** The most calls of a kind that are believed. */
export function mostBelieved({ tools }: Extras, kind: CallName): number {
  const asked = tools.filter(tool => tool.kind === kind)
  if (asked.length === 0) return UNASKED_CALLS
  return asked.reduce((sum, { most }) => sum + Math.min(MOST_CALLS, (most ?? MOST_CALLS) * UNASKED_CALLS), 0)
}
