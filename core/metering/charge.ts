/**
 * The charge of an exchange: the usage that its upstream reported, or a marked estimate if it reported no plausible
 * one.
 */
import type { Attempt, Outcome } from '../exchange/exchange.ts'
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

/** The charge of a finished exchange and its derivation. */
export interface Bill {
  /** In nano-credits. */
  readonly charge: bigint
  /** False if the exchange costs nothing because nothing was delivered. */
  readonly billed: boolean
  readonly usage: Usage
  readonly source: 'upstream' | 'estimated'
  /** Whether the upstream reported an implausible usage. */
  readonly quarantined: boolean
  /** The usage in separately priced parts. Empty if nothing is billed. */
  readonly parts: readonly BilledUsage[]
  /** The used items that have no price. */
  readonly unpriced: readonly string[]
  /** Whether the exchange failed, with or without a partial reply. */
  readonly failed: boolean
}

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
  const usage = cutUsage(x, terms)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  return chargeAll(
    cutParts({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) }, x, terms),
  )
}

/**
 * Returns the bill of a finished exchange.
 * @param capAtEstimate whether the implausible part of a report is charged as estimated instead of at the plausible
 * maximum
 */
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
  // If the customer, or the end of the balance, ended the reply, the customer owes what the upstream delivered.
  const owed = by === 'client' || by === 'budget' || by === 'disabled'
  const cut = failed || outcome.kind === 'broken'
  const believable = reported?.valid === true && plausible(reported, x, terms)
  // A final report is the whole truth, even if the client did not wait for it and whatever happened to the reply.
  const final = reported?.complete === true && (x.tally.final || ((x.complete || !cut) && !x.tally.failure))
  if (outcome.kind === 'answered') return nothing
  // The customer does not pay for the gateway's own failures, or for a reply that a stage replaced.
  const ownFailure = outcome.kind === 'failed' && !owed && !x.tally.failure
  // Implausible calls are reduced to plausible ones. They do not cast doubt on the tokens.
  const quarantined = !plausibleCalls(x.tally, terms)
  if (!ownFailure && believable && final)
    return { ...nothing, ...priced(reported.usage, x, terms, reported), source: 'upstream', quarantined }
  // A request that no upstream was working on, and a reply that failed before any content, cost nothing.
  if (owed && !outcome.attempts.some(isOpen)) return nothing
  if (cut && !owed && x.delivered === 0) return nothing
  if (!cut && !reported && x.delivered === 0) return nothing
  const estimate = owed ? cutUsage(x, terms) : observed(x, terms)
  if (!reported || believable)
    return { ...nothing, ...(owed ? pricedCut(estimate, x, terms) : priced(estimate, x, terms)), source: 'estimated' }
  const least = priced(estimate, x, terms)
  const most = reported.valid ? priced(bounded(reported.usage, estimate, x, terms, capAtEstimate), x, terms) : least
  return { ...nothing, ...(most.charge > least.charge ? most : least), source: 'estimated', quarantined: true }
}

/** Whether an attempt was answered well, or not at all. */
function isOpen({ status = 200, failure }: Attempt): boolean {
  return status === 200 && failure === undefined
}

/** Returns a usage as billed while no final report exists. */
export function billedSoFar(x: Billable, usage: Usage, terms: Terms): readonly BilledUsage[] {
  return billed(usage, x.model.entry, x.tally, terms, undefined)
}

/** Prices a usage. @param reported set if it is final, with the reported passes and counters */
function priced(
  usage: Usage,
  x: Billable,
  terms: Terms,
  reported?: CountedUsage,
): Pick<Bill, 'billed' | 'usage' | 'charge' | 'parts' | 'unpriced'> {
  const parts = billed(usage, x.model.entry, x.tally, terms, reported?.passes)
  return { billed: true, usage, charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms, reported?.unknown) }
}

/** Returns the parts of an interrupted reply: its own usage, and the advice that it requested. */
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

/** Prices an interrupted reply. */
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
