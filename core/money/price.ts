/**
 * Prices, and what usage costs at them. A price has rates for each class of tokens, higher rates for long input, factors for the
 * conditions under which a provider serves a request, and fees for tools that the provider runs. All arithmetic is exact; a request is
 * rounded once, up.
 */
import { createHash } from 'node:crypto'
import { inputTokens, type Usage } from './usage.ts'
import { formatCredits, MAX_AMOUNT, NANO, parseDecimal } from './credits.ts'

/** Nano-credits per million tokens, by class. */
export interface Rates {
  readonly input: bigint
  readonly output: bigint
  /** Defaults to `input`. */
  readonly cacheRead: bigint
  /** Defaults to `input`. */
  readonly cacheWrite5m: bigint
  /** Defaults to `cacheWrite5m`. */
  readonly cacheWrite1h: bigint
  /** Defaults to `output`. */
  readonly reasoning: bigint
  /** Defaults to `output`. */
  readonly rejected: bigint
  /** Defaults to `input`: most providers count images as input. */
  readonly imageInput: bigint
  /** Without a rate, such tokens are charged as `input` or `output`, and the entry is marked `unpriced`. */
  readonly audioInput?: bigint
  readonly audioOutput?: bigint
  readonly imageOutput?: bigint
}

/** The names of `Rates`: each is a setting of a price in gateway.yaml. */
export const RATE_NAMES = [
  'input',
  'cacheRead',
  'cacheWrite5m',
  'cacheWrite1h',
  'imageInput',
  'audioInput',
  'output',
  'reasoning',
  'rejected',
  'audioOutput',
  'imageOutput',
] as const satisfies readonly (keyof Rates)[]

/** The conditions under which a provider serves a request and that change its bill, as prices and entries name them. */
export const CONDITION_NAMES = ['serviceTier', 'speed', 'inferenceGeo'] as const
export type ConditionName = (typeof CONDITION_NAMES)[number]

/** The kinds of tools that a provider runs and bills by the call. */
export const CALL_NAMES = [
  'webSearch',
  'webFetch',
  'fileSearch',
  'codeExecution',
  'imageGeneration',
  'mcp',
  'otherTools',
] as const
export type CallName = (typeof CALL_NAMES)[number]

/** How often each kind of tool was run. */
export type Calls = Readonly<Partial<Record<CallName, number>>>

/** Under which conditions tokens were used, and which tools the provider ran. */
export interface Conditions extends Readonly<Partial<Record<ConditionName, string>>> {
  readonly calls?: Calls
}

/** What an operator charges for a model. */
export interface Price extends Rates {
  /** Rates of a whole request whose input is above so many tokens, lowest first; undefined where the file does not say. */
  readonly tiers: readonly Tier[] | undefined
  /** Factors in nano-units (`NANO` is one) that all rates are multiplied by, by condition and the name it is reported by. */
  readonly factors: Readonly<Partial<Record<ConditionName, ReadonlyMap<string, bigint>>>>
  /** Nano-credits for one call. */
  readonly calls: Readonly<Partial<Record<CallName, bigint>>>
  /** Stands for all of these numbers: the same numbers have the same version. */
  readonly version: string
}

/** Rates for long input. */
export interface Tier extends Rates {
  /** Input tokens, cached ones included. */
  readonly above: number
}

const PER = 1_000_000n

/** Names by which providers report that nothing special applied, or was asked for. */
const STANDARD: ReadonlySet<string> = new Set([
  'default',
  'standard',
  'auto',
  'standard_only',
  'on_demand',
  'global',
  'not_available',
  '',
])

/** Whether a condition's name stands for what the plain rates are for. */
export function isStandard(name: string | undefined): boolean {
  return name === undefined || STANDARD.has(name)
}

/** How many whole tokens an amount pays for, at nano-credits for a million; Infinity when they are free. */
export function tokensFor(nano: bigint, perMillion: bigint): number {
  if (perMillion === 0n) return Infinity
  return nano <= 0n ? 0 : Number((nano * PER) / perMillion)
}

/** A usage with the price it has. */
export interface PricedUsage {
  readonly usage: Usage
  readonly price: Price
  readonly conditions?: Conditions | undefined
}

/** A usage as it is billed; `model` is the upstream's name where it is another than was asked for. */
export interface BilledUsage extends PricedUsage {
  readonly model?: string
}

/**
 * What a usage costs in nano-credits: the sum over classes and calls, rounded up once and capped at MAX_AMOUNT.
 * @throws RangeError when a count is no whole number of tokens: usage is checked before it is priced
 */
export function charge(usage: Usage, price: Price, conditions?: Conditions): bigint {
  // Nearly all usage is plain, and is priced for every piece of a stream.
  return conditions === undefined ? rounded(tokensOf(usage, price), PER) : chargeAll([{ usage, price, conditions }])
}

function least(...numbers: readonly bigint[]): bigint {
  return numbers.reduce((a, b) => (a < b ? a : b))
}

/** What the smallest request costs at the cheapest of these prices, in nano-credits: one token of input and one of output. */
export function leastCharge(prices: readonly Price[]): bigint {
  return least(
    ...prices.map(({ input, cacheWrite5m, cacheWrite1h, output }) =>
      rounded(least(input, cacheWrite5m, cacheWrite1h) + output, PER),
    ),
  )
}

/** What several usages of one request cost together, rounded up once. @throws RangeError as `charge` does */
export function chargeAll(usages: readonly PricedUsage[]): bigint {
  const [first] = usages
  if (usages.length === 1 && first && first.conditions === undefined)
    return rounded(tokensOf(first.usage, first.price), PER)
  const parts = usages.map(({ usage, price, conditions = {} }) => {
    let exact = tokensOf(usage, price)
    let per = PER
    for (const factor of factorsOf(price, conditions)) {
      exact *= factor
      per *= NANO
    }
    // Factors are for tokens: a call costs what it costs.
    return { exact: exact + feesOf(price, conditions.calls) * per, per }
  })
  const per = parts.reduce((most, part) => (part.per > most ? part.per : most), PER)
  return rounded(
    parts.reduce((sum, part) => sum + part.exact * (per / part.per), 0n),
    per,
  )
}

function rounded(exact: bigint, per: bigint): bigint {
  const nano = (exact + per - 1n) / per
  return nano > MAX_AMOUNT ? MAX_AMOUNT : nano
}

/** The rates that a request with so much input is charged at. */
export function ratesAt(price: Price, inputCount: number): Rates {
  if (price.tiers === undefined || price.tiers.length === 0) return price
  return price.tiers.findLast(({ above }) => inputCount > above) ?? price
}

/** Nano-credits, times a million. */
function tokensOf(usage: Usage, price: Price): bigint {
  const rates = price.tiers === undefined || price.tiers.length === 0 ? price : ratesAt(price, inputTokens(usage))
  const { audioInput = 0, imageInput = 0, audioOutput = 0, imageOutput = 0, rejected = 0 } = usage
  let sum =
    times(usage.input - audioInput - imageInput, rates.input) +
    times(usage.cacheRead, rates.cacheRead) +
    times(usage.cacheWrite5m, rates.cacheWrite5m) +
    times(usage.cacheWrite1h, rates.cacheWrite1h) +
    times(usage.output - usage.reasoning - audioOutput - imageOutput - rejected, rates.output) +
    times(usage.reasoning, rates.reasoning)
  if (audioInput > 0) sum += times(audioInput, rates.audioInput ?? rates.input)
  if (imageInput > 0) sum += times(imageInput, rates.imageInput)
  if (audioOutput > 0) sum += times(audioOutput, rates.audioOutput ?? rates.output)
  if (imageOutput > 0) sum += times(imageOutput, rates.imageOutput ?? rates.output)
  if (rejected > 0) sum += times(rejected, rates.rejected)
  return sum
}

/** Most classes are empty, and a number is turned into a BigInt at some cost. */
function times(tokens: number, rate: bigint): bigint {
  return tokens === 0 ? 0n : BigInt(tokens) * rate
}

/** The factors that apply under some conditions; a condition without a factor has none. */
export function factorsOf(price: Price, conditions: Conditions): bigint[] {
  return CONDITION_NAMES.flatMap(name => {
    const told = conditions[name]
    return told === undefined ? [] : (price.factors[name]?.get(told) ?? [])
  })
}

function feesOf({ calls: fees }: Price, calls: Calls = {}): bigint {
  return Object.entries(calls).reduce((sum, [name, count]) => sum + BigInt(count) * (fees[name as CallName] ?? 0n), 0n)
}

/** What of a usage has no price of its own, by the names of the settings that are missing: `audioInput`, `serviceTier.flex`, `calls.webSearch`. */
export function unpricedOf({ usage, price, conditions = {} }: PricedUsage): string[] {
  const rates = ratesAt(price, inputTokens(usage))
  const classes = (['audioInput', 'audioOutput', 'imageOutput'] as const).filter(
    name => (usage[name] ?? 0) > 0 && rates[name] === undefined,
  )
  const told = CONDITION_NAMES.filter(
    name => !isStandard(conditions[name]) && !price.factors[name]?.has(conditions[name] ?? ''),
  )
  const calls = CALL_NAMES.filter(name => (conditions.calls?.[name] ?? 0) > 0 && price.calls[name] === undefined)
  return [...classes, ...told.map(name => `${name}.${String(conditions[name])}`), ...calls.map(name => `calls.${name}`)]
}

/** A price without its version. */
export type PriceNumbers = Omit<Price, 'version'>

/** A price with the version that its numbers have. */
export function versioned(numbers: PriceNumbers): Price {
  const text = JSON.stringify(priceText(numbers))
  return { ...numbers, version: createHash('sha256').update(text).digest('hex').slice(0, 12) }
}

/** The numbers of a price as JSON that `priceFromText` reads: plain decimals, in credits. */
export function writePrice(price: Price): string {
  return JSON.stringify(priceText(price))
}

/** A price from what `writePrice` wrote. @throws SyntaxError, TypeError for anything else */
export function priceFromText(text: string): Price {
  const { tiers, factors, calls, ...rates } = JSON.parse(text) as PriceText
  return versioned({
    ...readRates(rates),
    tiers: tiers?.map(({ above, ...own }) => ({ above, ...readRates(own) })),
    factors: Object.fromEntries(
      Object.entries(factors).map(([name, named]) => [
        name,
        new Map(Object.entries(named).map(([key, value]) => [key, nano(value)])),
      ]),
    ),
    calls: Object.fromEntries(Object.entries(calls).map(([name, value]) => [name, nano(value)])),
  })
}

/** Rates in credits per million tokens, as decimals. */
export type RatesText = Partial<Record<keyof Rates, string>>

/** A price in decimals: what is kept of each version, and what customers are shown. */
export interface PriceText extends RatesText {
  readonly tiers?: readonly (RatesText & { readonly above: number })[]
  readonly factors: Partial<Record<ConditionName, Record<string, string>>>
  readonly calls: Partial<Record<CallName, string>>
}

/** The numbers of a price as decimals, in a fixed order. */
export function priceText({ tiers, factors, calls, ...rates }: PriceNumbers): PriceText {
  return {
    ...ratesText(rates),
    ...(tiers && { tiers: tiers.map(tier => ({ above: tier.above, ...ratesText(tier) })) }),
    factors: Object.fromEntries(
      CONDITION_NAMES.flatMap(name => (factors[name] ? [[name, sorted(factors[name])]] : [])),
    ),
    calls: Object.fromEntries(
      CALL_NAMES.flatMap(name => (calls[name] === undefined ? [] : [[name, formatCredits(calls[name])]])),
    ),
  }
}

function sorted(map: ReadonlyMap<string, bigint>): Record<string, string> {
  return Object.fromEntries(
    [...map].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, formatCredits(value)]),
  )
}

/** Rates as decimals, in a fixed order. */
export function ratesText(rates: Rates): RatesText {
  return Object.fromEntries(
    RATE_NAMES.flatMap(name => (rates[name] === undefined ? [] : [[name, formatCredits(rates[name])]])),
  )
}

/** Rates with what they fall back to. @param of a rate by its name; undefined where none is given */
export function ratesOf(of: (name: keyof Rates) => bigint | undefined): Rates {
  const input = of('input') ?? 0n
  const output = of('output') ?? 0n
  const cacheWrite5m = of('cacheWrite5m') ?? input
  const [audioInput, audioOutput, imageOutput] = [of('audioInput'), of('audioOutput'), of('imageOutput')]
  return {
    input,
    output,
    cacheRead: of('cacheRead') ?? input,
    cacheWrite5m,
    cacheWrite1h: of('cacheWrite1h') ?? cacheWrite5m,
    reasoning: of('reasoning') ?? output,
    rejected: of('rejected') ?? output,
    imageInput: of('imageInput') ?? input,
    ...(audioInput !== undefined && { audioInput }),
    ...(audioOutput !== undefined && { audioOutput }),
    ...(imageOutput !== undefined && { imageOutput }),
  }
}

function readRates(rates: RatesText): Rates {
  return ratesOf(name => (rates[name] === undefined ? undefined : nano(rates[name])))
}

function nano(text: string): bigint {
  const value = parseDecimal(text)
  if (value === undefined) throw new TypeError(`${text} is no plain decimal`)
  return value
}
