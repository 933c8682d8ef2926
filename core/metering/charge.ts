/** What an exchange may cost: what is held for it, and what a running reply has cost so far. */
import type { ModelEntry } from '../config/config.ts'
import type { Format } from '../formats/index.ts'
import { type ProviderTool, takesLimit } from '../formats/provider-tools.ts'
import type { CountedUsage, Pass } from '../formats/terms.ts'
import { type BilledUsage, type CallName, chargeAll, tokensFor } from '../money/price.ts'
import { inputTokens, type Usage } from '../money/usage.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import {
  asInput,
  type Billable,
  cancelUsage,
  estimateInput,
  growsByClock,
  inputOfPass,
  observed,
  outputLimit,
  plausibleReport,
  type Terms,
  windowOf,
} from './estimate.ts'
import { CALLS_MAX, callsHeld, type HeldCalls, mostBelieved, oneOfEach } from './extras.ts'
import {
  adviceAsked,
  adviceOf,
  asCancelled,
  billed,
  dearestCharge,
  dearestOutput,
  hasShownNothing,
  images,
  outputRate,
} from './pricing.ts'
import { hasRounds, largestFirst, largestRound, REREADS, resultOf, withRounds } from './tool-rounds.ts'

/**
 * Returns the hold that covers all of the input and a number of output tokens, each at its dearest, in nano-credits.
 * @param held tool calls at the provider with their results, and advice
 */
export function holdFor(x: Pick<Billable, 'model'>, output: number, terms: Terms, held: HeldCalls): bigint {
  const { price } = x.model.entry
  const input = asInput(terms, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), price)
  const pass = { ...input, ...dearestOutput(output + terms.extras.predicted, price, terms.extras) }
  const usage = withRounds(pass, held.results, terms, windowOf(x.model))
  return dearestCharge({ usage, pass, price }, terms, held, terms.imageTokens)
}

/** Returns the tokens that such a hold is for. */
export function tokensHeld(x: Pick<Billable, 'model'>, output: number, terms: Terms, held: HeldCalls): number {
  const input = asInput(terms, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), x.model.entry.price)
  const usage = withRounds(input, held.results, terms, windowOf(x.model))
  return inputTokens(usage) + output + terms.extras.predicted
}

/**
 * Returns what to hold for besides the request's own tokens. A stream that reports its calls holds for one, since it can
 * be ended at the next one. Other replies hold for every call that the request allows.
 * @param most calls of each tool whose calls the request can limit
 */
export function heldCalls(x: Pick<Billable, 'body' | 'format'>, terms: Terms, most = CALLS_MAX): HeldCalls {
  const { extras, toolCalls } = terms
  const { tools, advisors, rereads } = extras
  if (!hasRounds(extras)) return { calls: extras.leastCalls, advice: [], results: [] }
  const endsAtCalls = x.body.get('stream') === true && x.format.reportsCalls
  const times = (tool: ProviderTool): number =>
    Math.min(tool.most ?? toolCalls, isLimited(tool, x.format) ? most : CALLS_MAX)
  const advice = advisors.map(({ entry, most: said }): [ModelEntry, number] => [
    entry,
    endsAtCalls ? 1 : Math.min(said === Infinity ? toolCalls : said, most),
  ])
  if (endsAtCalls) return { calls: oneOfEach(extras), advice, results: largestRound(terms) }
  const counts = [
    ...tools.map(tool => ({ tokens: resultOf(tool.kind, terms), count: times(tool) })),
    ...advice.map(([, count]) => ({ tokens: resultOf('advisor', terms), count })),
  ]
  const rounds = counts.map(({ count }) => count)
  // One limit may be for all tools together.
  const all =
    x.format.callLimit === 'all tools' ? Math.max(0, ...rounds) : rounds.reduce((sum, count) => sum + count, 0)
  const again = rereads ? Array.from({ length: REREADS }, () => resultOf('reread', terms)) : []
  const results = [...largestFirst(counts, Math.min(all, CALLS_MAX)), ...again]
  return { calls: callsHeld(extras, times), advice, results }
}

/** Whether a request can limit how often a tool is run. */
function isLimited({ type, index }: ProviderTool, { callLimit }: Format): boolean {
  return callLimit === 'all tools' || (callLimit === 'each tool' && index !== undefined && takesLimit({ type }))
}

/** Returns the most calls of each tool that an amount covers besides a number of output tokens; at least 1. */
export function callsFor(x: Billable, amount: bigint, output: number, terms: Terms): number {
  let [low, high] = [1, CALLS_MAX]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (holdFor(x, output, terms, heldCalls(x, terms, middle)) <= amount) low = middle
    else high = middle - 1
  }
  return low
}

/** Returns how many output tokens a hold covers besides the input and the calls. */
export function outputOf(x: Billable, hold: bigint, terms: Terms, held: HeldCalls): number {
  const input = asInput(terms, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), x.model.entry.price)
  const read = inputTokens(withRounds(input, held.results, terms, windowOf(x.model)))
  return tokensFor(hold - holdFor(x, 0, terms, held), outputRate(x.model.entry.price, read, terms))
}

/**
 * Returns the dearest rate of the request's output, in nano-credits per million tokens. Tools may add any amount of input.
 */
export function outputRateOf(x: Pick<Billable, 'model'>, terms: Terms): bigint {
  const input = terms.weight.providerTools ? Infinity : estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  return outputRate(x.model.entry.price, input, terms)
}

/**
 * Returns what was delivered so far, with its input, as billed if the gateway dies now. Empty if the reply has not begun.
 * @param isStreaming whether a stream has begun, even if it has delivered nothing
 */
export function delivered(x: Billable, terms: Terms, isStreaming: boolean): readonly BilledUsage[] {
  const hasBegun = isStreaming || x.delivered > 0 || x.tally.usage() !== undefined
  return hasBegun ? billedSoFar(x, observed(x, terms), terms) : []
}

/**
 * Returns what the exchange may have cost the upstream so far, plus a number of further output tokens, in nano-credits.
 * @param isCallAhead whether to add a further call of a tool and the pass that reads its results
 */
export function runningCharge(x: Billable, terms: Terms, ahead = 0, isCallAhead = false): bigint {
  // Nothing is known to have cost anything yet. Further output would cost its input as well.
  if (ahead === 0 && !isCallAhead && hasShownNothing(x) && !x.tally.usage() && !growsByClock(x, terms)) return 0n
  // Until something has arrived, a call counts already.
  const further = isCallAhead && x.format.reportsCalls && !hasShownNothing(x) ? largestRound(terms) : []
  const usage = cancelUsage(x, terms, further)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  const parts = cancelParts(
    { ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) },
    x,
    terms,
  )
  if (further.length === 0) return chargeAll(parts)
  const { price } = x.model.entry
  const kinds = terms.extras.tools.map(({ kind }) => kind as CallName)
  const fees = kinds.map(kind => price.calls[kind] ?? 0n)
  const image = kinds.includes('imageGeneration') ? images({ imageGeneration: 1 }, price, terms.imageTokens) : []
  return (
    chargeAll([...parts, ...adviceOf(inputOfPass(x, terms), 1, terms), ...image]) +
    fees.reduce((most, fee) => (fee > most ? fee : most), 0n)
  )
}

/** Returns the tokens that the exchange may have used so far, plus a number of further output tokens. */
export function runningTokens(x: Billable, terms: Terms, ahead: number): number {
  const usage = cancelUsage(x, terms)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  return inputTokens(usage) + Math.max(usage.output, Math.min(usage.output + ahead, most))
}

/** Returns what a reply has reported as used, as far as it is plausible, whatever became of the reply. */
export function reportedParts(x: Billable, terms: Terms): readonly BilledUsage[] {
  const reported = plausibleReport(x, terms)
  return reported ? billed(reported, x.model.entry, x.tally, terms) : []
}

/** Returns a usage as billed while no final report exists. */
export function billedSoFar(x: Billable, usage: Usage, terms: Terms): readonly BilledUsage[] {
  return billed({ usage }, x.model.entry, x.tally, terms)
}

/** Whether a pass is that of images, and not of advice. */
function isImages({ separate, model }: Pass): boolean {
  return separate === true && model === undefined
}

/** Returns the parts of a cancelled reply: its own usage, the advice and the images that it requested. */
export function cancelParts(usage: Usage, x: Billable, terms: Terms): readonly BilledUsage[] {
  const own = billed({ usage }, x.model.entry, x.tally, asCancelled(x, terms))
  const { advisors, tools } = terms.extras
  if (advisors.length + tools.length === 0) return own
  return [
    ...own,
    ...adviceOf(inputOfPass(x, terms), adviceAsked(x), terms),
    ...imagesApart(x, terms, plausibleReport(x, terms)),
  ]
}

/** Returns the images that a reply's tools created, unless its report counts them. */
export function imagesApart(x: Billable, terms: Terms, reported: CountedUsage | undefined): readonly BilledUsage[] {
  const isCounted = reported?.passes?.some(isImages) === true || (reported?.usage.imageOutput ?? 0) > 0
  if (isCounted || terms.extras.tools.length === 0) return []
  const { imageGeneration = 0 } = x.tally.calls(terms.extras.tools) ?? {}
  const made = Math.min(imageGeneration, mostBelieved(terms.extras, 'imageGeneration'))
  return images({ imageGeneration: made }, x.model.entry.price, terms.imageTokens)
}
