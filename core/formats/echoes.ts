/** Leaves out of a text what it repeats of a request. */

/** Characters of a text that repeats the request, from which on it is left out. */
const ECHO_CHARS = 20
/** Characters of a text that are looked at. */
const READ_CHARS = 600
/** Multiplier of the hash of a window, and what its first character has become when it leaves. */
const BASE = 257
const LEAVING = Array.from({ length: ECHO_CHARS }).reduce((power: number) => Math.imul(power, BASE), 1)

/** Escapes that a provider has printed as text, perhaps several times over. */
const PRINTED = /\\u([0-9a-f]{4})|\\([bfnrt"\\/])/gi
const DECODED_TIMES = 3

/** Returns the texts of a request: the strings of its body and its headers, as `withoutEchoes` compares them. */
export function textsOf(json: Buffer, headers: Readonly<Record<string, string | string[] | undefined>>): string {
  const texts = Object.values(headers).map(String)
  const waiting: unknown[] = [JSON.parse(json.toString())]
  while (waiting.length > 0) {
    const value = waiting.pop()
    if (typeof value === 'string') texts.push(value)
    else if (typeof value === 'object' && value !== null)
      for (const [name, each] of Object.entries(value)) {
        texts.push(name)
        waiting.push(each)
      }
  }
  return comparable(texts.join('\0').replaceAll(/\s+/g, ' '))
}

/** A text in one case: the end of a Greek word has a letter of its own, which no other case has. */
function comparable(text: string): string {
  return text.toLowerCase().replaceAll('ς', 'σ')
}

/**
 * Returns the beginning of a text in one line, with an ellipsis in the place of whatever repeats 20 characters of a request.
 * The time that it takes grows with the lengths of both, whatever they are.
 * @param texts as `textsOf` returns them
 */
export function withoutEchoes(message: string, texts: string): string {
  let kept = stripped(message, texts)
  for (let time = 0; time < DECODED_TIMES; time++) {
    const decoded = kept.replaceAll(PRINTED, (_, hex: string | undefined, other: string) => {
      if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16))
      return /[bfnrt]/i.test(other) ? ' ' : other
    })
    if (decoded === kept) return kept
    kept = stripped(decoded, texts)
  }
  return kept
}

function stripped(message: string, texts: string): string {
  const characters = Array.from(message.replaceAll(/\s+/g, ' ').trim()).slice(0, READ_CHARS)
  const compared = characters.map(comparable)
  const repeated = repeatedIn(compared.join(''), texts)
  let at = 0
  let kept = ''
  let isInEcho = false
  characters.forEach((each, index) => {
    const { length } = compared[index] ?? ''
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
