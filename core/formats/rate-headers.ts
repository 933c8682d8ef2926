/** The headers by which clients learn what is left of the rates of a key. */

/** A rate of a minute. */
export interface RateState {
  readonly unit: 'requests' | 'tokens'
  /** Undefined for no limit. */
  readonly limit: number | undefined
  readonly left: number
  /** Milliseconds until all of it is there again. */
  readonly fullInMs: number
}

function headersOf(
  rates: readonly RateState[],
  of: (rate: RateState, limit: number) => Record<string, string>,
): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const rate of rates) if (rate.limit !== undefined) Object.assign(headers, of(rate, rate.limit))
  return headers
}

/** Headers in the chat-completions and responses formats. */
export function openaiRateHeaders(rates: readonly RateState[]): Record<string, string> {
  return headersOf(rates, ({ unit, left, fullInMs }, limit) => ({
    [`x-ratelimit-limit-${unit}`]: String(limit),
    [`x-ratelimit-remaining-${unit}`]: String(left),
    [`x-ratelimit-reset-${unit}`]: fullInMs < 1000 ? `${Math.ceil(fullInMs)}ms` : `${Math.ceil(fullInMs / 1000)}s`,
  }))
}

/** Headers in the messages format. @param now milliseconds since the epoch */
export function messagesRateHeaders(rates: readonly RateState[], now: number): Record<string, string> {
  return headersOf(rates, ({ unit, left, fullInMs }, limit) => ({
    [`anthropic-ratelimit-${unit}-limit`]: String(limit),
    [`anthropic-ratelimit-${unit}-remaining`]: String(left),
    [`anthropic-ratelimit-${unit}-reset`]: new Date(Math.ceil((now + fullInMs) / 1000) * 1000).toISOString(),
  }))
}
