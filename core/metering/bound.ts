/** How far below zero a key can end: the part of a bill that no hold covers, of all requests that a key can have under way. */
import type { KeyType } from '../config/config.ts'
import { NANO } from '../money/credits.ts'
import type { Price, Rates } from '../money/price.ts'

/**
 * Seconds of a model's output that a stream can be charged beyond its hold: one until the clock is looked at again, one for the
 * upstream to stop, one for the store to answer; twice that, as bytes are counted as more tokens than they mostly are.
 */
export const UNCOVERED_S = 6

/**
 * The most that a key of the type can end below zero, in nano-credits, with upstreams that make no more tokens a second than is
 * declared, keep to limits, and count no more input than is held.
 * @param outputRate tokens a second of models that say none
 */
export function mostBelowZero({ concurrency, abandoned, models }: KeyType, outputRate: number): bigint {
  const dearest = [...models.values()].map(({ price, outputRate: own = outputRate }) => {
    const tokens = BigInt(Math.ceil(own * UNCOVERED_S))
    return (tokens * dearestRate(price) + PER - 1n) / PER
  })
  return BigInt(concurrency + abandoned) * dearest.reduce((most, each) => (each > most ? each : most), 0n)
}

const PER = 1_000_000n
const OUTPUT = [
  'output',
  'reasoning',
  'rejected',
  'audioOutput',
  'imageOutput',
] as const satisfies readonly (keyof Rates)[]

/** Nano-credits per million output tokens, of the dearest class, for the longest input and under the dearest conditions. */
function dearestRate(price: Price): bigint {
  const rates = [price, ...(price.tiers ?? [])].flatMap((each: Rates) => OUTPUT.map(name => each[name] ?? 0n))
  const factors = Object.values(price.factors).map(named => [...named.values(), NANO].reduce(larger))
  return factors.reduce((rate, factor) => (rate * factor + NANO - 1n) / NANO, rates.reduce(larger))
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}
