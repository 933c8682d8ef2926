/** Names in a request that some upstreams read though they are spelled otherwise. */
import { GatewayError } from '../errors.ts'

/**
 * Refuses a name that is one of the known ones but for its case.
 * @param param where it stands, for the error
 * @throws GatewayError invalid_body
 */
export function checkSpelling(name: string, known: ReadonlySet<string>, param = name): void {
  if (PLAIN.test(name) || known.has(name)) return
  // Both ways, as some letters have a capital of another alphabet.
  const plain = name.toUpperCase().toLowerCase()
  if (known.has(plain)) throw misspelt(param, plain)
}

/** As `checkSpelling`, but names are the same without hyphens and underscores as well: `serviceTier` is `service_tier`. */
export function checkCompound(name: string, known: ReadonlyMap<string, string>, param = name): void {
  const meant = known.get(name.toUpperCase().toLowerCase().replaceAll(/[-_]/g, ''))
  if (meant !== undefined && meant !== name) throw misspelt(param, meant)
}

/** Names by what is left of them without hyphens and underscores. */
export function compounds(names: Iterable<string>): ReadonlyMap<string, string> {
  return new Map([...names].map(name => [name.replaceAll('_', ''), name]))
}

/** Nothing in it can be spelled otherwise. */
const PLAIN = /^[a-z0-9_]*$/

function misspelt(param: string, meant: string): GatewayError {
  const shown = param.slice(0, 64)
  return new GatewayError('invalid_body', {
    param: shown,
    message: `"${shown}" is no member of this format. Did you mean "${meant}"?`,
  })
}
