/** Prices as text: what a version stands for, what the store keeps, and what customers see. */
import { createHash } from 'node:crypto'

import {
  CALL_NAMES,
  CONDITION_NAMES,
  type CallName,
  type ConditionName,
  type Price,
  RATE_NAMES,
  type Rates,
} from './price.ts'
import { formatCredits, parseDecimal } from './credits.ts'

/** A price without its version. */
export type PriceNumbers = Omit<Price, 'version'>

/** A price with its version. */
export function versioned(numbers: PriceNumbers): Price {
  const text = JSON.stringify(priceText(numbers))
  return { ...numbers, version: createHash('sha256').update(text).digest('hex').slice(0, 12) }
}

/** The numbers of a price as JSON, which `priceFromText` reads. */
export function writePrice(price: Price): string {
  return JSON.stringify(priceText(price))
}

/** Reads a price that `writePrice` wrote. @throws SyntaxError or TypeError for anything else */
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

/** A price in decimals: what is stored for each version, and what customers see. */
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

/** Rates with their defaults filled in. @param of reads a rate by its name; undefined if it is not given */
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
  if (value === undefined) throw new TypeError(`${text} is not a plain decimal`)
  return value
}
