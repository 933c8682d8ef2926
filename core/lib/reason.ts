/** Reads what was thrown, which may be anything. */

/** Maximum inner errors of an AggregateError that are read. */
const INNER_MAX = 8
/** Maximum depth of inner errors. */
const DEPTH_MAX = 3

/** Reads a member of anything thrown. Undefined if that throws. */
export function memberOf(thrown: unknown, name: string): unknown {
  try {
    return (thrown as Record<string, unknown> | null | undefined)?.[name]
  } catch {
    return undefined
  }
}

/** Reads a member that is a text or a number. An empty text if it is neither. */
export function thrownText(thrown: unknown, name: string): string {
  const value = memberOf(thrown, name)
  return typeof value === 'string' || typeof value === 'number' ? String(value) : ''
}

/**
 * Why something failed, in one line. For failures of an upstream or the store, where a stack trace would not help. It
 * never throws, whatever was thrown.
 */
export function reasonOf(thrown: unknown, depth = 0): string {
  if (typeof thrown === 'function') return 'a function'
  if (typeof thrown !== 'object' || thrown === null) return String(thrown)
  const [message, code] = [thrownText(thrown, 'message'), thrownText(thrown, 'code')]
  const inner = memberOf(thrown, 'errors')
  // Node reports the addresses that it has tried one by one, and all of them together by a code only.
  if (message === '' && depth < DEPTH_MAX && Array.isArray(inner) && inner.length > 0)
    return inner
      .slice(0, INNER_MAX)
      .map(each => reasonOf(each, depth + 1))
      .join('; ')
  if (message === '') return code === '' ? 'an object' : code
  return code === '' || message.includes(code) ? message : `${message} (${code})`
}
