/** The rates of a key: how many requests and tokens a minute allows, and what is left of them. */
import type { KeyLimits } from './limits.ts'

/** A rate of a minute, and what is left of it. */
export interface RateNow {
  readonly unit: 'requests' | 'tokens'
  readonly limit: number | undefined
  readonly left: number
  /** Milliseconds until all of it is there again. */
  readonly fullInMs: number
}

const MINUTE_MS = 60_000

/** Returns the rates of a key. @param due when each is unused again, in milliseconds since the epoch */
export function ratesNow(
  { requestsPerMinute, tokensPerMinute }: KeyLimits,
  [requests, tokens]: readonly (string | number | undefined)[],
  now: number,
): readonly RateNow[] {
  const rate = (unit: RateNow['unit'], limit: number | undefined, due: string | number = 0): RateNow => {
    const fullInMs = Math.max(0, Number(due) - now)
    const left = limit === undefined ? 0 : Math.max(0, Math.floor((limit * (MINUTE_MS - fullInMs)) / MINUTE_MS + 1e-6))
    return { unit, limit, left, fullInMs }
  }
  return [rate('requests', requestsPerMinute, requests), rate('tokens', tokensPerMinute, tokens)]
}
