/** Leaves out of a text what it repeats of a request. */

/** Characters of a text that repeats the request, from which on it is left out. */
const ECHO_CHARS = 20
/** Characters of a text that are looked at. */
const READ_CHARS = 600
/** Multiplier of the hash of a window, and what its first character has become when it leaves. */
const BASE = 257
const LEAVING = Array.from({ length: ECHO_CHARS }).reduce((power: number) => Math.imul(power, BASE), 1)

/** Escapes that a provider has printed as text. */
const PRINTED = /\\u([0-9a-f]{4})|\\([nrt"\\/])/gi

/**
 * Returns the beginning of a text in one line, with an ellipsis in the place of whatever repeats 20 characters of a request.
 * The time that it takes grows with the lengths of both, whatever they are.
 * @param request as `plainRequest` returns it
 */
export function withoutEchoes(message: string, request: string): string {
  const decoded = message.replaceAll(PRINTED, (_, hex: string | undefined, other: string) => {
    if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16))
    return /[nrt]/i.test(other) ? ' ' : other
  })
  const characters = Array.from(decoded.replaceAll(/\s+/g, ' ').trim()).slice(0, READ_CHARS)
  // A request has the escapes of JSON, in lower case.
  const escaped = characters.map(each => JSON.stringify(each).slice(1, -1).toLowerCase())
  const repeated = repeatedIn(escaped.join(''), request)
  let at = 0
  let kept = ''
  let isInEcho = false
  characters.forEach((each, index) => {
    const { length } = escaped[index] ?? ''
    const isRepeated = repeated.slice(at, at + length).includes(true)
    if (!isRepeated) kept += each
    else if (!isInEcho) kept += '…'
    isInEcho = isRepeated
    at += length
  })
  return kept
}

/** Returns for each character of a text whether a window of it stands in a request. */
function repeatedIn(text: string, request: string): boolean[] {
  const repeated = Array.from({ length: text.length }, () => false)
  const places = new Map<string, number[]>()
  /** The windows that were not found yet, by their hashes. */
  const wanted = new Map<number, Set<string>>()
  eachWindow(text, (at, hash) => {
    const window = text.slice(at, at + ECHO_CHARS)
    places.set(window, [...(places.get(window) ?? []), at])
    wanted.set(hash, (wanted.get(hash) ?? new Set()).add(window))
  })
  if (places.size === 0) return repeated
  eachWindow(request, (place, hash) => {
    for (const window of wanted.get(hash) ?? []) {
      if (!request.startsWith(window, place)) continue
      wanted.get(hash)?.delete(window)
      for (const at of places.get(window) ?? []) repeated.fill(true, at, at + ECHO_CHARS)
    }
  })
  return repeated
}

/** Calls back with the place and a hash of each window of a text. */
function eachWindow(text: string, found: (at: number, hash: number) => void): void {
  let hash = 0
  for (let end = 0; end < text.length; end++) {
    hash = (Math.imul(hash, BASE) + text.charCodeAt(end)) | 0
    const begin = end + 1 - ECHO_CHARS
    if (begin > 0) hash = (hash - Math.imul(text.charCodeAt(begin - 1), LEAVING)) | 0
    if (begin >= 0) found(begin, hash)
  }
}
