/** Estimates of usage where none was reported, and checks whether a reported usage is plausible. */
import type { Body } from '../formats/body.ts'
import type { Model } from '../exchange/exchange.ts'
import type { BuiltInExchange } from '../exchange/built-in.ts'
import type { CountedUsage, Failure } from '../formats/index.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import type { Weight, Weights } from './input.ts'
import { fitted, inputTokens, NO_USAGE, plus, type Usage } from '../money/usage.ts'
import type { KnownPrefix } from './prefixes.ts'
import type { Price } from '../money/price.ts'
import { dearestOutput, hasShownNothing, type Pricing, type ReportedSoFar } from './pricing.ts'
import { resultTokens, roundsSoFar, shownRounds, withRounds } from './tool-rounds.ts'

/** Rates for estimating text and media as tokens: options of the metering stage. */
export interface Rates extends Weights {
  /** Output tokens that a balance must cover for a stream to be admitted. */
  readonly leastOutput: number
  /** Minimum to which the output limit of a JSON request is lowered, in tokens. */
  readonly leastLimit: number
  /** Output tokens to hold for a JSON reply without a limit. */
  readonly unlimitedOutput: number
  /** Calls of one tool to hold for if the request sets no limit. */
  readonly toolCalls: number
  /** Output tokens of one image that a tool creates. */
  readonly imageTokens: number
  /** Bytes of text per token in estimates. */
  readonly bytesPerToken: number
}

/** The rates, with what is known about the model and the conversation of one exchange. */
export interface Terms extends Rates, Pricing {
  readonly reasoning: 'hidden' | 'shown' | 'none'
  /** Tokens per second that the model generates, 95th percentile. */
  readonly outputRate: number
  /** Input tokens that the upstream itself adds. */
  readonly overhead: number
  /** The weight of the request's input. */
  readonly weight: Weight
  /** Returns what the upstream reported about an earlier request with the same beginning. */
  readonly prefix: () => KnownPrefix | undefined
}

/** What a bill is computed from. */
export interface Billable extends Pick<
  BuiltInExchange,
  'format' | 'delivered' | 'complete' | 'silentMs' | 'elapsedMs' | 'encryptedBytes'
> {
  readonly body: Body
  readonly model: Model
  readonly tally: ReportedSoFar & { readonly failure: Failure | undefined; readonly usageIsFinal: boolean }
}

/** A token rarely has more bytes, so more bytes per token exceed an output limit. */
const BYTES_PER_TOKEN_MAX = 12
/** A report of more input than this many context windows is implausible. */
const IMPLAUSIBLE_WINDOWS = 2
/** How much faster than `outputRate` a model may be. Some are many times faster than the file says. */
const PLAUSIBLE_SPEEDS = 8
/** Output tokens that are plausible beyond that. */
const PLAUSIBLE_OUTPUT = 4096
/** Maximum passes of the model that tools at the provider can cause. Each pass reads the whole input again. */
const PASSES_MAX = 10
/** Maximum passes in one report. */
const REPORTED_PASSES_MAX = 1000
/** How long an upstream may continue after its connection was closed, in seconds. */
const STOP_LAG_S = 1

/**
 * Returns the maximum output tokens of the reply, all choices together. Infinity if neither the request nor the model
 * has a limit.
 */
export function outputLimit({ format, body, model, delivered }: Billable): number {
  const stated =
    Math.min(format.outputLimit(body) ?? Infinity, model.entry.maxOutput ?? Infinity) * format.choices(body)
  // An upstream that far exceeds the limit does not observe it, and its output is charged.
  return Math.max(stated, Math.ceil(delivered / BYTES_PER_TOKEN_MAX))
}

/** Returns a number of bytes that is certainly more than a number of tokens. */
export function beyond(tokens: number): number {
  return tokens * BYTES_PER_TOKEN_MAX + 1
}

/** Returns whether the reply's cost grows while nothing is delivered. */
export function growsByClock({ silentMs }: Pick<Billable, 'silentMs'>, { reasoning }: Terms): boolean {
  return reasoning !== 'none' && silentMs > 0
}

/**
 * Classifies input: tokens that may be written to a prompt cache, and media with their own rates, are counted as such.
 */
export function asInput({ weight: { caches, soundTokens, imageTokens } }: Terms, tokens: number, price: Price): Usage {
  const audioInput = price.audioInput === undefined ? 0 : Math.min(soundTokens, tokens)
  const imageInput = price.imageInput > price.input ? Math.min(imageTokens, tokens - audioInput) : 0
  const media = { ...(audioInput > 0 && { audioInput }), ...(imageInput > 0 && { imageInput }) }
  if (caches === undefined) return { ...NO_USAGE, input: tokens, ...media }
  const text = tokens - audioInput - imageInput
  return {
    ...NO_USAGE,
    input: tokens - text,
    ...media,
    ...(caches === '1h' ? { cacheWrite1h: text } : { cacheWrite5m: text }),
  }
}

/** Returns the greater of the usage reported so far and the usage that the bytes suggest. */
export function observed(x: Billable, terms: Terms): Usage {
  const { bytesPerToken } = terms
  const input = fairInput(terms, bytesPerToken) - terms.weight.surplus
  const usage = withReported(x, terms, { ...NO_USAGE, input }, visibleOutput(x, bytesPerToken))
  return withRounds(usage, roundsSoFar(x, terms, bytesPerToken, false), terms, windowOf(x.model))
}

/** Returns the input that a pass reads now: the input of the request, and the results of tools. */
export function inputOfPass(x: Billable, terms: Terms): number {
  const base = inputTokens(withReported(x, terms, knownInput(x, terms), 0))
  return shownRounds(x.tally, terms).reduce(
    (sum, round) => sum + (round.kind === 'advisor' ? 0 : resultTokens(round, terms, SAFE_BYTES_PER_TOKEN)),
    base,
  )
}

/**
 * Returns the usage of a reply that ends now: its input, what was delivered, and possible unseen reasoning. Bytes count
 * as more tokens than in `observed`: the customer chooses this end and must not profit from it.
 * @param ahead further rounds of tools, by the tokens of their results
 */
export function cancelUsage(x: Billable, terms: Terms, ahead: readonly number[] = []): Usage {
  const visible = visibleOutput(x, SAFE_BYTES_PER_TOKEN)
  const most = Math.min(x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity, byClock(x, terms, x.elapsedMs))
  // Predicted text that was not used is unseen output.
  const hidden = Math.min(hiddenOutput(x, terms), Math.max(0, most - visible)) + terms.extras.predicted
  const estimated = withReported(x, terms, knownInput(x, terms), visible + hidden)
  const rounds = roundsSoFar(x, terms, SAFE_BYTES_PER_TOKEN, hasShownNothing(x))
  const usage = withRounds(estimated, [...rounds, ...ahead], terms, windowOf(x.model))
  const { price } = x.model.entry
  // Media do not show in the bytes of a reply.
  if (terms.extras.media.length > 0)
    return { ...usage, ...dearestOutput(Math.max(usage.output, most === Infinity ? 0 : most), price, terms.extras) }
  return price.reasoning > price.output
    ? { ...usage, reasoning: Math.max(usage.reasoning, Math.min(hidden, usage.output)) }
    : usage
}

/** Returns what the upstream has reported so far if it is plausible. */
export function plausibleReport(x: Billable, terms: Terms): CountedUsage | undefined {
  const reported = x.tally.usage()
  return reported && plausible(reported, x, terms) ? reported : undefined
}

/** Combines a plausible report with an estimate as its minimum. */
function withReported(x: Billable, terms: Terms, estimate: Usage, output: number): Usage {
  const reported = plausibleReport(x, terms)
  if (!reported) return { ...estimate, output }
  // Reported input, possibly from a cache, is more accurate than any estimate of it.
  const known = inputTokens(reported.usage) > 0
  return fitted({
    ...reported.usage,
    ...(!known && { ...estimate, reasoning: reported.usage.reasoning }),
    output: Math.max(reported.usage.output, output),
  })
}

function visibleOutput(x: Billable, bytesPerToken: number): number {
  return Math.min(Math.ceil(x.delivered / bytesPerToken), outputLimit(x))
}

/** Returns the possible unseen reasoning, by the clock or by the size of the encrypted reasoning. */
function hiddenOutput(x: Billable, terms: Terms): number {
  // A reply in one piece shows nothing before its end, whatever its model does.
  if (terms.reasoning === 'none' && x.body.get('stream') === true) return 0
  return Math.ceil(x.encryptedBytes / SAFE_BYTES_PER_TOKEN) + byClock(x, terms, x.silentMs)
}

/** Returns the tokens that the model can generate in a number of milliseconds plus the upstream's delay in stopping. */
function byClock({ format, body }: Pick<Billable, 'format' | 'body'>, { outputRate }: Terms, ms: number): number {
  // Several choices are generated in parallel.
  return Math.ceil(outputRate * format.choices(body) * (ms / 1000 + STOP_LAG_S))
}

/**
 * Estimates a request's input tokens at a number of bytes per token. A request with contents of unknown size counts as
 * at least the model's window.
 */
export function estimateInput({ model }: Pick<Billable, 'model'>, terms: Terms, bytesPerToken: number): number {
  const estimate = fairInput(terms, bytesPerToken)
  // Contents of unknown size may fill the window.
  return terms.weight.unbounded ? Math.max(estimate, windowOf(model)) : estimate
}

/** Returns the input tokens without contents of unknown size. */
function fairInput({ weight: { textBytes, tokens }, overhead }: Terms, bytesPerToken: number): number {
  return Math.ceil(textBytes / bytesPerToken) + tokens + overhead
}

/**
 * Returns the input of a reply whose upstream has not reported it, using an earlier request with the same beginning if
 * one is known.
 */
function knownInput(x: Billable, terms: Terms): Usage {
  const estimate = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  const prefix = terms.prefix()
  if (!prefix) return asInput(terms, estimate, x.model.entry.price)
  // Contents other than text take few bytes but may be many tokens.
  const { tokens, unbounded } = terms.weight
  const plain = tokens === 0 && !unbounded
  const total = plain
    ? Math.min(estimate, prefix.inputTokens + Math.ceil(prefix.restBytes / SAFE_BYTES_PER_TOKEN))
    : estimate
  const cacheRead = Math.min(prefix.cachedTokens, total)
  return { ...asInput(terms, total - cacheRead, x.model.entry.price), cacheRead }
}

/** Returns the context window of a model, in tokens. */
export function windowOf({ entry }: Pick<Model, 'entry'>): number {
  return entry.context ?? LARGEST_WINDOW
}

/** Context window assumed for a model without `context`, in tokens. */
const LARGEST_WINDOW = 1_000_000

/** Returns whether the tokens of a report are plausible. */
export function plausible({ usage, passes = [] }: CountedUsage, x: Billable, terms: Terms): boolean {
  if (passes.length > REPORTED_PASSES_MAX) return false
  const separate = passes.filter(pass => pass.separate).map(pass => pass.usage)
  if (separate.length === 0) return plausibleInput(usage, x, terms) && plausibleOutput(usage, x, terms)
  // The request's limit does not apply to output of other models.
  const own = passes.filter(pass => !pass.separate).map(pass => pass.usage)
  const windows = [...own, ...separate].every(
    each => inputTokens(each) <= LARGEST_WINDOW * IMPLAUSIBLE_WINDOWS && each.output <= LARGEST_WINDOW,
  )
  return (
    windows &&
    own.every(each => plausibleInput(each, x, terms)) &&
    plausibleOutput(own.reduce(plus, NO_USAGE), x, terms)
  )
}

/** Returns how many windows of input a reply can have read: one pass per call, and one more. */
function passesOf(x: Billable, { extras, weight }: Terms): number {
  if (!weight.providerTools) return IMPLAUSIBLE_WINDOWS
  const calls = Object.values(x.tally.calls(extras.tools) ?? {}).reduce((sum, count) => sum + count, 0)
  return Math.max(PASSES_MAX, 1 + Math.min(calls, REPORTED_PASSES_MAX))
}

function plausibleInput(usage: Usage, x: Billable, terms: Terms): boolean {
  return inputTokens(usage) <= windowOf(x.model) * passesOf(x, terms)
}

/**
 * Returns the maximum plausible output: what the time or the bytes allow. A request's limit says nothing about it, since
 * an upstream may not observe it, or may not count reasoning towards it.
 */
function mostOutput({ format, body, delivered, encryptedBytes, elapsedMs }: Billable, { outputRate }: Terms): number {
  const byClock = (PLAUSIBLE_SPEEDS * outputRate * format.choices(body) * elapsedMs) / 1000
  // A token has at least one byte.
  const byBytes = delivered + encryptedBytes / SAFE_BYTES_PER_TOKEN
  return Math.ceil(Math.max(byClock, byBytes)) + PLAUSIBLE_OUTPUT
}

function plausibleOutput({ output }: Usage, x: Billable, terms: Terms): boolean {
  return output <= mostOutput(x, terms)
}

/** Returns the maximum input that the bytes of a request allow, at one token a byte. */
function mostInput(x: Billable, terms: Terms): number {
  const passes = terms.weight.providerTools ? passesOf(x, terms) : 0
  return estimateInput(x, terms, 1) + passes * windowOf(x.model)
}

/** Reduces the implausible part of a report to the plausible maximum, but not below the estimate. */
export function bounded(reported: Usage, estimate: Usage, x: Billable, terms: Terms): Usage {
  const output = plausibleOutput(reported, x, terms) ? reported.output : Math.max(estimate.output, mostOutput(x, terms))
  const reasoning = Math.min(reported.reasoning, output)
  const reportedInput = inputTokens(reported)
  // The excess is taken from the largest counters first.
  let excess = plausibleInput(reported, x, terms)
    ? 0
    : reportedInput - Math.max(inputTokens(estimate), Math.min(reportedInput, mostInput(x, terms)))
  const classes = {
    input: reported.input,
    cacheRead: reported.cacheRead,
    cacheWrite5m: reported.cacheWrite5m,
    cacheWrite1h: reported.cacheWrite1h,
  }
  for (const name of (Object.keys(classes) as (keyof typeof classes)[]).sort((a, b) => classes[b] - classes[a])) {
    const off = Math.min(excess, classes[name])
    classes[name] -= off
    excess -= off
  }
  return fitted({ ...reported, ...classes, output, reasoning })
}
