/**
 * Rounds: calls of tools that the provider runs, in the midst of a reply. The results of a call become input, and a
 * further pass of the model reads the whole input again.
 */
import type { TalliedRound } from '../formats/tally.ts'
import type { SeenRound } from '../formats/terms.ts'
import type { CallName } from '../money/price.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import type { Extras } from '../exchange/built-in.ts'
import type { Format } from '../formats/index.ts'
import type { Weight, Weights } from './input.ts'
import type { Pricing, ReportedSoFar } from './pricing.ts'

/** What the results of calls are estimated by. */
type ResultTerms = Pick<Weights, 'toolTokens' | 'openToolTokens' | 'mediaTokens'> & Pick<Pricing, 'extras'>

/** A reply, as far as it shows the calls of its tools. */
interface CallingReply {
  readonly format: Pick<Format, 'reportsCalls'>
  readonly delivered: number
  readonly tally: Pick<ReportedSoFar, 'passes' | 'rounds' | 'usage'>
}

/** Input tokens of a piece of advice that another model gives, and of what a search for tools finds. */
const SMALL_RESULT = 1000
/** Passes without a tool to hold for in a reply that cannot be ended at the next one. */
export const REREADS = 3

/** What the results of one call are estimated by: an option of the metering stage. docs/charging.md has the same table. */
export const RESULTS: Readonly<Record<CallName, 'toolTokens' | 'openToolTokens' | 'mediaTokens'>> = {
  webSearch: 'toolTokens',
  fileSearch: 'toolTokens',
  // Nothing limits these.
  webFetch: 'openToolTokens',
  codeExecution: 'openToolTokens',
  mcp: 'openToolTokens',
  otherTools: 'openToolTokens',
  // The model sees the image.
  imageGeneration: 'mediaTokens',
}

/** Whether further passes of the model may follow in the midst of a reply. */
export function hasRounds({ tools, advisors, rereads }: Extras): boolean {
  return tools.length + advisors.length > 0 || rereads
}

/** Returns the tokens of the results of one call. */
export function resultOf(kind: SeenRound['kind'], terms: ResultTerms): number {
  return kind === 'advisor' || kind === 'reread' ? SMALL_RESULT : terms[RESULTS[kind]]
}

/** Returns one call of the tool with the largest results; nothing if the provider runs no tool. */
export function largestRound(terms: ResultTerms): readonly number[] {
  const { tools, advisors, rereads } = terms.extras
  const sizes = tools.map(({ kind }) => resultOf(kind, terms))
  if (advisors.length > 0 || rereads) sizes.push(SMALL_RESULT)
  return sizes.length === 0 ? sizes : [Math.max(...sizes)]
}

/** Returns the tokens of the results of a number of rounds at most, the largest first. @param counts how many of each size */
export function largestFirst(
  counts: readonly { readonly tokens: number; readonly count: number }[],
  most: number,
): readonly number[] {
  const results: number[] = []
  for (const { tokens, count } of counts.toSorted((a, b) => b.tokens - a.tokens))
    for (let nth = 0; nth < count && results.length < most; nth++) results.push(tokens)
  return results
}

/**
 * Adds the input of rounds to a usage. New results may be written to a prompt cache. What was read before is read again
 * as plain input.
 * @param results tokens of the results that each further pass reads, in their order
 * @param most tokens that one pass can read
 */
export function withRounds(
  usage: Usage,
  results: readonly number[],
  { weight }: { readonly weight: Pick<Weight, 'caches'> },
  most: number,
): Usage {
  if (results.length === 0) return usage
  const base = inputTokens(usage)
  let found = 0
  let again = 0
  for (const tokens of results) {
    again += Math.min(most, base + found)
    found += tokens
  }
  const input = usage.input + again
  if (weight.caches === undefined) return { ...usage, input: input + found }
  return weight.caches === '1h'
    ? { ...usage, input, cacheWrite1h: usage.cacheWrite1h + found }
    : { ...usage, input, cacheWrite5m: usage.cacheWrite5m + found }
}

/**
 * Returns the passes that have followed or will follow the rounds that the reported input does not contain yet, by the
 * tokens of the results that each of them reads.
 * @param assumesOne whether a call counts although the reply has shown nothing
 */
export function roundsSoFar(
  { format, tally }: Pick<CallingReply, 'format' | 'tally'>,
  terms: ResultTerms,
  bytesPerToken: number,
  assumesOne: boolean,
): readonly number[] {
  if (!hasRounds(terms.extras)) return []
  const { tools } = terms.extras
  const seen = shownRounds(tally, terms)
  if (seen.length > 0) {
    const passes = new Map<number, number>()
    for (const round of seen)
      passes.set(round.pass, (passes.get(round.pass) ?? 0) + resultTokens(round, terms, bytesPerToken))
    return [...passes.values()]
  }
  if (format.reportsCalls) {
    // When the input has been reported, a further pass without a tool would have been shown.
    const extras = tally.usage() ? { ...terms.extras, rereads: false } : terms.extras
    return assumesOne ? largestRound({ ...terms, extras }) : []
  }
  return [...new Set(tools.map(({ kind }) => kind))].map(kind => resultOf(kind, terms))
}

/** Returns the rounds that a reply has shown, of tools that the request lets the provider run. */
export function shownRounds(
  { rounds }: Pick<ReportedSoFar, 'rounds'>,
  { extras }: Pick<Pricing, 'extras'>,
): readonly TalliedRound[] {
  return rounds.filter(({ kind, ifAsked }) => !ifAsked || extras.tools.some(tool => tool.kind === kind))
}

/** Returns the tokens of the results of a call, by their bytes if they have arrived. */
export function resultTokens({ kind, resultBytes }: SeenRound, terms: ResultTerms, bytesPerToken: number): number {
  return resultBytes === undefined ? resultOf(kind, terms) : Math.ceil(resultBytes / bytesPerToken)
}
