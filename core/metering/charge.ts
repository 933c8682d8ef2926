/** What an exchange may cost: what is held for it, and what a running reply has cost so far. */
import {
  asInput,
  type Billable,
  cancelUsage,
  estimateInput,
  growsByClock,
  observed,
  outputLimit,
  plausible,
  reportOf,
  type Terms,
} from './estimate.ts'
import type { CountedUsage, Pass } from '../formats/terms.ts'
import { callsHeld, type HeldCalls, mostBelieved } from './extras.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import type { Usage } from '../money/usage.ts'
import { chargeAll, tokensFor, type BilledUsage } from '../money/price.ts'
import { adviceSoFar, asCancelled, billed, dearestCharge, dearestOutput, images, outputRate } from './pricing.ts'

/**
 * Returns the hold that covers all of the input and a number of output tokens, each at its dearest, in nano-credits.
 * @param held tool calls at the provider, and advice
 */
export function holdFor(x: Pick<Billable, 'model'>, output: number, terms: Terms, held: HeldCalls): bigint {
  const { price } = x.model.entry
  const input = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  const usage = {
    ...asInput(terms, input, price),
    ...dearestOutput(output + terms.extras.predicted, price, terms.extras),
  }
  return dearestCharge(usage, price, terms, held, terms.imageTokens)
}

/**
 * Returns the calls to hold for besides tokens: everything that the request allows, or the minimum if a stream can be
 * ended before the next call.
 */
export function heldCalls(
  { body }: Pick<Billable, 'body'>,
  { extras, toolCalls }: Terms,
): { most: HeldCalls; least: HeldCalls } {
  // A reply in one piece cannot be ended early.
  const whole = body.get('stream') !== true
  const held = (unsaid: number, most: number): HeldCalls => {
    const advice = (limit: number): number => (limit === Infinity ? unsaid : limit)
    return {
      calls: extras.tools.length === 0 ? extras.leastCalls : callsHeld(extras, unsaid, most),
      advice: extras.advisors.map(advisor => [advisor.entry, whole ? advice(advisor.most) : 1]),
    }
  }
  const most = held(toolCalls, whole ? Infinity : toolCalls)
  return { most, least: whole ? most : held(1, 1) }
}

/** Returns how many output tokens a hold covers besides the input. */
export function outputOf(x: Billable, hold: bigint, terms: Terms): number {
  return tokensFor(hold - holdFor(x, 0, terms, heldCalls(x, terms).least), outputRateOf(x, terms))
}

/** Returns the dearest rate of the request's output, in nano-credits per million tokens. */
export function outputRateOf(x: Pick<Billable, 'model'>, terms: Terms): bigint {
  return outputRate(x.model.entry.price, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), terms)
}

/**
 * Returns what was delivered so far, with its input, as billed if the gateway dies now. Empty if the reply has not
 * begun.
 */
export function delivered(x: Billable, terms: Terms): readonly BilledUsage[] {
  return x.delivered === 0 && !x.tally.usage() ? [] : billedSoFar(x, observed(x, terms), terms)
}

/**
 * Returns what the exchange may have cost the upstream so far, plus a number of further output tokens, in nano-credits.
 */
export function runningCharge(x: Billable, terms: Terms, ahead = 0): bigint {
  // Nothing is known to have cost anything yet. Further output would cost its input as well.
  if (ahead === 0 && x.delivered === 0 && !x.tally.usage() && !growsByClock(x, terms)) return 0n
  const usage = cancelUsage(x, terms)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  return chargeAll(
    cancelParts({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) }, x, terms),
  )
}

/** Returns what a reply has reported as used, as far as it is plausible, whatever became of the reply. */
export function reportedParts(x: Billable, terms: Terms): readonly BilledUsage[] {
  const reported = plausibleReport(x, terms)
  return reported ? billed(reported.usage, x.model.entry, x.tally, terms, reported.passes) : []
}

function plausibleReport(x: Billable, terms: Terms): CountedUsage | undefined {
  const reported = reportOf(x, terms)
  return reported && plausible(reported, x, terms) ? reported : undefined
}

/** Returns a usage as billed while no final report exists. */
export function billedSoFar(x: Billable, usage: Usage, terms: Terms): readonly BilledUsage[] {
  return billed(usage, x.model.entry, x.tally, terms, undefined)
}

/** Whether a pass is that of images, and not of advice. */
function isImages({ separate, model }: Pass): boolean {
  return separate === true && model === undefined
}

/** Returns the parts of a cancelled reply: its own usage, the advice and the images that it requested. */
export function cancelParts(usage: Usage, x: Billable, terms: Terms): readonly BilledUsage[] {
  const own = billed(usage, x.model.entry, x.tally, asCancelled(x, terms), undefined)
  const { advisors, tools } = terms.extras
  if (advisors.length + tools.length === 0) return own
  return [...own, ...adviceSoFar(usage, x, terms), ...imagesApart(x, terms, plausibleReport(x, terms))]
}

/** Returns the images that a reply's tools created, unless its report counts them. */
export function imagesApart(x: Billable, terms: Terms, reported: CountedUsage | undefined): readonly BilledUsage[] {
  const isCounted = reported?.passes?.some(isImages) === true || (reported?.usage.imageOutput ?? 0) > 0
  if (isCounted || terms.extras.tools.length === 0) return []
  const { imageGeneration = 0 } = x.tally.calls(terms.extras.tools) ?? {}
  const made = Math.min(imageGeneration, mostBelieved(terms.extras, 'imageGeneration'))
  return images({ imageGeneration: made }, x.model.entry.price, terms.imageTokens)
}
