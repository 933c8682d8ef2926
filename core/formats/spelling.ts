/** Misspelled names that some upstreams accept. */
import { GatewayError } from '../errors.ts'

/**
 * Refuses a name that differs from a known one only in case.
 * @param param where it stands, for the error
 * @throws GatewayError invalid_body
 */
export function checkSpelling(name: string, known: ReadonlySet<string>, param = name): void {
  if (PLAIN.test(name) || known.has(name)) return
  // Both ways, as some letters have a capital in another alphabet.
  const plain = name.toUpperCase().toLowerCase()
  if (known.has(plain)) throw misspelt(param, plain)
}

/** As `checkSpelling`, but also ignores hyphens and underscores: `serviceTier` counts as `service_tier`. */
export function checkCompound(name: string, known: ReadonlyMap<string, string>, param = name): void {
  const meant = known.get(name.toUpperCase().toLowerCase().replaceAll(/[-_]/g, ''))
  if (meant !== undefined && meant !== name) throw misspelt(param, meant)
}

/** Names by their spelling without underscores. */
export function compounds(names: Iterable<string>): ReadonlyMap<string, string> {
  return new Map([...names].map(name => [name.replaceAll('_', ''), name]))
}

/** A name of these characters cannot be misspelled. */
const PLAIN = /^[a-z0-9_]*$/

function misspelt(param: string, meant: string): GatewayError {
  const shown = param.slice(0, 64)
  return new GatewayError('invalid_body', {
    param: shown,
    message: `"${shown}" is not a member of this format. Did you mean "${meant}"?`,
  })
}
