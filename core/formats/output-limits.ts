/** The members by which requests limit their output. */
import type { Body } from './body.ts'
import { positive } from './json.ts'

/** The limits of all formats. An upstream may use any of them. */
const LIMITS = ['max_completion_tokens', 'max_tokens', 'max_output_tokens'] as const

type Limit = (typeof LIMITS)[number]

/** The largest limit of a request, if it has one of its format's own. */
export function largestLimit(...own: readonly Limit[]): (body: Pick<Body, 'get'>) => number | undefined {
  return body => {
    // The upstreams of the format ignore the limits of others.
    if (own.every(name => positive(body.get(name)) === undefined)) return undefined
    return Math.max(...LIMITS.map(name => positive(body.get(name)) ?? 0))
  }
}

/** Sets every limit that a request has, and the one named `name`. */
export function setLimits(body: Body, tokens: number, name: Limit): void {
  const present = new Set(LIMITS.filter(limit => positive(body.get(limit)) !== undefined))
  // The format's own limit is set in any case, unless it is there under its other name.
  if (name !== 'max_completion_tokens' || !present.has('max_tokens')) present.add(name)
  for (const limit of present) if (body.get(limit) !== tokens) body.set(limit, tokens)
}

/** Sets all limits of a request to the largest: which of them an upstream uses is not known. */
export function levelLimits(body: Body, limit: number | undefined): void {
  if (limit === undefined) return
  for (const name of LIMITS)
    if (positive(body.get(name)) !== undefined && body.get(name) !== limit) body.set(name, limit)
}
