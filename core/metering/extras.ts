/** What a request may cost besides the plain tokens of its model. */
import type { ModelEntry } from '../config/config.ts'
import type { Extras } from '../exchange/built-in.ts'
import type { ProviderTool } from '../formats/provider-tools.ts'
import type { CallName, Calls } from '../money/price.ts'

/** Only tokens. */
export const NO_EXTRAS: Extras = {
  conditions: undefined,
  held: undefined,
  tools: [],
  rereads: false,
  leastCalls: undefined,
  models: new Map(),
  advisors: [],
  media: [],
  predicted: 0,
}

/** Returns the extras of a translated request: only a service tier can reach an upstream of another format. */
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

/** Maximum calls of one tool to hold for, to allow, and to believe. */
export const CALLS_MAX = 1000
/** Maximum believed calls of a kind that the request did not enable. */
const UNASKED_CALLS = 10

/** Returns one call of each kind of tool. */
export function oneOfEach({ tools, leastCalls }: Pick<Extras, 'tools' | 'leastCalls'>): Calls {
  const kinds = tools.flatMap(({ kind }) => (kind === 'advisor' ? [] : [[kind, 1] as const]))
  return { ...leastCalls, ...Object.fromEntries(kinds) }
}

/** Returns the calls to hold for, by kind. @param times calls of each tool */
export function callsHeld(
  { tools, leastCalls }: Pick<Extras, 'tools' | 'leastCalls'>,
  times: (tool: ProviderTool) => number,
): Calls {
  const calls: Partial<Record<CallName, number>> = {}
  for (const tool of tools) if (tool.kind !== 'advisor') calls[tool.kind] = (calls[tool.kind] ?? 0) + times(tool)
  return { ...leastCalls, ...calls }
}

/** What to hold for besides the request's own tokens: tool calls, their results, and requests for advice. */
export interface HeldCalls {
  readonly calls: Calls | undefined
  readonly advice: readonly (readonly [ModelEntry, times: number])[]
  /** Tokens of the results of each call and each piece of advice, the largest first. */
  readonly results: readonly number[]
}

/** Returns the maximum believed number of calls of a kind. */
export function mostBelieved({ tools }: Extras, kind: CallName): number {
  const asked = tools.filter(tool => tool.kind === kind)
  if (asked.length === 0) return UNASKED_CALLS
  return asked.reduce((sum, { most }) => sum + Math.min(CALLS_MAX, (most ?? CALLS_MAX) * UNASKED_CALLS), 0)
}
