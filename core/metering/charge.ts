/** What an exchange costs: the usage its upstream reported, or a marked estimate where it reported none that is possible. */
import type { Outcome } from '../exchange/exchange.ts'
import type { CountedUsage } from '../formats/index.ts'
import {
  asInput,
  type Billable,
  bounded,
  cutUsage,
  estimateInput,
  growsByClock,
  observed,
  outputLimit,
  plausible,
  type Terms,
} from './estimate.ts'
import { callsHeld, type HeldCalls } from './extras.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import { NO_USAGE, plus, type Usage } from '../money/usage.ts'
import { chargeAll, tokensFor, type BilledUsage } from '../money/price.ts'
import {
  adviceSoFar,
  asCut,
  billed,
  dearestCharge,
  dearestOutput,
  images,
  outputRate,
  plausibleCalls,
  unpriced,
} from './pricing.ts'

/** What an exchange that has ended costs, and how that is known. */
export interface Bill {
  /** Nano-credits. */
  readonly charge: bigint
  /** False when the exchange costs nothing because nothing was delivered. */
  readonly billed: boolean
  readonly usage: Usage
  readonly source: 'upstream' | 'estimated'
  /** The upstream reported a usage that cannot be. */
  readonly quarantined: boolean
  /** The usage in the parts that it was priced in; none where nothing is billed. */
  readonly parts: readonly BilledUsage[]
  /** What of the usage has no price. */
  readonly unpriced: readonly string[]
  /** It failed, with or without a part of a reply. */
  readonly failed: boolean
}

/**
 * What a hold must be to cover all of the input and so many output tokens, each at its dearest, in nano-credits.
 * @param held calls of tools that the provider runs, and advice
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

/** What is held for beside tokens: all that the request allows, and the least where a stream can be ended before the next call. */
export function heldCalls(
  { body }: Pick<Billable, 'body'>,
  { extras, toolCalls }: Terms,
): { most: HeldCalls; least: HeldCalls } {
  // A reply that comes whole cannot be ended.
  const whole = body.get('stream') !== true
  const held = (unsaid: number, most: number): HeldCalls => ({
    calls: extras.tools.length === 0 ? extras.leastCalls : callsHeld(extras, unsaid, most),
    advice: extras.advisors.map(advisor => [
      advisor.entry,
      whole ? (advisor.most === Infinity ? unsaid : advisor.most) : 1,
    ]),
  })
  const most = held(toolCalls, whole ? Infinity : toolCalls)
  return { most, least: whole ? most : held(1, 1) }
}

/** How many output tokens a hold covers beside the input. */
export function outputOf(x: Billable, hold: bigint, terms: Terms): number {
  return tokensFor(hold - holdFor(x, 0, terms, heldCalls(x, terms).least), outputRateOf(x, terms))
}

/** Nano-credits per million of its output tokens at their dearest. */
export function outputRateOf(x: Pick<Billable, 'model'>, terms: Terms): bigint {
  return outputRate(x.model.entry.price, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), terms)
}

/** What was delivered so far, with its input, as it is billed: what is charged when the gateway dies. Nothing for a reply that has not begun. */
export function delivered(x: Billable, terms: Terms): readonly BilledUsage[] {
  return x.delivered === 0 && !x.tally.usage() ? [] : billedSoFar(x, observed(x, terms), terms)
}

/** What the exchange may have cost the upstream by now and, on top of it, so many output tokens, in nano-credits. */
export function runningCharge(x: Billable, terms: Terms, ahead = 0): bigint {
  // Nothing is known to have cost anything yet; what is to come costs its input as well.
  if (ahead === 0 && x.delivered === 0 && !x.tally.usage() && !growsByClock(x, terms)) return 0n
  const usage = cutUsage(x, terms)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  return chargeAll(
    cutParts({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) }, x, terms),
  )
}

/** The bill of an exchange that has ended. @param capAtEstimate the part of a report that cannot be is charged as the estimate, not as what is possible */
export function billFor(x: Billable, outcome: Outcome, terms: Terms, capAtEstimate = false): Bill {
  const failed = outcome.kind === 'failed' || x.tally.failure !== undefined
  const reported = x.tally.usage()
  const nothing: Bill = {
    charge: 0n,
    billed: false,
    usage: NO_USAGE,
    source: 'upstream',
    quarantined: false,
    parts: [],
    unpriced: [],
    failed,
  }
  const by = outcome.kind === 'failed' || outcome.kind === 'broken' ? outcome.by : undefined
  // What a customer, or the end of his balance, cut short is owed as the upstream saw it.
  const owed = by === 'client' || by === 'budget' || by === 'disabled'
  const cut = failed || outcome.kind === 'broken'
  const believable = reported?.valid === true && plausible(reported, x, terms)
  // What was reported as final is the whole truth, whether or not the client waited for it, and whatever came of the reply.
  const final = reported?.complete === true && (x.tally.final || ((x.complete || !cut) && !x.tally.failure))
  if (outcome.kind === 'answered') return nothing
  // What the gateway itself fails at, and a reply that a stage replaces, is not the customer's to pay.
  const ownFailure = outcome.kind === 'failed' && !owed && !x.tally.failure
  // Calls that cannot be are cut to those that can, and say nothing of the tokens.
  const quarantined = !plausibleCalls(x.tally, terms)
  if (!ownFailure && believable && final)
    return { ...nothing, ...priced(reported.usage, x, terms, reported), source: 'upstream', quarantined }
  // A request that reached no upstream, and a reply that failed before it said anything, cost nothing.
  if (owed && outcome.attempts.length === 0) return nothing
  if (cut && !owed && x.delivered === 0) return nothing
  if (!cut && !reported && x.delivered === 0) return nothing
  const estimate = owed ? cutUsage(x, terms) : observed(x, terms)
  if (!reported || believable)
    return { ...nothing, ...(owed ? pricedCut(estimate, x, terms) : priced(estimate, x, terms)), source: 'estimated' }
  const least = priced(estimate, x, terms)
  const most = reported.valid ? priced(bounded(reported.usage, estimate, x, terms, capAtEstimate), x, terms) : least
  return { ...nothing, ...(most.charge > least.charge ? most : least), source: 'estimated', quarantined: true }
}

/** A usage as it is billed while nothing is final. */
export function billedSoFar(x: Billable, usage: Usage, terms: Terms): readonly BilledUsage[] {
  return billed(usage, x.model.entry, x.tally, terms, undefined)
}

/** Prices a usage. @param reported where it is the whole truth, with the passes and the counters that it told */
function priced(
  usage: Usage,
  x: Billable,
  terms: Terms,
  reported?: CountedUsage,
): Pick<Bill, 'billed' | 'usage' | 'charge' | 'parts' | 'unpriced'> {
  const parts = billed(usage, x.model.entry, x.tally, terms, reported?.passes)
  return { billed: true, usage, charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms, reported?.unknown) }
}

/** The parts of a reply that is cut short: its own usage, and the advice that it has asked for. */
function cutParts(usage: Usage, x: Billable, terms: Terms): readonly BilledUsage[] {
  const own = billed(usage, x.model.entry, x.tally, asCut(x, terms), undefined)
  const { advisors, tools } = terms.extras
  if (advisors.length + tools.length === 0) return own
  return [
    ...own,
    ...adviceSoFar(usage, x, terms),
    ...images(x.tally.calls(tools), x.model.entry.price, terms.imageTokens),
  ]
}

/** Prices a reply that was cut short. */
function pricedCut(usage: Usage, x: Billable, terms: Terms): ReturnType<typeof priced> {
  const parts = cutParts(usage, x, terms)
  return {
    billed: true,
    usage: parts.map(part => part.usage).reduce(plus),
    charge: chargeAll(parts),
    parts,
    unpriced: unpriced(parts, terms),
  }
}
