/** What an exchange costs: the usage its upstream reported, or a marked estimate where it reported none worth believing. */
import type { Body } from '../body.ts'
import type { CountedUsage, Failure } from '../formats/index.ts'
import type { Exchange, Model, Outcome } from '../exchange.ts'
import { charge, inputTokens, NO_USAGE, tokensFor, type Price, type Usage } from './money.ts'

/** How text and media are turned into tokens where nobody counted them. */
export interface Rates {
  /** Output tokens that a balance must cover for a request to be admitted. */
  readonly leastOutput: number
  /** Output tokens that are held for a JSON reply that nothing limits. */
  readonly unlimitedOutput: number
  /** Tokens of one embedded image, sound or file. */
  readonly mediaTokens: number
  /** Bytes of text that an estimate counts as one token. */
  readonly bytesPerToken: number
}

/** What a bill is made from. */
export interface Billable extends Pick<Exchange, 'format' | 'delivered' | 'complete'> {
  readonly body: Body
  readonly model: Model
  readonly tally: { readonly failure: Failure | undefined; usage(): CountedUsage | undefined }
}

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

/** Two bytes of text are never less than one token in practice, so a hold on this many rarely falls short. */
const HOLD_BYTES_PER_TOKEN = 2
/** More bytes than this a token has only now and then, so that many more than a limit allows are beyond it. */
const MOST_BYTES_PER_TOKEN = 12
/** Reports beyond this many context windows are mistakes. */
const IMPLAUSIBLE_WINDOWS = 2
/** So is output of more than this many times what the request allowed: tools that run at the provider take several passes. */
const IMPLAUSIBLE_LIMITS = 10
/** Output tokens that are plausible whatever was asked for. */
const PLAUSIBLE_OUTPUT = 4096
/** Tokens of context that a model without a `context` of its own is taken to have. */
const LARGEST_WINDOW = 1_000_000

/** What a hold must be to cover all of the input and so many output tokens, each at its dearest, in nano-credits. */
export function holdFor({ body, model }: Billable, output: number, rates: Rates): bigint {
  return charge({ ...NO_USAGE, input: estimateInput(body, rates, HOLD_BYTES_PER_TOKEN), ...dearest(output, model.entry.price) }, model.entry.price)
}

/** How many output tokens a hold covers beside the input. */
export function outputOf(x: Billable, hold: bigint, rates: Rates): number {
  const { price } = x.model.entry
  return tokensFor(hold - holdFor(x, 0, rates), price.reasoning > price.output ? price.reasoning : price.output)
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

/** What has come so far and, on top of it, so many output tokens, in nano-credits. */
export function runningCharge(x: Billable, rates: Rates, ahead = 0): bigint {
  if (x.delivered === 0 && !x.tally.usage()) return 0n
  const usage = observed(x, rates)
  return charge({ ...usage, output: Math.max(usage.output, Math.min(usage.output + ahead, outputLimit(x))) }, x.model.entry.price)
}

/** The bill of an exchange that has ended. */
export function bill(x: Billable, outcome: Outcome, rates: Rates): Bill {
  const failed = outcome.kind === 'failed' || x.tally.failure !== undefined
  const reported = x.tally.usage()
  const nothing: Bill = { charge: 0n, billed: false, usage: NO_USAGE, source: 'upstream', quarantined: false, cost: reported?.cost, failed }
  if (outcome.kind === 'answered' || (outcome.kind === 'failed' && x.delivered === 0)) return nothing
  const clientLeft = outcome.kind === 'broken' && outcome.by === 'client'
  // What used a balance up was worth something, if only its input.
  const owed = clientLeft || (outcome.kind === 'broken' && outcome.by === 'budget')
  // A request that reached no upstream, and a reply that failed before it said anything, cost nothing.
  if (clientLeft && outcome.attempts.length === 0) return nothing
  const cut = failed || outcome.kind === 'broken'
  if (cut && !owed && x.delivered === 0) return nothing
  if (!cut && !reported && x.delivered === 0) return nothing
  const believable = reported?.sound === true && plausible(reported.usage, x)
  const quarantined = reported !== undefined && !believable
  // What was reported with the end of the reply is the whole truth, whether or not the client waited for it.
  if (believable && reported.whole && !failed && (!cut || x.complete)) return { ...nothing, ...priced(reported.usage, x), source: 'upstream' }
  return { ...nothing, ...priced(observed(x, rates), x), source: 'estimated', quarantined }
}

function priced(usage: Usage, x: Billable): Pick<Bill, 'billed' | 'usage' | 'charge'> {
  return { billed: true, usage, charge: charge(usage, x.model.entry.price) }
}

/** Output is priced as reasoning where that is dearer. */
function dearest(output: number, price: Price): Pick<Usage, 'output' | 'reasoning'> {
  return { output, reasoning: price.reasoning > price.output ? output : 0 }
}

/** The greater of what was reported so far and what the bytes on either side suggest. */
export function observed(x: Billable, rates: Rates): Usage {
  const estimate = estimateInput(x.body, rates, rates.bytesPerToken)
  const output = Math.min(Math.ceil(x.delivered / rates.bytesPerToken), outputLimit(x))
  const reported = x.tally.usage()
  if (!reported?.sound || !plausible(reported.usage, x)) return { ...NO_USAGE, input: estimate, output }
  // Input that was reported, from cache perhaps, is known better than any estimate of it.
  const known = inputTokens(reported.usage) > 0
  return { ...reported.usage, ...(!known && { input: estimate }), output: Math.max(reported.usage.output, output) }
}

function estimateInput(body: Body, rates: Rates, bytesPerToken: number): number {
  return Math.ceil((body.received.length - body.media.bytes) / bytesPerToken) + body.media.parts * rates.mediaTokens
}

function plausible(usage: Usage, x: Billable): boolean {
  const most = (x.model.entry.context ?? LARGEST_WINDOW) * IMPLAUSIBLE_WINDOWS
  const mostOutput = Math.min(most, Math.max(PLAUSIBLE_OUTPUT, outputLimit(x) * IMPLAUSIBLE_LIMITS))
  return inputTokens(usage) <= most && usage.output <= mostOutput
}
