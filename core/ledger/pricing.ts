/** How an exchange's usage is priced: under which conditions, as which models, and what of it has no price. */
import type { ModelEntry } from '../config/config.ts'
import { type CountedUsage, type Format, mostCalls } from '../formats/index.ts'
import type { UsageTally } from '../formats/tally.ts'
import { callsHeld, type Extras } from './extras.ts'
import { hasMedia, NANO, type Usage } from './money.ts'
import { charge, chargeAll, CONDITION_NAMES, type Conditions, factorsOf, isStandard, type Price, type PricedUsage, ratesAt, unpricedOf } from './price.ts'

/** What prices depend on. */
export interface Pricing {
  readonly extras: Extras
  /** The price of another model of the same key type, by the upstream's name of it. */
  readonly priceOf: (model: string) => Price | undefined
}

/** What a reply has told of itself so far. */
export type Told = Pick<UsageTally, 'calls' | 'model' | 'serviceTier'> & { usage(): CountedUsage | undefined }

/** A usage as it is billed; `model` is the upstream's name where it is another than was asked for. */
export interface BilledUsage extends PricedUsage {
  readonly model?: string
}

/**
 * The conditions that a reply is priced under: those it has told of, and until then the dearest that were asked for.
 * @returns undefined for the plain rates
 */
export function conditionsOf(tally: Told, { extras }: Pricing): Conditions | undefined {
  const { serviceTier } = tally
  const counted = tally.usage()?.conditions
  const told = serviceTier === undefined ? counted : { serviceTier, ...counted }
  // Nearly all replies are plain, and are priced for every piece of a stream.
  if (!told && !tally.calls && !extras.leastCalls && !extras.conditions) return undefined
  const calls = mostCalls(tally.calls, extras.leastCalls)
  const named = CONDITION_NAMES.flatMap(name => {
    const value = told?.[name] ?? extras.conditions?.[name]
    return value === undefined || isStandard(value) ? [] : [[name, value]]
  })
  return named.length === 0 && !calls ? undefined : { ...Object.fromEntries(named), ...(calls && { calls }) }
}

/** The usage of a reply as it is billed, in the passes that its upstream told apart. */
export function billed(usage: Usage, entry: ModelEntry, tally: Told, pricing: Pricing, passes: CountedUsage['passes']): readonly BilledUsage[] {
  const conditions = conditionsOf(tally, pricing)
  const server = tally.model === undefined ? undefined : pricing.extras.models.get(tally.model)
  const own: BilledUsage = { usage, price: server?.price ?? entry.price, ...(server && { model: server.sends }), ...(conditions && { conditions }) }
  if (!passes) return [own]
  // Calls are counted once, for all passes.
  const { calls: _calls, ...rest } = conditions ?? {}
  return passes.map((pass, index) => {
    const other = pass.model === undefined ? undefined : pricing.priceOf(pass.model)
    return {
      usage: pass.usage,
      price: other ?? own.price,
      ...(pass.model === undefined ? own.model !== undefined && { model: own.model } : { model: pass.model }),
      ...(conditions && { conditions: index === 0 ? conditions : rest }),
    }
  })
}

/** What of a billed usage has no price: the names of counters, conditions, calls and models. */
export function unpriced(parts: readonly BilledUsage[], { priceOf }: Pricing, unknown: readonly string[] = NONE): readonly string[] {
  if (unknown.length === 0 && parts.every(({ usage, conditions, model }) => !conditions && model === undefined && !hasMedia(usage))) return NONE
  const models = parts.flatMap(({ model }) => (model === undefined || priceOf(model) ? [] : [`model ${model}`]))
  return [...new Set([...parts.flatMap(unpricedOf), ...models, ...unknown])]
}

/**
 * The pricing of a reply that is cut short. Each tool that its provider may run counts as run once, where the reply has not begun to
 * tell of its calls.
 */
export function asCut<P extends Pricing>({ delivered, format }: { readonly delivered: number; readonly format: Format }, pricing: P): P {
  const { extras } = pricing
  if (extras.tools.length === 0 || (format.tellsCalls && delivered > 0)) return pricing
  return { ...pricing, extras: { ...extras, leastCalls: callsHeld(extras, 1) } }
}

const NONE: readonly string[] = []

/** What a usage costs on the way, before anything is final. */
export function chargeSoFar(usage: Usage, price: Price, tally: Told, pricing: Pricing): bigint {
  return charge(usage, price, conditionsOf(tally, pricing))
}

/**
 * What a usage may cost at most: under the dearest conditions asked for, with the calls that are held for, and with each other
 * model that may be asked.
 * @param most calls of a tool where the request does not bound them
 */
export function dearestCharge(usage: Usage, price: Price, { extras }: Pricing, most: number): bigint {
  const { conditions, tools, leastCalls, models } = extras
  const calls = tools.length === 0 && !leastCalls ? undefined : callsHeld(extras, most)
  const under = conditions || calls ? { ...conditions, ...(calls && { calls }) } : undefined
  if (models.size === 0) return charge(usage, price, under)
  return chargeAll([{ usage, price, conditions: under }, ...[...models.values()].map(other => ({ usage, price: other.price, conditions }))])
}

/** Output tokens priced as the dearest class that they may be. */
export function dearestOutput(output: number, price: Price, { media }: Extras): Pick<Usage, 'output' | 'reasoning' | 'audioOutput' | 'imageOutput'> {
  const named = media.map(name => ({ name, rate: price[name] ?? price.output }))
  const [dearest] = [...named, { name: 'reasoning' as const, rate: price.reasoning }, { name: 'output' as const, rate: price.output }].sort((a, b) =>
    a.rate > b.rate ? -1 : a.rate < b.rate ? 1 : 0,
  )
  const plain = { output, reasoning: 0 }
  return dearest === undefined || dearest.rate === price.output || dearest.name === 'output' ? plain : { ...plain, [dearest.name]: output }
}

/** Nano-credits per million output tokens at their dearest, for a request with so much input; rounded up. */
export function outputRate(price: Price, inputCount: number, { extras }: Pricing): bigint {
  const rates = ratesAt(price, inputCount)
  const classes = [rates.output, rates.reasoning, ...extras.media.map(name => rates[name] ?? rates.output)]
  const most = classes.reduce((a, b) => (a > b ? a : b))
  return factorsOf(price, extras.conditions ?? {}).reduce((rate, factor) => (rate * factor + NANO - 1n) / NANO, most)
}
