/** What a reply may have used: estimates where nothing was reported, and whether what was reported can be. */
import type { Body } from '../formats/body.ts'
import type { Exchange, Model } from '../exchange/exchange.ts'
import type { CountedUsage, Failure } from '../formats/index.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import type { Weight, Weights } from './input.ts'
import { fitted, inputTokens, NO_USAGE, plus, type Usage } from '../money/usage.ts'
import type { KnownPrefix } from './prefixes.ts'
import type { Price } from '../money/price.ts'
import { dearestOutput, type Pricing, type ReportedSoFar } from './pricing.ts'

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
  /** Output tokens of one image that a tool makes. */
  readonly imageTokens: number
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
export interface Billable extends Pick<
  Exchange,
  'format' | 'delivered' | 'complete' | 'silentMs' | 'elapsedMs' | 'encryptedBytes'
> {
  readonly body: Body
  readonly model: Model
  readonly tally: ReportedSoFar & { readonly failure: Failure | undefined; readonly final: boolean }
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
/** Passes that a report may tell apart. */
const MOST_TOLD_PASSES = 1000
/** Seconds for which an upstream may go on after its connection was closed. */
const STOP_LAG_S = 1

/** The most output tokens that the reply may have, all choices together; Infinity when neither the request nor the model's entry says. */
export function outputLimit({ format, body, model, delivered }: Billable): number {
  const stated =
    Math.min(format.outputLimit(body) ?? Infinity, model.entry.maxOutput ?? Infinity) * format.choices(body)
  // An upstream that goes far beyond the limit does not keep to it, and what it gives is worth its price.
  return Math.max(stated, Math.ceil(delivered / MOST_BYTES_PER_TOKEN))
}

/** Bytes of output that are certainly more than so many tokens. */
export function beyond(tokens: number): number {
  return tokens * MOST_BYTES_PER_TOKEN + 1
}

/** Whether the cost of the reply grows while nothing of it is delivered. */
export function growsByClock({ silentMs }: Pick<Billable, 'silentMs'>, { reasoning }: Terms): boolean {
  return reasoning !== 'none' && silentMs > 0
}

/** Input tokens that may be written into a prompt cache are priced so, and media at rates of their own. */
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

/** The greater of what was reported so far and what the bytes on either side suggest. */
export function observed(x: Billable, terms: Terms): Usage {
  return withReported(
    x,
    terms,
    { ...NO_USAGE, input: fairInput(terms, terms.bytesPerToken) },
    visibleOutput(x, terms.bytesPerToken),
  )
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
  if (terms.extras.media.length > 0)
    return { ...usage, ...dearestOutput(Math.max(usage.output, most === Infinity ? 0 : most), price, terms.extras) }
  return price.reasoning > price.output
    ? { ...usage, reasoning: Math.max(usage.reasoning, Math.min(hidden, usage.output)) }
    : usage
}

/** Lays an estimate under what was reported, where that can be. */
function withReported(x: Billable, terms: Terms, estimate: Usage, output: number): Usage {
  const reported = x.tally.usage()
  if (!reported?.valid || !plausible(reported, x, terms)) return { ...estimate, output }
  // Input that was reported, from cache perhaps, is known better than any estimate of it.
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

/** What the model may have reasoned unseen: by the clock, or by the size of what it sent encrypted. */
function hiddenOutput(x: Billable, terms: Terms): number {
  // Of a whole reply nothing is seen before its end, whatever its model does.
  if (terms.reasoning === 'none' && x.body.get('stream') === true) return 0
  return Math.ceil(x.encryptedBytes / SAFE_BYTES_PER_TOKEN) + byClock(x, terms, x.silentMs)
}

/** Tokens that the model can make in so many milliseconds, and in those for which the upstream goes on. */
function byClock({ format, body }: Pick<Billable, 'format' | 'body'>, { outputRate }: Terms, ms: number): number {
  // Replies that are asked for at once are made at once.
  return Math.ceil(outputRate * format.choices(body) * (ms / 1000 + STOP_LAG_S))
}

/** Input tokens of a request at so many bytes a token. A request with contents that cannot be weighed counts as at least the model's window. */
export function estimateInput({ model }: Pick<Billable, 'model'>, terms: Terms, bytesPerToken: number): number {
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
  const total = plain
    ? Math.min(estimate, prefix.inputTokens + Math.ceil(prefix.restBytes / SAFE_BYTES_PER_TOKEN) + toolTokens)
    : estimate
  const cacheRead = Math.min(prefix.cachedTokens, total)
  return { ...asInput(terms, total - cacheRead, x.model.entry.price), cacheRead }
}

function windowOf({ entry }: Model): number {
  return entry.context ?? LARGEST_WINDOW
}

/** Tokens of context that a model without a `context` of its own is taken to have. */
const LARGEST_WINDOW = 1_000_000

/** Whether the tokens of a reported usage can be. */
export function plausible({ usage, passes = [] }: CountedUsage, x: Billable, terms: Terms): boolean {
  if (passes.length > MOST_TOLD_PASSES) return false
  const aside = passes.filter(pass => pass.separate).map(pass => pass.usage)
  if (aside.length === 0) return plausibleInput(usage, x, terms) && plausibleOutput(usage, x, terms)
  // What is not the model's own answer is bounded by no limit of the request.
  const own = passes.filter(pass => !pass.separate).map(pass => pass.usage)
  const windows = [...own, ...aside].every(
    each => inputTokens(each) <= LARGEST_WINDOW * IMPLAUSIBLE_WINDOWS && each.output <= LARGEST_WINDOW,
  )
  return (
    windows &&
    own.every(each => plausibleInput(each, x, terms)) &&
    plausibleOutput(own.reduce(plus, NO_USAGE), x, terms)
  )
}

/** How many windows of input a reply can have read: a pass for each call, and one more. */
function passesOf(x: Billable, { extras, weight }: Terms): number {
  if (!weight.providerTools) return IMPLAUSIBLE_WINDOWS
  const calls = Object.values(x.tally.calls(extras.tools) ?? {}).reduce((sum, count) => sum + count, 0)
  return Math.max(MOST_PASSES, 1 + Math.min(calls, MOST_TOLD_PASSES))
}

function plausibleInput(usage: Usage, x: Billable, terms: Terms): boolean {
  return inputTokens(usage) <= windowOf(x.model) * passesOf(x, terms)
}

function plausibleOutput({ output }: Usage, x: Billable, terms: Terms): boolean {
  // What the model had the time to make is no wonder, whatever the limit says.
  const most = Math.max(PLAUSIBLE_OUTPUT, outputLimit(x) * IMPLAUSIBLE_LIMITS, byClock(x, terms, x.silentMs))
  return output <= Math.min(windowOf(x.model) * IMPLAUSIBLE_WINDOWS, most)
}

/** The most input and output tokens that the bytes on either side, the clock and the limits allow. */
function possible(x: Billable, terms: Terms): { input: number; output: number } {
  const passes = terms.weight.providerTools ? passesOf(x, terms) : 0
  const limit = outputLimit(x)
  const hidden = terms.reasoning === 'none' ? 0 : Math.max(limit === Infinity ? 0 : limit, hiddenOutput(x, terms))
  return { input: estimateInput(x, terms, 1) + passes * windowOf(x.model), output: x.delivered + hidden }
}

/** A report whose implausible part is cut to what is possible, though not below the estimate. */
export function bounded(reported: Usage, estimate: Usage, x: Billable, terms: Terms, capAtEstimate: boolean): Usage {
  const most = capAtEstimate ? { input: 0, output: 0 } : possible(x, terms)
  const output = plausibleOutput(reported, x, terms)
    ? reported.output
    : Math.max(estimate.output, Math.min(reported.output, most.output))
  const reasoning = Math.min(reported.reasoning, output)
  const told = inputTokens(reported)
  // What is too much is taken off where most was reported.
  let excess = plausibleInput(reported, x, terms)
    ? 0
    : told - Math.max(inputTokens(estimate), Math.min(told, most.input))
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
