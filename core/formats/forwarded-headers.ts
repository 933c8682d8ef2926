/** Which request headers a format passes to its upstreams. */

const COMMON_HEADERS = new Set(['content-type', 'accept', 'user-agent', 'x-app'])

/** Words in names of headers with a credential, an account or a price: the client's own are not for the provider. */
const NOT_FORWARDED =
  /key|token|auth|secret|cookie|credential|jwt|(?:^|-)org|account|workspace|project|profile|bill|credit|(?:^|-)(?:pay|tier|speed|geo)(?:-|$)/

/**
 * A test for header names: those that every format forwards, further names, and prefixes.
 * @param blocked a name with such a prefix that is not forwarded
 */
export function forwarding(
  names: readonly string[],
  prefixes: readonly string[],
  blocked?: string,
): (header: string) => boolean {
  const all = new Set([...COMMON_HEADERS, ...names])
  const starts = ['x-stainless-', ...prefixes]
  return header =>
    all.has(header) ||
    (starts.some(prefix => header.startsWith(prefix)) && !NOT_FORWARDED.test(header) && header !== blocked)
}
