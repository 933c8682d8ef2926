/** The members by which requests limit their output. */
import type { Body } from './body.ts'
import { positive } from './json.ts'

/** Members by which requests limit their output in one format or another; upstreams may heed any of them. */
const LIMITS = ['max_completion_tokens', 'max_tokens', 'max_output_tokens'] as const

type Limit = (typeof LIMITS)[number]

/** The largest of the limits of output that a request names, if one of them is its format's own. */
export function largestLimit(...own: readonly Limit[]): (body: Pick<Body, 'get'>) => number | undefined {
  return body => {
    // The format's own upstream does not heed the others.
    if (own.every(name => positive(body.get(name)) === undefined)) return undefined
    return Math.max(...LIMITS.map(name => positive(body.get(name)) ?? 0))
  }
}

/** Sets every limit of output that a request names; the one named by `name` where it names none. */
export function setLimits(body: Body, tokens: number, name: Limit): void {
  const present = new Set(LIMITS.filter(limit => positive(body.get(limit)) !== undefined))
  // The format's own is set in any case, unless it is there by its other name.
  if (name !== 'max_completion_tokens' || !present.has('max_tokens')) present.add(name)
  for (const limit of present) if (body.get(limit) !== tokens) body.set(limit, tokens)
}

/** Where several members limit the output, lets all say what the largest says: which of them an upstream heeds is not known. */
export function levelLimits(body: Body, limit: number | undefined): void {
  if (limit === undefined) return
  for (const name of LIMITS)
    if (positive(body.get(name)) !== undefined && body.get(name) !== limit) body.set(name, limit)
}
