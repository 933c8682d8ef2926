/** What an exchange costs: the usage its upstream reported, or a marked estimate where it reported none that is possible. */
import { SAFE_BYTES_PER_TOKEN, type Weight, type Weights } from './input.ts'
import type { Body } from '../body.ts'
import type { CountedUsage, Failure } from '../formats/index.ts'
import type { Exchange, Model, Outcome } from '../exchange.ts'
import type { KnownPrefix } from './prefixes.ts'
import { fitted, inputTokens, NO_USAGE, plus, type Usage } from './money.ts'
import { callsHeld } from './extras.ts'
import { type Calls, chargeAll, type Price, tokensFor } from './price.ts'
import {
  adviceSoFar,
  asCut,
  billed,
  type BilledUsage,
  dearestCharge,
  dearestOutput,
  outputRate,
  plausibleCalls,
  type Pricing,
  type Told,
  unpriced,
} from './pricing.ts'

/** How text and media become tokens where nobody counted them: the options of the stage that meters. */
export interface Rates extends Weights {
  /** Output tokens that a balance must cover for a stream to be admitted. */
  readonly leastOutput: number
  /** Output tokens below which the limit of a JSON request is not lowered. */
  readonly leastLimit: number
  /** Output tokens that are held for a JSON reply that nothing limits. */
  readonly unlimitedOutput: number
  /** Calls of one tool that are held for, where the request does not bound them. */
  readonly toolCalls: number
  /** Bytes of text that an estimate counts as one token. */
  readonly bytesPerToken: number
}

/** The rates, and what is known of the model and the conversation of one exchange. */
export interface Terms extends Rates, Pricing {
  readonly reasoning: 'hidden' | 'shown' | 'none'
  /** Tokens that the model makes in a second, the 95th percentile. */
  readonly outputRate: number
  /** Input tokens that the upstream adds by itself. */
  readonly overhead: number
  /** What the request's input weighs. */
  readonly weight: Weight
  /** What the upstream told of the input of an earlier request with the same beginning. */
  readonly prefix: () => KnownPrefix | undefined
}

/** What a bill is made from. */
export interface Billable extends Pick<Exchange, 'format' | 'delivered' | 'complete' | 'silentMs' | 'elapsedMs' | 'sealedBytes'> {
  readonly body: Body
  readonly model: Model
  readonly tally: Told & { readonly failure: Failure | undefined; readonly final: boolean }
}

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

/** A token rarely has more bytes than this, so more bytes than so many a token are beyond a limit of output. */
const MOST_BYTES_PER_TOKEN = 12
/** A report of more input than this many context windows is implausible. */
const IMPLAUSIBLE_WINDOWS = 2
/** So is output of more than this many times what the request allowed: tools that run at the provider take several passes. */
const IMPLAUSIBLE_LIMITS = 10
/** Output tokens that are plausible whatever was asked for. */
const PLAUSIBLE_OUTPUT = 4096
/** Passes of the model that tools at the provider can bring about, each of which reads the whole input again. */
const MOST_PASSES = 10
/** Seconds for which an upstream may go on after its connection was closed. */
const STOP_LAG_S = 1

/**
 * What a hold must be to cover all of the input and so many output tokens, each at its dearest, in nano-credits.
 * @param calls of tools that the provider runs
 */
export function holdFor(x: Pick<Billable, 'model'>, output: number, terms: Terms, calls: Calls | undefined): bigint {
  const { price } = x.model.entry
  const input = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  return dearestCharge({ ...asInput(terms, input, price), ...dearestOutput(output + terms.extras.predicted, price, terms.extras) }, price, terms, calls)
}

/** The calls that are held for where all that the request allows is, and where a stream can be ended before the next one. */
export function heldCalls({ body }: Pick<Billable, 'body'>, { extras, toolCalls }: Terms): { most: Calls | undefined; least: Calls | undefined } {
  if (extras.tools.length === 0) return { most: extras.leastCalls, least: extras.leastCalls }
  // A reply that comes whole cannot be ended.
  const whole = body.get('stream') !== true
  const most = whole ? callsHeld(extras, toolCalls, Infinity) : callsHeld(extras, toolCalls)
  return { most, least: whole ? most : callsHeld(extras, 1) }
}

/** How many output tokens a hold covers beside the input. */
export function outputOf(x: Billable, hold: bigint, terms: Terms): number {
  return tokensFor(hold - holdFor(x, 0, terms, heldCalls(x, terms).least), outputRateOf(x, terms))
}

/** Nano-credits per million of its output tokens at their dearest. */
export function outputRateOf(x: Pick<Billable, 'model'>, terms: Terms): bigint {
  return outputRate(x.model.entry.price, estimateInput(x, terms, SAFE_BYTES_PER_TOKEN), terms)
}

/** The most output tokens that the reply may have, all choices together; Infinity when neither the request nor the model's entry says. */
export function outputLimit({ format, body, model, delivered }: Billable): number {
  const stated = Math.min(format.outputLimit(body) ?? Infinity, model.entry.maxOutput ?? Infinity) * format.choices(body)
  // An upstream that goes far beyond the limit does not keep to it, and what it gives is worth its price.
  return Math.max(stated, Math.ceil(delivered / MOST_BYTES_PER_TOKEN))
}

/** Bytes of output that are certainly more than so many tokens. */
export function beyond(tokens: number): number {
  return tokens * MOST_BYTES_PER_TOKEN + 1
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
  return chargeAll(cutParts({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) }, x, terms))
}

/** Whether the cost of the reply grows while nothing of it is delivered. */
export function growsByClock({ silentMs }: Pick<Billable, 'silentMs'>, { reasoning }: Terms): boolean {
  return reasoning !== 'none' && silentMs > 0
}

/** The bill of an exchange that has ended. @param capAtEstimate the part of a report that cannot be is charged as the estimate, not as what is possible */
export function bill(x: Billable, outcome: Outcome, terms: Terms, capAtEstimate = false): Bill {
  const failed = outcome.kind === 'failed' || x.tally.failure !== undefined
  const reported = x.tally.usage()
  const nothing: Bill = { charge: 0n, billed: false, usage: NO_USAGE, source: 'upstream', quarantined: false, parts: [], unpriced: [], failed }
  const by = outcome.kind === 'failed' || outcome.kind === 'broken' ? outcome.by : undefined
  // What a customer, or the end of his balance, cut short is owed as the upstream saw it.
  const owed = by === 'client' || by === 'budget' || by === 'disabled'
  const cut = failed || outcome.kind === 'broken'
  const believable = reported?.sound === true && plausible(reported.usage, x, terms)
  // What was reported as final is the whole truth, whether or not the client waited for it, and whatever came of the reply.
  const final = reported?.whole === true && (x.tally.final || ((x.complete || !cut) && !x.tally.failure))
  if (outcome.kind === 'answered') return nothing
  // What the gateway itself fails at, and a reply that a stage replaces, is not the customer's to pay.
  const ownFailure = outcome.kind === 'failed' && !owed && !x.tally.failure
  if (!ownFailure && believable && final) return { ...nothing, ...priced(reported.usage, x, terms, reported), source: 'upstream' }
  // A request that reached no upstream, and a reply that failed before it said anything, cost nothing.
  if (owed && outcome.attempts.length === 0) return nothing
  if (cut && !owed && x.delivered === 0) return nothing
  if (!cut && !reported && x.delivered === 0) return nothing
  const estimate = owed ? cutUsage(x, terms) : observed(x, terms)
  if (!reported || believable) return { ...nothing, ...(owed ? pricedCut(estimate, x, terms) : priced(estimate, x, terms)), source: 'estimated' }
  const least = priced(estimate, x, terms)
  const most = reported.sound ? priced(bounded(reported.usage, estimate, x, terms, capAtEstimate), x, terms) : least
  return { ...nothing, ...(most.charge > least.charge ? most : least), source: 'estimated', quarantined: true }
}

/** A usage as it is billed while nothing is final. */
export function billedSoFar(x: Billable, usage: Usage, terms: Terms): readonly BilledUsage[] {
  return billed(usage, x.model.entry, x.tally, terms, undefined)
}

/** Prices a usage. @param reported where it is the whole truth, with the passes and the counters that it told */
function priced(usage: Usage, x: Billable, terms: Terms, reported?: CountedUsage): Pick<Bill, 'billed' | 'usage' | 'charge' | 'parts' | 'unpriced'> {
  const parts = billed(usage, x.model.entry, x.tally, terms, reported?.passes)
  return { billed: true, usage, charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms, reported?.unknown) }
}

/** The parts of a reply that is cut short: its own usage, and the advice that it has asked for. */
function cutParts(usage: Usage, x: Billable, terms: Terms): readonly BilledUsage[] {
  const own = billed(usage, x.model.entry, x.tally, asCut(x, terms), undefined)
  return terms.extras.advisors.length === 0 ? own : [...own, ...adviceSoFar(usage, x, terms)]
}

/** Prices a reply that was cut short. */
function pricedCut(usage: Usage, x: Billable, terms: Terms): ReturnType<typeof priced> {
  const parts = cutParts(usage, x, terms)
  return { billed: true, usage: parts.map(part => part.usage).reduce(plus), charge: chargeAll(parts), parts, unpriced: unpriced(parts, terms) }
}

/** Input tokens that may be written into a prompt cache are priced so, and media at rates of their own. */
function asInput({ weight: { caches, soundTokens, imageTokens } }: Terms, tokens: number, price: Price): Usage {
  const audioInput = price.audioInput === undefined ? 0 : Math.min(soundTokens, tokens)
  const imageInput = price.imageInput > price.input ? Math.min(imageTokens, tokens - audioInput) : 0
  const media = { ...(audioInput > 0 && { audioInput }), ...(imageInput > 0 && { imageInput }) }
  if (caches === undefined) return { ...NO_USAGE, input: tokens, ...media }
  const text = tokens - audioInput - imageInput
  return { ...NO_USAGE, input: tokens - text, ...media, ...(caches === '1h' ? { cacheWrite1h: text } : { cacheWrite5m: text }) }
}

/** The greater of what was reported so far and what the bytes on either side suggest. */
export function observed(x: Billable, terms: Terms): Usage {
  return withReported(x, terms, { ...NO_USAGE, input: fairInput(terms, terms.bytesPerToken) }, visibleOutput(x, terms.bytesPerToken))
}

/**
 * The usage of a reply that ends now: its input, what was delivered, and what its model may have reasoned unseen. Bytes count
 * as more tokens than in `observed`: the customer chooses this end, and must not gain by it.
 */
export function cutUsage(x: Billable, terms: Terms): Usage {
  const visible = visibleOutput(x, SAFE_BYTES_PER_TOKEN)
  const most = Math.min(x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity, byClock(x, terms, x.elapsedMs))
  // What was predicted and not used is output that nobody sees.
  const hidden = Math.min(hiddenOutput(x, terms), Math.max(0, most - visible)) + terms.extras.predicted
  const told = withReported(x, terms, knownInput(x, terms), visible + hidden)
  // The results of tools that the provider runs become input after the first is told.
  const more = inputTokens(x.tally.usage()?.usage ?? NO_USAGE) > 0 ? terms.weight.toolTokens : 0
  const usage = more > 0 ? { ...told, input: told.input + more } : told
  const { price } = x.model.entry
  // Media are not seen in the bytes of a reply.
  if (terms.extras.media.length > 0) return { ...usage, ...dearestOutput(Math.max(usage.output, most === Infinity ? 0 : most), price, terms.extras) }
  return price.reasoning > price.output ? { ...usage, reasoning: Math.max(usage.reasoning, Math.min(hidden, usage.output)) } : usage
}

/** Lays an estimate under what was reported, where that can be. */
function withReported(x: Billable, terms: Terms, estimate: Usage, output: number): Usage {
  const reported = x.tally.usage()
  if (!reported?.sound || !plausible(reported.usage, x, terms)) return { ...estimate, output }
  // Input that was reported, from cache perhaps, is known better than any estimate of it.
  const known = inputTokens(reported.usage) > 0
  return fitted({ ...reported.usage, ...(!known && { ...estimate, reasoning: reported.usage.reasoning }), output: Math.max(reported.usage.output, output) })
}

function visibleOutput(x: Billable, bytesPerToken: number): number {
  return Math.min(Math.ceil(x.delivered / bytesPerToken), outputLimit(x))
}

/** What the model may have reasoned unseen: by the clock, or by the size of what it sent encrypted. */
function hiddenOutput(x: Billable, terms: Terms): number {
  // Of a whole reply nothing is seen before its end, whatever its model does.
  if (terms.reasoning === 'none' && x.body.get('stream') === true) return 0
  return Math.ceil(x.sealedBytes / SAFE_BYTES_PER_TOKEN) + byClock(x, terms, x.silentMs)
}

/** Tokens that the model can make in so many milliseconds, and in those for which the upstream goes on. */
function byClock({ format, body }: Pick<Billable, 'format' | 'body'>, { outputRate }: Terms, ms: number): number {
  // Replies that are asked for at once are made at once.
  return Math.ceil(outputRate * format.choices(body) * (ms / 1000 + STOP_LAG_S))
}

function estimateInput({ model }: Pick<Billable, 'model'>, terms: Terms, bytesPerToken: number): number {
  const estimate = fairInput(terms, bytesPerToken)
  // What nobody can weigh may fill the window.
  return terms.weight.unbounded ? Math.max(estimate, windowOf(model)) : estimate
}

/** Input tokens without what nobody can weigh. */
function fairInput({ weight: { textBytes, tokens }, overhead }: Terms, bytesPerToken: number): number {
  return Math.ceil(textBytes / bytesPerToken) + tokens + overhead
}

/** The input of a reply whose upstream has not told it: what is known of an earlier request with the same beginning counts. */
function knownInput(x: Billable, terms: Terms): Usage {
  const estimate = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  const prefix = terms.prefix()
  if (!prefix) return asInput(terms, estimate, x.model.entry.price)
  // What is not text takes few bytes and may be many tokens.
  const { tokens, toolTokens, unbounded } = terms.weight
  const plain = tokens === toolTokens && !unbounded
  const total = plain ? Math.min(estimate, prefix.inputTokens + Math.ceil(prefix.restBytes / SAFE_BYTES_PER_TOKEN) + toolTokens) : estimate
  const cacheRead = Math.min(prefix.cachedTokens, total)
  return { ...asInput(terms, total - cacheRead, x.model.entry.price), cacheRead }
}

function windowOf({ entry }: Model): number {
  return entry.context ?? LARGEST_WINDOW
}

/** Tokens of context that a model without a `context` of its own is taken to have. */
const LARGEST_WINDOW = 1_000_000

function plausible(usage: Usage, x: Billable, terms: Terms): boolean {
  return plausibleInput(usage, x, terms) && plausibleOutput(usage, x, terms) && plausibleCalls(x.tally, terms)
}

function plausibleInput(usage: Usage, { model }: Billable, terms: Terms): boolean {
  const { providerTools } = terms.weight
  return inputTokens(usage) <= windowOf(model) * (providerTools ? MOST_PASSES : IMPLAUSIBLE_WINDOWS)
}

function plausibleOutput({ output }: Usage, x: Billable, terms: Terms): boolean {
  // What the model had the time to make is no wonder, whatever the limit says.
  const most = Math.max(PLAUSIBLE_OUTPUT, outputLimit(x) * IMPLAUSIBLE_LIMITS, byClock(x, terms, x.silentMs))
  return output <= Math.min(windowOf(x.model) * IMPLAUSIBLE_WINDOWS, most)
}

/** The most input and output tokens that the bytes on either side, the clock and the limits allow. */
function possible(x: Billable, terms: Terms): { input: number; output: number } {
  const { providerTools } = terms.weight
  const passes = providerTools ? MOST_PASSES : 0
  const limit = outputLimit(x)
  const hidden = terms.reasoning === 'none' ? 0 : Math.max(limit === Infinity ? 0 : limit, hiddenOutput(x, terms))
  return { input: estimateInput(x, terms, 1) + passes * windowOf(x.model), output: x.delivered + hidden }
}

/** A report whose implausible part is cut to what is possible, though not below the estimate. */
function bounded(reported: Usage, estimate: Usage, x: Billable, terms: Terms, capAtEstimate: boolean): Usage {
  const most = capAtEstimate ? { input: 0, output: 0 } : possible(x, terms)
  const output = plausibleOutput(reported, x, terms) ? reported.output : Math.max(estimate.output, Math.min(reported.output, most.output))
  const reasoning = Math.min(reported.reasoning, output)
  const told = inputTokens(reported)
  // What is too much is taken off where most was reported.
  let excess = plausibleInput(reported, x, terms) ? 0 : told - Math.max(inputTokens(estimate), Math.min(told, most.input))
  const classes = { input: reported.input, cacheRead: reported.cacheRead, cacheWrite5m: reported.cacheWrite5m, cacheWrite1h: reported.cacheWrite1h }
  for (const name of (Object.keys(classes) as (keyof typeof classes)[]).sort((a, b) => classes[b] - classes[a])) {
    const off = Math.min(excess, classes[name])
    classes[name] -= off
    excess -= off
  }
  return fitted({ ...reported, ...classes, output, reasoning })
}
