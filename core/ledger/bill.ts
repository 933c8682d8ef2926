/** What an exchange costs: the usage its upstream reported, or a marked estimate where it reported none that is possible. */
import { SAFE_BYTES_PER_TOKEN, weigh, type Weights } from './input.ts'
import type { Body } from '../body.ts'
import type { CountedUsage, Failure } from '../formats/index.ts'
import type { Exchange, Model, Outcome } from '../exchange.ts'
import type { KnownPrefix } from './prefixes.ts'
import { charge, inputTokens, NO_USAGE, tokensFor, type Price, type Usage } from './money.ts'

/** How text and media become tokens where nobody counted them: the options of the stage that meters. */
export interface Rates extends Weights {
  /** Output tokens that a balance must cover for a stream to be admitted. */
  readonly leastOutput: number
  /** Output tokens below which the limit of a JSON request is not lowered. */
  readonly leastLimit: number
  /** Output tokens that are held for a JSON reply that nothing limits. */
  readonly unlimitedOutput: number
  /** Bytes of text that an estimate counts as one token. */
  readonly bytesPerToken: number
}

/** The rates, and what is known of the model and the conversation of one exchange. */
export interface Terms extends Rates {
  readonly reasoning: 'hidden' | 'shown' | 'none'
  /** Tokens that the model makes in a second, the 95th percentile. */
  readonly outputRate: number
  /** Input tokens that the upstream adds by itself. */
  readonly overhead: number
  /** Input tokens that the stored state stands for to which the request refers; undefined where nobody recorded them. */
  readonly storedTokens: number | undefined
  /** What the upstream told of the input of an earlier request with the same beginning. */
  readonly prefix: KnownPrefix | undefined
}

/** What a bill is made from. */
export interface Billable extends Pick<Exchange, 'format' | 'delivered' | 'complete' | 'silentMs' | 'sealedBytes'> {
  readonly body: Body
  readonly model: Model
  readonly tally: { readonly failure: Failure | undefined; readonly final: boolean; usage(): CountedUsage | undefined }
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
  /** What the upstream says it costs the operator. */
  readonly cost: number | undefined
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

/** What a hold must be to cover all of the input and so many output tokens, each at its dearest, in nano-credits. */
export function holdFor(x: Pick<Billable, 'body' | 'model'>, output: number, terms: Terms): bigint {
  const { price } = x.model.entry
  const input = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  return charge({ ...NO_USAGE, input, ...dearest(output, price) }, price)
}

/** How many output tokens a hold covers beside the input. */
export function outputOf(x: Billable, hold: bigint, terms: Terms): number {
  const { price } = x.model.entry
  return tokensFor(hold - holdFor(x, 0, terms), price.reasoning > price.output ? price.reasoning : price.output)
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

/** What was delivered so far costs, with its input, in nano-credits: what is charged when the gateway dies. */
export function deliveredCharge(x: Billable, terms: Terms): bigint {
  if (x.delivered === 0 && !x.tally.usage()) return 0n
  return charge(observed(x, terms), x.model.entry.price)
}

/** What the exchange may have cost the upstream by now and, on top of it, so many output tokens, in nano-credits. */
export function runningCharge(x: Billable, terms: Terms, ahead = 0): bigint {
  if (x.delivered === 0 && !x.tally.usage() && !growsByClock(x, terms)) return 0n
  const usage = cutUsage(x, terms)
  const most = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
  return charge({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, most)) }, x.model.entry.price)
}

/** Whether the cost of the reply grows while nothing of it is delivered. */
export function growsByClock({ silentMs }: Pick<Billable, 'silentMs'>, { reasoning }: Terms): boolean {
  return reasoning === 'hidden' && silentMs > 0
}

/** The bill of an exchange that has ended. @param careful false: a report that cannot be is not charged beyond the estimate */
export function bill(x: Billable, outcome: Outcome, terms: Terms, careful = true): Bill {
  const failed = outcome.kind === 'failed' || x.tally.failure !== undefined
  const reported = x.tally.usage()
  const nothing: Bill = { charge: 0n, billed: false, usage: NO_USAGE, source: 'upstream', quarantined: false, cost: reported?.cost, failed }
  const by = outcome.kind === 'failed' || outcome.kind === 'broken' ? outcome.by : undefined
  // What a customer, or the end of his balance, cut short is owed as the upstream saw it.
  const owed = by === 'client' || by === 'budget' || by === 'disabled'
  if (outcome.kind === 'answered' || (outcome.kind === 'failed' && !owed && x.delivered === 0)) return nothing
  // A request that reached no upstream, and a reply that failed before it said anything, cost nothing.
  if (owed && outcome.attempts.length === 0) return nothing
  const cut = failed || outcome.kind === 'broken'
  if (cut && !owed && x.delivered === 0) return nothing
  if (!cut && !reported && x.delivered === 0) return nothing
  const believable = reported?.sound === true && plausible(reported.usage, x)
  // What was reported as final is the whole truth, whether or not the client waited for it.
  const final = reported?.whole === true && !x.tally.failure && (x.tally.final || x.complete || !cut)
  if (believable && final) return { ...nothing, ...priced(reported.usage, x), source: 'upstream' }
  const estimate = owed ? cutUsage(x, terms) : observed(x, terms)
  if (!reported || believable) return { ...nothing, ...priced(estimate, x), source: 'estimated' }
  const least = priced(estimate, x)
  const most = reported.sound && careful ? priced(bounded(reported.usage, estimate, x, terms), x) : least
  return { ...nothing, ...(most.charge > least.charge ? most : least), source: 'estimated', quarantined: true }
}

function priced(usage: Usage, x: Billable): Pick<Bill, 'billed' | 'usage' | 'charge'> {
  return { billed: true, usage, charge: charge(usage, x.model.entry.price) }
}

/** Output is priced as reasoning where that is dearer. */
function dearest(output: number, price: Price): Pick<Usage, 'output' | 'reasoning'> {
  return { output, reasoning: price.reasoning > price.output ? output : 0 }
}

/** The greater of what was reported so far and what the bytes on either side suggest. */
export function observed(x: Billable, terms: Terms): Usage {
  return withReported(x, estimateInput(x, terms, terms.bytesPerToken), visibleOutput(x, terms.bytesPerToken))
}

/**
 * The usage of a reply that ends now: its input, what was delivered, and what its model may have reasoned unseen. Bytes count
 * as more tokens than in `observed`: the customer chooses this end, and must not gain by it.
 */
export function cutUsage(x: Billable, terms: Terms): Usage {
  const visible = visibleOutput(x, SAFE_BYTES_PER_TOKEN)
  const hidden = Math.min(hiddenOutput(x, terms), x.model.entry.reasoningInLimit ? Math.max(0, outputLimit(x) - visible) : Infinity)
  const usage = withReported(x, knownInput(x, terms), visible + hidden)
  const { price } = x.model.entry
  return price.reasoning > price.output ? { ...usage, reasoning: Math.max(usage.reasoning, Math.min(hidden, usage.output)) } : usage
}

/** Lays an estimate under what was reported, where that can be. */
function withReported(x: Billable, input: Usage | number, output: number): Usage {
  const estimate = typeof input === 'number' ? { ...NO_USAGE, input } : input
  const reported = x.tally.usage()
  if (!reported?.sound || !plausible(reported.usage, x)) return { ...estimate, output }
  // Input that was reported, from cache perhaps, is known better than any estimate of it.
  const known = inputTokens(reported.usage) > 0
  return { ...reported.usage, ...(!known && { ...estimate, reasoning: reported.usage.reasoning }), output: Math.max(reported.usage.output, output) }
}

function visibleOutput(x: Billable, bytesPerToken: number): number {
  return Math.min(Math.ceil(x.delivered / bytesPerToken), outputLimit(x))
}

/** What the model may have reasoned unseen: by the clock, or by the size of what it sent encrypted. */
function hiddenOutput({ silentMs, sealedBytes, format, body }: Billable, { reasoning, outputRate }: Terms): number {
  if (reasoning === 'none') return 0
  // Replies that are asked for at once are made at once.
  const byClock = outputRate * format.choices(body) * (silentMs / 1000 + STOP_LAG_S)
  return Math.ceil(sealedBytes / SAFE_BYTES_PER_TOKEN) + Math.ceil(byClock)
}

function estimateInput({ body, model }: Pick<Billable, 'body' | 'model'>, terms: Terms, bytesPerToken: number): number {
  const { textBytes, tokens, unbounded } = weigh(body, terms, terms.storedTokens)
  const estimate = Math.ceil(textBytes / bytesPerToken) + tokens + terms.overhead
  return unbounded ? Math.max(estimate, windowOf(model)) : estimate
}

/** The input of a reply whose upstream has not told it: what is known of an earlier request with the same beginning counts. */
function knownInput(x: Billable, terms: Terms): Usage {
  const estimate = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  const { prefix } = terms
  if (!prefix) return { ...NO_USAGE, input: estimate }
  const rest = Math.max(0, x.body.received.length - prefix.bytes)
  // What is not text takes few bytes and may be many tokens.
  const plain = weigh(x.body, terms, terms.storedTokens).tokens === 0
  const total = plain ? Math.min(estimate, prefix.inputTokens + Math.ceil(rest / SAFE_BYTES_PER_TOKEN)) : estimate
  const cacheRead = Math.min(prefix.cachedTokens, total)
  return { ...NO_USAGE, input: total - cacheRead, cacheRead }
}

function windowOf({ entry }: Model): number {
  return entry.context ?? LARGEST_WINDOW
}

/** Tokens of context that a model without a `context` of its own is taken to have. */
const LARGEST_WINDOW = 1_000_000

function plausible(usage: Usage, x: Billable): boolean {
  return plausibleInput(usage, x) && plausibleOutput(usage, x)
}

function plausibleInput(usage: Usage, { model }: Billable): boolean {
  return inputTokens(usage) <= windowOf(model) * IMPLAUSIBLE_WINDOWS
}

function plausibleOutput({ output }: Usage, x: Billable): boolean {
  return output <= Math.min(windowOf(x.model) * IMPLAUSIBLE_WINDOWS, Math.max(PLAUSIBLE_OUTPUT, outputLimit(x) * IMPLAUSIBLE_LIMITS))
}

/** The most input and output tokens that the bytes on either side, the clock and the limits allow. */
function possible(x: Billable, terms: Terms): { input: number; output: number } {
  const { providerTools } = weigh(x.body, terms, terms.storedTokens)
  const passes = providerTools ? MOST_PASSES : 0
  const limit = outputLimit(x)
  const hidden = terms.reasoning === 'none' ? 0 : Math.max(limit === Infinity ? 0 : limit, hiddenOutput(x, terms))
  return { input: estimateInput(x, terms, 1) + passes * windowOf(x.model), output: x.delivered + hidden }
}

/** A report whose implausible part is cut to what is possible, though not below the estimate. */
function bounded(reported: Usage, estimate: Usage, x: Billable, terms: Terms): Usage {
  const most = possible(x, terms)
  const output = plausibleOutput(reported, x) ? reported.output : Math.max(estimate.output, Math.min(reported.output, most.output))
  const reasoning = Math.min(reported.reasoning, output)
  const told = inputTokens(reported)
  // What is too much is taken off where most was reported.
  let excess = plausibleInput(reported, x) ? 0 : told - Math.max(inputTokens(estimate), Math.min(told, most.input))
  const classes = { input: reported.input, cacheRead: reported.cacheRead, cacheWrite5m: reported.cacheWrite5m, cacheWrite1h: reported.cacheWrite1h }
  for (const name of (Object.keys(classes) as (keyof typeof classes)[]).sort((a, b) => classes[b] - classes[a])) {
    const off = Math.min(excess, classes[name])
    classes[name] -= off
    excess -= off
  }
  return { ...classes, output, reasoning }
}
