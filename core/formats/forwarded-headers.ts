/** Which request headers a format passes to its upstreams. */

const COMMON_HEADERS = new Set(['content-type', 'accept', 'user-agent', 'x-app'])

/** A header test from the headers every format forwards, further names, and name prefixes. */
export function forwarding(names: readonly string[], prefixes: readonly string[]): (header: string) => boolean {
  const all = new Set([...COMMON_HEADERS, ...names])
  const starts = ['x-stainless-', ...prefixes]
  return header => all.has(header) || starts.some(prefix => header.startsWith(prefix))
}
