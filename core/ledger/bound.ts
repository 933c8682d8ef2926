/** How far below zero a key can end: the part of a bill that no hold covers, of all requests that a key can have under way. */
import type { KeyType } from '../config/config.ts'
import { charge, NO_USAGE } from './money.ts'

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
    const tokens = Math.ceil(own * UNCOVERED_S)
    return charge({ ...NO_USAGE, output: tokens, reasoning: price.reasoning > price.output ? tokens : 0 }, price)
  })
  return BigInt(concurrency + abandoned) * dearest.reduce((most, each) => (each > most ? each : most), 0n)
}
