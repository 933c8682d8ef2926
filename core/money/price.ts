/**
 * Prices, and what usage costs. A price has a rate for each class of tokens, higher rates for long input, factors for
 * the conditions under which a provider serves a request, and fees for the tools that the provider runs. All arithmetic
 * is exact. A charge is rounded once, up.
 */
import { inputTokens, type Usage } from './usage.ts'
import { MAX_AMOUNT, NANO } from './credits.ts'

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
  /** Without a rate, such tokens are charged as `input` or `output`, and the history entry is marked `unpriced`. */
  readonly audioInput?: bigint
  readonly audioOutput?: bigint
  readonly imageOutput?: bigint
}

/** The names of the rates for output. */
export const OUTPUT_RATE_NAMES = [
  'output',
  'reasoning',
  'rejected',
  'audioOutput',
  'imageOutput',
] as const satisfies readonly (keyof Rates)[]

/** The names of the rates. Each is a setting of a price in gateway.yaml. */
export const RATE_NAMES = [
  'input',
  'cacheRead',
  'cacheWrite5m',
  'cacheWrite1h',
  'imageInput',
  'audioInput',
  ...OUTPUT_RATE_NAMES,
] as const satisfies readonly (keyof Rates)[]

/** The conditions that change a bill, as prices and history entries name them. */
export const CONDITION_NAMES = ['serviceTier', 'speed', 'inferenceGeo'] as const
/** A condition that changes a bill. */
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
/** A kind of tool that a provider bills by the call. */
export type CallName = (typeof CALL_NAMES)[number]

/** How often each kind of tool was run. */
export type Calls = Readonly<Partial<Record<CallName, number>>>

/** The conditions under which tokens were used, and the tools that the provider ran. */
export interface Conditions extends Readonly<Partial<Record<ConditionName, string>>> {
  readonly calls?: Calls
}

/** What an operator charges for a model. */
export interface Price extends Rates {
  /**
   * Rates for long input, by their threshold, lowest first; undefined if the file does not say. They hold for the whole
   * request.
   */
  readonly tiers: readonly Tier[] | undefined
  /**
   * Factors that all rates are multiplied by, in nano-units (`NANO` stands for 1). By condition, and by the name that a
   * reply reports.
   */
  readonly factors: Readonly<Partial<Record<ConditionName, ReadonlyMap<string, bigint>>>>
  /** Nano-credits for each call. */
  readonly calls: Readonly<Partial<Record<CallName, bigint>>>
  /** A name for exactly these numbers: the same numbers have the same version. */
  readonly version: string
}

/** Rates for long input. */
export interface Tier extends Rates {
  /** Input tokens, including cached ones, above which the rates hold. */
  readonly above: number
}

const PER = 1_000_000n

/** The rates that requests are held for. Input is held as if none of it came from a cache. */
const HELD_RATES = RATE_NAMES.filter(name => name !== 'cacheRead')

/** Names by which providers report that nothing special applied. */
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

/** Whether the plain rates apply under a condition of this name. */
export function isStandard(name: string | undefined): boolean {
  return name === undefined || STANDARD.has(name)
}

/**
 * How many whole tokens an amount pays for.
 * @param perMillion nano-credits for a million tokens
 * @returns Infinity if they are free
 */
export function tokensFor(nano: bigint, perMillion: bigint): number {
  if (perMillion === 0n) return Infinity
  return nano <= 0n ? 0 : Number((nano * PER) / perMillion)
}

/** A usage with its price. */
export interface PricedUsage {
  readonly usage: Usage
  readonly price: Price
  readonly conditions?: Conditions | undefined
}

/** A usage as it is billed. `model` is the upstream's name of the model, if that is not the one that was asked for. */
export interface BilledUsage extends PricedUsage {
  readonly model?: string
}

/**
 * What a usage costs, in nano-credits: the sum over classes and calls, rounded up once and capped at MAX_AMOUNT.
 * @throws RangeError if a count is not a whole number: usage must be checked before it is priced
 */
export function charge(usage: Usage, price: Price, conditions?: Conditions): bigint {
  // This runs for every piece of a stream, and nearly all usage is plain.
  return conditions === undefined ? rounded(costOfTokens(usage, price), PER) : chargeAll([{ usage, price, conditions }])
}

function least(...numbers: readonly bigint[]): bigint {
  return numbers.reduce((a, b) => (a < b ? a : b))
}

/**
 * What the smallest request costs at the cheapest of these prices, in nano-credits: one input token and one output
 * token.
 */
export function leastCharge(prices: readonly Price[]): bigint {
  return least(
    ...prices.map(({ input, cacheWrite5m, cacheWrite1h, output }) =>
      rounded(least(input, cacheWrite5m, cacheWrite1h) + output, PER),
    ),
  )
}

/**
 * What several usages of one request cost together, in nano-credits, rounded up once.
 * @throws RangeError as `charge` does
 */
export function chargeAll(usages: readonly PricedUsage[]): bigint {
  const [first] = usages
  if (usages.length === 1 && first && first.conditions === undefined)
    return rounded(costOfTokens(first.usage, first.price), PER)
  const parts = usages.map(({ usage, price, conditions = {} }) => {
    let exact = costOfTokens(usage, price)
    let per = PER
    for (const factor of factorsOf(price, conditions)) {
      exact *= factor
      per *= NANO
    }
    // Factors apply to tokens, and not to fees.
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

/** The rates for a request with this much input. */
export function ratesAt(price: Price, inputCount: number): Rates {
  if (price.tiers === undefined || price.tiers.length === 0) return price
  return price.tiers.findLast(({ above }) => inputCount > above) ?? price
}

/** The exact cost of the tokens, in millionths of a nano-credit. */
function costOfTokens(usage: Usage, price: Price): bigint {
  const rates = price.tiers === undefined || price.tiers.length === 0 ? price : ratesAt(price, inputTokens(usage))
  const { audioInput = 0, imageInput = 0, audioOutput = 0, imageOutput = 0, rejected = 0 } = usage
  let sum =
    times(usage.input - audioInput - imageInput, rates.input) +
    times(usage.cacheRead, rates.cacheRead) +
    times(usage.cacheWrite5m, rates.cacheWrite5m) +
    times(usage.cacheWrite1h, rates.cacheWrite1h) +
    times(usage.output - usage.reasoning - audioOutput - imageOutput - rejected, rates.output) +
    times(usage.reasoning, rates.reasoning)
  if (audioInput > 0) sum += times(audioInput, rateOf(rates, 'audioInput'))
  if (imageInput > 0) sum += times(imageInput, rates.imageInput)
  if (audioOutput > 0) sum += times(audioOutput, rateOf(rates, 'audioOutput'))
  if (imageOutput > 0) sum += times(imageOutput, rateOf(rates, 'imageOutput'))
  if (rejected > 0) sum += times(rejected, rates.rejected)
  return sum
}

/** Returns a rate. Media without a rate of their own cost what text costs. */
export function rateOf(rates: Rates, name: (typeof RATE_NAMES)[number]): bigint {
  return rates[name] ?? (name === 'audioInput' ? rates.input : rates.output)
}

/** Most classes are empty, and turning a number into a BigInt costs time. */
function times(tokens: number, rate: bigint): bigint {
  return tokens === 0 ? 0n : BigInt(tokens) * rate
}

/** The factors that apply under these conditions. A condition without a factor has none. */
export function factorsOf(price: Price, conditions: Conditions): bigint[] {
  return CONDITION_NAMES.flatMap(name => {
    const value = conditions[name]
    return value === undefined ? [] : (price.factors[name]?.get(value) ?? [])
  })
}

/**
 * Returns the greatest factor between two prices, over the rates and fees that a request is held for, in nano-units:
 * `NANO` stands for 1. Rates that are zero in the second price do not count.
 */
export function greatestFactor(price: Price, of: Price): bigint {
  const levels = [0, ...[...(price.tiers ?? []), ...(of.tiers ?? [])].map(({ above }) => above + 1)]
  const rates = levels.flatMap(level => {
    const [ours, theirs] = [ratesAt(price, level), ratesAt(of, level)]
    return HELD_RATES.map(name => [rateOf(ours, name), rateOf(theirs, name)] as const)
  })
  const pairs = [...rates, ...CALL_NAMES.map(name => [price.calls[name], of.calls[name]] as const)]
  const factor = pairs
    .map(([one = 0n, other = 0n]) => (other === 0n ? 0n : (one * NANO + other - 1n) / other))
    .reduce(greater, 0n)
  // A condition may be dearer in one price than in the other, or cheaper in the other.
  return CONDITION_NAMES.reduce((all, name) => {
    const [ours, theirs] = [price.factors[name], of.factors[name]]
    const each = [...(ours?.keys() ?? []), ...(theirs?.keys() ?? [])].map(value => {
      const [one, other] = [ours?.get(value) ?? NANO, theirs?.get(value) ?? NANO]
      return other === 0n ? NANO : (one * NANO + other - 1n) / other
    })
    return (all * each.reduce(greater, NANO) + NANO - 1n) / NANO
  }, factor)
}

function greater(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}

function feesOf({ calls: fees }: Price, calls: Calls = {}): bigint {
  return Object.entries(calls).reduce((sum, [name, count]) => sum + BigInt(count) * (fees[name as CallName] ?? 0n), 0n)
}

/**
 * What of a usage has no price: the names of the missing settings, such as `audioInput`, `serviceTier.flex` or
 * `calls.webSearch`.
 */
export function unpricedOf({ usage, price, conditions = {} }: PricedUsage): string[] {
  const rates = ratesAt(price, inputTokens(usage))
  const classes = (['audioInput', 'audioOutput', 'imageOutput'] as const).filter(
    name => (usage[name] ?? 0) > 0 && rates[name] === undefined,
  )
  const missing = CONDITION_NAMES.filter(
    name => !isStandard(conditions[name]) && !price.factors[name]?.has(conditions[name] ?? ''),
  )
  const calls = CALL_NAMES.filter(name => (conditions.calls?.[name] ?? 0) > 0 && price.calls[name] === undefined)
  return [
    ...classes,
    ...missing.map(name => `${name}.${String(conditions[name])}`),
    ...calls.map(name => `calls.${name}`),
  ]
}
