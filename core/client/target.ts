/** The target of a request. */

/**
 * Returns path and query. Clients that join a base URL ending in a slash with a path send two, which count as one. A client that takes the gateway for a proxy sends a whole URL, which
 * every server must accept; whom it names does not matter.
 */
export function targetOf(url = '/'): { readonly path: string; readonly rawQuery: string } {
  const own = /^https?:\/\//i.test(url) ? url.replace(/^[a-z]+:\/\/[^/?#]*/i, '') : url
  const target = own.startsWith('/') || own === '*' ? own : `/${own}`
  const mark = target.indexOf('?')
  const path = mark === -1 ? target : target.slice(0, mark)
  return { path: path.replaceAll(/\/{2,}/g, '/'), rawQuery: mark === -1 ? '' : target.slice(mark + 1) }
}
