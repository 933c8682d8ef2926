/** How an exchange's usage is priced: the conditions, the models, and the items without a price. */
import type { ModelEntry } from '../config/config.ts'
import type { CountedUsage, Format } from '../formats/index.ts'
import type { UsageTally } from '../formats/tally.ts'
import type { Extras } from '../exchange/built-in.ts'
import { type HeldCalls, mostBelieved, oneOfEach } from './extras.ts'
import { hasMedia, NO_USAGE, type Usage } from '../money/usage.ts'
import { NANO } from '../money/credits.ts'
import {
  type BilledUsage,
  CALL_NAMES,
  type CallName,
  type Calls,
  charge,
  chargeAll,
  CONDITION_NAMES,
  type Conditions,
  factorsOf,
  isStandard,
  type Price,
  ratesAt,
  unpricedOf,
} from '../money/price.ts'

/** What prices depend on. */
export interface Pricing {
  readonly extras: Extras
  /** Calls that count in addition to those that a reply reports. */
  readonly furtherCalls?: Calls | undefined
  /** Returns a model of the same key type, by the upstream's name of it. */
  readonly entryOf: (model: string) => ModelEntry | undefined
}

/** What a reply has reported about itself so far. */
export type ReportedSoFar = Pick<
  UsageTally,
  'calls' | 'advice' | 'model' | 'openCalls' | 'passes' | 'rounds' | 'serviceTier' | 'unread'
> & {
  usage(): CountedUsage | undefined
}

/**
 * Returns the conditions for pricing a reply: the reported ones, or the dearest requested ones until it reports any.
 * @returns undefined for the plain rates
 */
function conditionsOf(tally: ReportedSoFar, pricing: Pricing): Conditions | undefined {
  const { extras, furtherCalls } = pricing
  const { serviceTier } = tally
  const counted = tally.usage()?.conditions
  const reported = serviceTier === undefined ? counted : { serviceTier, ...counted }
  const seen = tally.calls(extras.tools)
  if (!reported && !seen && !extras.leastCalls && !furtherCalls && !extras.conditions) return undefined
  const conditions: { -readonly [K in keyof Conditions]: Conditions[K] } = {}
  let plain = true
  for (const name of CONDITION_NAMES) {
    const value = reported?.[name] ?? extras.conditions?.[name]
    if (value === undefined || isStandard(value)) continue
    conditions[name] = value
    plain = false
  }
  const calls = seen || extras.leastCalls || furtherCalls ? callsBilled(seen, pricing) : undefined
  if (calls) conditions.calls = calls
  return plain && !calls ? undefined : conditions
}

/** Returns the calls to charge: the known plausible ones, or the minimum if none are known. Undefined for none. */
function callsBilled(seen: Calls | undefined, { extras, furtherCalls }: Pricing): Calls | undefined {
  const counts = CALL_NAMES.flatMap(kind => {
    const shown = (seen?.[kind] ?? extras.leastCalls?.[kind] ?? 0) + (furtherCalls?.[kind] ?? 0)
    const count = Math.min(shown, mostBelieved(extras, kind))
    return count > 0 ? [[kind, count]] : []
  })
  return counts.length === 0 ? undefined : Object.fromEntries(counts)
}

/** Returns whether a reply can have made as many calls as it reports. */
export function plausibleCalls(tally: ReportedSoFar, { extras }: Pricing): boolean {
  return Object.entries(tally.calls(extras.tools) ?? {}).every(
    ([kind, count]) => count <= mostBelieved(extras, kind as CallName),
  )
}

/** Returns the usage of a reply as billed, in the passes that its upstream reported separately. */
export function billed(
  { usage, passes }: Pick<CountedUsage, 'usage' | 'passes'>,
  entry: ModelEntry,
  tally: ReportedSoFar,
  pricing: Pricing,
): readonly BilledUsage[] {
  const conditions = conditionsOf(tally, pricing)
  const { models } = pricing.extras
  const answered = otherServer(entry, tally, pricing)
  const isAsked = tally.model === undefined || entry.answers.has(tally.model)
  const name = models.size > 0 && !isAsked ? tally.model : undefined
  const allowed = name === undefined ? undefined : entryNamed([entry, ...models.values()], name)
  // If another model may answer, an unknown one is reported.
  const strange = allowed || answered ? undefined : name
  const partsOf = (server: ModelEntry): readonly BilledUsage[] => {
    const model = strange ?? (server === entry ? undefined : server.sends)
    const own = { usage, price: server.price, ...(model !== undefined && { model }), ...(conditions && { conditions }) }
    if (!passes) return [own]
    // Calls are counted once for all passes.
    const { calls: _calls, ...rest } = conditions ?? {}
    return passes.map((pass, index) => ({
      ...own,
      usage: pass.usage,
      ...(pass.model !== undefined && { model: pass.model, price: pricing.entryOf(pass.model)?.price ?? own.price }),
      ...(conditions && { conditions: index === 0 ? conditions : rest }),
    }))
  }
  const asked = partsOf(allowed ?? entry)
  const other = !allowed && answered ? partsOf(answered) : asked
  // Each pass has a tier of its own, and some models are paid apart, so the whole is compared.
  return other !== asked && chargeAll(other) < chargeAll(asked) ? other : asked
}

/**
 * Returns the model that a reply names in place of the one that was asked for: another one of the key type, which the same upstream
 * serves. Undefined if it names the one that was asked for, or an unknown one.
 */
export function otherServer(
  entry: ModelEntry,
  { model: name }: Pick<ReportedSoFar, 'model'>,
  { entryOf, extras }: Pricing,
): ModelEntry | undefined {
  // Nearly every reply names the model that was asked for.
  if (name === undefined || name === entry.sends || entry.answers.has(name)) return undefined
  // One that the request itself allows has its own price.
  if (extras.models.size > 0 && entryNamed([...extras.models.values()], name)) return undefined
  const named = entryOf(name)
  if (!named || named === entry || named.sends === entry.sends) return undefined
  return named.upstreams.some(upstream => entry.upstreams.includes(upstream)) ? named : undefined
}

/** Returns what of a billed usage has no price: the names of counters, conditions, calls and models. */
export function unpriced(parts: readonly BilledUsage[], { entryOf }: Pricing): readonly string[] {
  if (parts.every(({ usage, conditions, model }) => !conditions && model === undefined && !hasMedia(usage))) return NONE
  const models = parts.flatMap(({ model }) => (model === undefined || entryOf(model) ? [] : [`model ${model}`]))
  return [...new Set([...parts.flatMap(unpricedOf), ...models])]
}

/** Whether a reply has shown nothing yet: neither text nor a call. A call may have begun all the same. */
export function hasShownNothing({
  delivered,
  tally,
}: {
  readonly delivered: number
  readonly tally: Pick<ReportedSoFar, 'passes'>
}): boolean {
  return delivered === 0 && tally.passes === 1
}

/**
 * Returns the pricing of a cancelled reply. Calls that have begun count, and one of each kind if the reply has not yet
 * begun to report its calls.
 */
export function asCancelled<P extends Pricing>(
  { delivered, format, tally }: { readonly delivered: number; readonly format: Format; readonly tally: ReportedSoFar },
  pricing: P,
): P {
  const { extras } = pricing
  if (extras.tools.length === 0) return pricing
  const furtherCalls = tally.openCalls
  const isTold = format.reportsCalls && !hasShownNothing({ delivered, tally })
  if (isTold) return furtherCalls ? { ...pricing, furtherCalls } : pricing
  return { ...pricing, furtherCalls, extras: { ...extras, leastCalls: oneOfEach(extras) } }
}

/** Output tokens of one piece of advice, if its model has not reported them. */
const ADVICE_TOKENS = 1000

/** Returns how often a reply has requested advice, or may have. */
export function adviceAsked({
  delivered,
  tally,
}: {
  readonly delivered: number
  readonly tally: ReportedSoFar
}): number {
  return Math.max(tally.advice, delivered === 0 ? 1 : 0)
}

/**
 * Returns the cost of advice before its models report it: all of the input each time, at the dearest model.
 * @param input tokens that the advisor reads
 * @param asked how often it was requested
 */
export function adviceOf(input: number, asked: number, { extras: { advisors } }: Pricing): readonly BilledUsage[] {
  if (advisors.length === 0 || asked === 0) return NONE
  const parts = advisors.map(({ entry: { price, sends }, most }) => {
    const times = Math.min(asked, most)
    const advice = { ...NO_USAGE, input: input * times, output: ADVICE_TOKENS * times }
    return { usage: advice, price, model: sends }
  })
  return [parts.reduce((a, b) => (chargeAll([b]) > chargeAll([a]) ? b : a))]
}

const NONE: readonly never[] = []

/** Finds a model by the upstream's name of it, with or without a suffix that the upstream adds, such as a date. */
export function entryNamed(entries: Iterable<ModelEntry>, name: string): ModelEntry | undefined {
  const begins = [...entries].filter(
    ({ sends }) => name === sends || (name.startsWith(sends) && /^[-@:]\d/.test(name.slice(sends.length))),
  )
  return begins.sort((a, b) => b.sends.length - a.sends.length)[0]
}

/**
 * Returns the most that a usage may cost: under the dearest conditions, with the held calls, images and advice, and
 * with every other model that may answer.
 * @param pass what an advisor reads and may write each time
 * @param imageTokens output tokens of one image that a tool creates
 */
export function dearestCharge(
  { usage, pass, price }: { readonly usage: Usage; readonly pass: Usage; readonly price: Price },
  { extras }: Pricing,
  { calls, advice }: HeldCalls,
  imageTokens: number,
): bigint {
  const { held, models } = extras
  const under = held || calls ? { ...held, ...(calls && { calls }) } : undefined
  if (models.size === 0 && !calls?.imageGeneration) return charge(usage, price, under)
  const advisors = new Set(advice.map(([entry]) => entry))
  const servers = [...models.values()].filter(entry => !advisors.has(entry)).map(entry => ({ usage, entry }))
  const advised = advice.map(([entry, times]) => ({ usage: multiplied(pass, times), entry }))
  const others = [...servers, ...advised].map(({ usage, entry }) => ({ usage, price: entry.price, conditions: held }))
  return chargeAll([{ usage, price, conditions: under }, ...others, ...images(calls, price, imageTokens)])
}

/** Counts the images that a tool creates as output tokens. */
export function images(calls: Calls | undefined, price: Price, imageTokens: number): readonly BilledUsage[] {
  const output = (calls?.imageGeneration ?? 0) * imageTokens
  return output === 0 ? NONE : [{ usage: { ...NO_USAGE, output, imageOutput: output }, price }]
}

function multiplied(usage: Usage, times: number): Usage {
  return times === 1
    ? usage
    : (Object.fromEntries(
        Object.entries(usage).map(([name, count]) => [name, (count as number) * times]),
      ) as unknown as Usage)
}

/** Classifies output tokens as the dearest class that they may belong to. */
export function dearestOutput(
  output: number,
  price: Price,
  { media }: Extras,
): Pick<Usage, 'output' | 'reasoning' | 'audioOutput' | 'imageOutput'> {
  const named = media.map(name => ({ name, rate: price[name] ?? price.output }))
  const dearest = [...named, { name: 'reasoning' as const, rate: price.reasoning }].reduce((a, b) =>
    b.rate > a.rate ? b : a,
  )
  const plain = { output, reasoning: 0 }
  return dearest.rate > price.output ? { ...plain, [dearest.name]: output } : plain
}

/**
 * Returns the rate to hold for, in nano-credits per million output tokens, for a request with this much input. Rounded
 * up.
 */
export function outputRate(price: Price, inputCount: number, { extras }: Pricing): bigint {
  const { held, media, models } = extras
  return [price, ...[...models.values()].map(other => other.price)].reduce((sum, each) => {
    const rates = ratesAt(each, inputCount)
    const classes = [rates.output, rates.reasoning, ...media.map(name => rates[name] ?? rates.output)]
    const most = classes.reduce((a, b) => (a > b ? a : b))
    return sum + factorsOf(each, held ?? {}).reduce((rate, factor) => (rate * factor + NANO - 1n) / NANO, most)
  }, 0n)
}
