/** The target of a request. */

/**
 * Returns path and query as the client sent them. A client that takes the gateway for a proxy sends a whole URL, which
 * every server must accept; whom it names does not matter.
 */
export function targetOf(url = '/'): { readonly path: string; readonly rawQuery: string } {
  const own = /^https?:\/\//i.test(url) ? url.replace(/^[a-z]+:\/\/[^/?#]*/i, '') : url
  const target = own.startsWith('/') || own === '*' ? own : `/${own}`
  const mark = target.indexOf('?')
  return mark === -1
    ? { path: target, rawQuery: '' }
    : { path: target.slice(0, mark), rawQuery: target.slice(mark + 1) }
}
