/** Which request headers a format passes to its upstreams. */

const COMMON_HEADERS = new Set(['content-type', 'accept', 'user-agent', 'x-app'])

/**
 * A test for header names: those that every format forwards, further names, and prefixes.
 * @param blocked names with such a prefix that are not forwarded
 */
export function forwarding(
  names: readonly string[],
  prefixes: readonly string[],
  blocked: readonly string[] = [],
): (header: string) => boolean {
  const all = new Set([...COMMON_HEADERS, ...names])
  const starts = ['x-stainless-', ...prefixes]
  return header =>
    all.has(header) || (starts.some(prefix => header.startsWith(prefix)) && !blocked.some(name => header === name))
}
