/** Applies the limits of a key to a request: its input and its output. */
import { GatewayError } from '../errors.ts'
import type { BuiltInExchange, BuiltInWith } from '../exchange/built-in.ts'
import type { Hold } from '../ledger/hold.ts'
import { claimsIn } from '../plans/claims.ts'
import type { KeyLimits } from '../plans/limits.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import { estimateInput, outputLimit, type Terms } from './estimate.ts'

type Known = BuiltInExchange & BuiltInWith<'body' | 'model' | 'tally'>

/** Lowers the output limit of a request to the one of its key. @returns whether it was higher */
export function lowerOutput(x: Known, { maxOutput }: KeyLimits): boolean {
  if (maxOutput === undefined || outputLimit(x) <= maxOutput * x.format.choices(x.body)) return false
  x.format.limitOutput(x.body, maxOutput)
  return true
}

/**
 * Lowers the output limit of a request whose output costs nothing to what its windows of tokens have given. Its hold does not grow,
 * so nothing else would end it.
 * @returns whether it was higher
 */
export function lowerToTokens(x: Known, { claims, tokens }: Pick<Hold, 'claims' | 'tokens'>, output: number): boolean {
  const given = claimsIn(claims)
    .windows.filter(({ unit }) => unit === 't')
    .map(({ taken }) => Number(taken))
  if (given.length === 0) return false
  const choices = x.format.choices(x.body)
  const most = Math.max(1, Math.floor((output - (tokens - Math.min(tokens, ...given))) / choices))
  if (outputLimit(x) <= most * choices) return false
  x.format.limitOutput(x.body, most)
  return true
}

/** Throws GatewayError context_too_long if the input of a request is over the limit of its key. */
export function checkInput(x: Known, terms: Terms, { maxInput }: KeyLimits): void {
  if (maxInput === undefined) return
  const tokens = estimateInput(x, terms, SAFE_BYTES_PER_TOKEN)
  if (tokens <= maxInput) return
  throw new GatewayError('context_too_long', {
    message: `This request may have ${tokens} input tokens, and its key may send ${maxInput} at a time.`,
  })
}
