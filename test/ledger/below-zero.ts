/** How far a key's balance can fall below zero: the part of all its concurrent charges that no hold covers. */
import type { KeyType } from '../../core/config/config.ts'
import { NANO } from '../../core/money/credits.ts'
import { OUTPUT_RATE_NAMES, type Price, type Rates } from '../../core/money/price.ts'

/**
 * Seconds of a model's output that a stream may be charged beyond its hold: one second until the next check, one for
 * the upstream to stop, one for the store to answer; times two, since an estimate counts more tokens for the same bytes
 * than most text has.
 */
export const UNCOVERED_S = 6

/**
 * Returns how far a key of the type can fall below zero, in nano-credits, if its upstreams make no more tokens per
 * second than declared, observe output limits, and count no more input than is held.
 * @param outputRate tokens per second for models without a rate of their own
 */
export function mostBelowZero({ limits: { concurrency = 0 }, abandoned, models }: KeyType, outputRate: number): bigint {
  const dearest = [...models.values()].map(({ price, outputRate: own = outputRate }) => {
    const tokens = BigInt(Math.ceil(own * UNCOVERED_S))
    return (tokens * dearestRate(price) + PER - 1n) / PER
  })
  return BigInt(concurrency + abandoned) * dearest.reduce((most, each) => (each > most ? each : most), 0n)
}

/**
 * Returns how much further a key can fall below zero by tools that the provider runs, in nano-credits: in each reply by
 * one call that its balance did not cover, and by the pass that reads the results. Each reply has been held for a call
 * and a pass before, which are at least half as dear.
 * @param resultTokens of one call
 * @param balance what the key had, in nano-credits
 */
export function mostBelowZeroByTools(
  { limits: { concurrency = 0 }, abandoned, models }: KeyType,
  resultTokens: number,
  balance: bigint,
): bigint {
  const calls = [...models.values()].map(({ price, context = WINDOW }) => {
    const fees = Object.values(price.calls)
    if (fees.length === 0) return 0n
    const rates = [price, ...(price.tiers ?? [])]
    const fresh = rates.flatMap(each => [each.input, each.cacheWrite5m, each.cacheWrite1h]).reduce(larger)
    const again = rates.map(each => each.input).reduce(larger)
    return fees.reduce(larger) + (BigInt(resultTokens) * fresh + BigInt(context) * again + PER - 1n) / PER
  })
  const most = BigInt(concurrency + abandoned) * calls.reduce(larger)
  return most < 2n * balance ? most : 2n * balance
}

/** Context window of a model without one in the file, in tokens. */
const WINDOW = 1_000_000
const PER = 1_000_000n

/**
 * Returns the dearest rate in nano-credits per million output tokens: dearest class, longest input, dearest conditions.
 */
function dearestRate(price: Price): bigint {
  const rates = [price, ...(price.tiers ?? [])].flatMap((each: Rates) =>
    OUTPUT_RATE_NAMES.map(name => each[name] ?? 0n),
  )
  const factors = Object.values(price.factors).map(named => [...named.values(), NANO].reduce(larger))
  return factors.reduce((rate, factor) => (rate * factor + NANO - 1n) / NANO, rates.reduce(larger))
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}
