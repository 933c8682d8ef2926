/**
 * Reads JSON without building objects. A scanner goes over the bytes once, as they arrive. It checks that they are JSON
 * and within the limits, and notes on a tape where each value begins and ends. A value is parsed only when it is
 * needed.
 */
import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from './bytes.ts'
import { JsonError, type JsonLimits, type SingleNames } from './limits.ts'
import { Tape } from './tape.ts'
import { escapeEnd } from './escapes.ts'
import { beginsWith, hasEscape, NAME_MAX, says, stringAt } from './text.ts'

const MINUS = 0x2d
/** Most characters of a number. No reader uses more digits. */
const NUMBER_MAX = 1000
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const LITERALS: ReadonlyMap<number, string> = new Map([
  [0x74, 'true'],
  [0x66, 'false'],
  [0x6e, 'null'],
])

/** States: what may come next. */
const VALUE = 0
/** A value, or the end of an empty list. */
const FIRST_ELEMENT = 1
/** A name, or the end of an empty object. */
const FIRST_NAME = 2
const NAME = 3
const AFTER_NAME = 4
/** A comma, or the end of the object or list. */
const AFTER_VALUE = 5
const NOTHING_MORE = 6

/** A scan of one JSON text. */
export class JsonScanner {
  readonly tape = new Tape()
  /** The number of values so far. */
  values = 0
  /**
   * Where the strings of members named `arguments` stand, whose text is JSON: for each one the index of its quote, and
   * the index after it.
   */
  readonly inner: number[] = []
  /** Whether a value is a string that begins with one of the texts to look for. */
  found = false
  readonly #sought: readonly string[]
  readonly #limits: JsonLimits
  readonly #single: SingleNames | undefined
  readonly #largest: (name: string) => number
  /** The tape may not grow beyond this entry within the current top-level member. */
  #memberEnd = Infinity
  #state = VALUE
  #at = 0
  /** Where the string begins that is being read; -1 if none is. */
  #string = -1
  /** The bytes that are read now contain no control character. */
  #clean = false
  /** The indices of the next quote and the next backslash: -1 before a search, the number of bytes if there is none. */
  #quote = -1
  #slash = -1
  #depth = 0
  /** The entries of the objects and lists that are open. */
  readonly #open: number[] = []
  /** For each open object, the single names that it has, as bits; -1 for a list. */
  readonly #named: number[] = []
  /** The top-level names, each with its entry on the tape. */
  readonly names = new Map<string, number>()

  /**
   * @param single names that no object may have twice; a top-level name may never come twice then. Without it, the
   * scanner accepts what `JSON.parse` accepts
   * @param largest how many values and names a top-level member may contain
   * @param sought beginnings of strings to look for
   */
  constructor(
    limits: JsonLimits,
    single?: SingleNames,
    largest: (name: string) => number = () => Infinity,
    sought: readonly string[] = [],
  ) {
    this.#sought = sought
    this.#limits = limits
    this.#single = single
    this.#largest = largest
  }

  /**
   * Reads on.
   * @param bytes all bytes so far; those of earlier calls must be unchanged
   * @param final no more bytes will follow
   * @param most values to read at once
   * @returns false if there is more to read
   * @throws JsonError
   */
  push(bytes: Buffer, final: boolean, most = Infinity): boolean {
    const { length } = bytes
    const until = this.values + most
    let at = this.#at
    // Results of earlier searches may not be valid for the new bytes.
    this.#quote = -1
    this.#slash = -1
    this.#clean = length - at > MANY && !hasControl(bytes, at)
    while ((at < length || this.#string !== -1) && this.values < until) {
      if (this.#string !== -1) {
        const end = this.#stringEnd(bytes, at)
        if (end < 0) {
          at = ~end
          break
        }
        at = end
        this.#endString(bytes, end)
        continue
      }
      const byte = bytes[at] as number
      if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
        at++
        continue
      }
      if (byte === QUOTE) {
        this.#beginString(at++)
        continue
      }
      if (byte === COMMA || byte === COLON || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        this.#mark(byte, ++at)
        continue
      }
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        this.#openUp(byte, at++)
        continue
      }
      const end = wordEnd(bytes, at)
      // The rest of the word may still arrive.
      if (end === length && !final) {
        if (this.#single && end - at > NUMBER_MAX) throw new JsonError({ kind: 'syntax' })
        break
      }
      this.#word(bytes, at, end)
      at = end
    }
    this.#at = at
    if (this.values >= until) return false
    if (final && (this.#state !== NOTHING_MORE || this.#string !== -1)) throw new JsonError({ kind: 'syntax' })
    return true
  }

  /**
   * The index after the quote that ends the string that is read from `at` on. If the string does not end yet: `~at` of
   * the index to go on from.
   */
  #stringEnd(bytes: Buffer, at: number): number {
    const { length } = bytes
    for (let near = at + NEAR; ; near = at + NEAR) {
      for (const end = this.#clean ? Math.min(near, length) : length; at < end;) {
        const byte = bytes[at] as number
        if (byte === QUOTE) return at + 1
        if (byte === BACKSLASH) {
          const behind = escapeEnd(bytes, at)
          if (behind === 0) return ~at
          at = behind
        } else if (byte < 0x20) throw new JsonError({ kind: 'syntax' })
        else at++
      }
      if (at >= length) return ~at
      // Each is searched for once, however often the other comes first.
      if (this.#quote < at) this.#quote = indexOf(bytes, QUOTE, at)
      if (this.#slash < at) this.#slash = indexOf(bytes, BACKSLASH, at)
      if (this.#slash >= this.#quote) return this.#quote === length ? ~length : this.#quote + 1
      at = this.#slash
    }
  }

  #beginString(at: number): void {
    const name = this.#state === NAME || this.#state === FIRST_NAME
    if (name) this.tape.add(at)
    else this.#begin(at)
    this.#string = at
  }

  #endString(bytes: Buffer, end: number): void {
    const { tape } = this
    const entry = tape.size - 1
    tape.close(entry, end)
    const start = this.#string
    this.#string = -1
    if (this.#state === VALUE || this.#state === FIRST_ELEMENT) {
      for (const text of this.#sought) if (beginsWith(bytes, start, end, text)) this.found = true
      if (
        entry > 0 &&
        this.#named[this.#depth] !== -1 &&
        says(bytes, tape.start(entry - 1), tape.end(entry - 1), ARGUMENTS)
      )
        this.inner.push(start, end)
      return this.#ended()
    }
    this.#state = AFTER_NAME
    if (this.#depth === 1) this.#outermost(bytes, start, end, entry)
    else if (this.#single) this.#checkName(bytes, start, end, this.#single)
  }

  #outermost(bytes: Buffer, start: number, end: number, entry: number): void {
    const name = stringAt(bytes, start, end)
    if (this.#single && this.names.has(name)) throw new JsonError({ kind: 'twice', name, outermost: true })
    this.names.set(name, entry)
    this.#memberEnd = entry + 1 + this.#largest(name)
  }

  #checkName(bytes: Buffer, start: number, end: number, { bits, letters, lengths }: SingleNames): void {
    const first = bytes[start + 1] as number
    if (end - start > NAME_MAX || (first !== BACKSLASH && !letters.has(first))) return
    // Only a name with an escape has another length on the wire.
    if (!lengths.has(end - start - 2) && !hasEscape(bytes, start, end)) return
    const name = stringAt(bytes, start, end)
    const bit = bits.get(name)
    if (bit === undefined) return
    const named = this.#named[this.#depth] as number
    if ((named & bit) !== 0) throw new JsonError({ kind: 'twice', name, outermost: false })
    this.#named[this.#depth] = named | bit
  }

  /** Notes the beginning of a value. @returns its entry */
  #begin(at: number): number {
    if (this.#state !== VALUE && this.#state !== FIRST_ELEMENT) throw new JsonError({ kind: 'syntax' })
    if (++this.values > this.#limits.values) throw new JsonError({ kind: 'values' })
    if (this.tape.size >= this.#memberEnd)
      throw new JsonError({ kind: 'member', name: [...this.names.keys()].at(-1) ?? '' })
    return this.tape.add(at)
  }

  #openUp(byte: number, at: number): void {
    const entry = this.#begin(at)
    if (++this.#depth > this.#limits.depth) throw new JsonError({ kind: 'depth' })
    this.#open[this.#depth] = entry
    this.#named[this.#depth] = byte === OPEN_OBJECT ? 0 : -1
    this.#state = byte === OPEN_OBJECT ? FIRST_NAME : FIRST_ELEMENT
  }

  #mark(byte: number, behind: number): void {
    const state = this.#state
    const inObject = this.#named[this.#depth] !== -1
    if (byte === COLON && state === AFTER_NAME) this.#state = VALUE
    else if (byte === COMMA && state === AFTER_VALUE) this.#state = inObject ? NAME : VALUE
    else if (byte === CLOSE_OBJECT && inObject && this.#depth > 0 && (state === AFTER_VALUE || state === FIRST_NAME))
      this.#shut(behind)
    else if (byte === CLOSE_ARRAY && !inObject && (state === AFTER_VALUE || state === FIRST_ELEMENT)) this.#shut(behind)
    else throw new JsonError({ kind: 'syntax' })
  }

  #shut(end: number): void {
    this.tape.close(this.#open[this.#depth] as number, end)
    this.#depth--
    this.#ended()
  }

  #ended(): void {
    this.#state = this.#depth === 0 ? NOTHING_MORE : AFTER_VALUE
  }

  /** A number, true, false or null. */
  #word(bytes: Buffer, at: number, end: number): void {
    if (end === at || (this.#single && end - at > NUMBER_MAX)) throw new JsonError({ kind: 'syntax' })
    const entry = this.#begin(at)
    checkWord(bytes, at, end, this.#single !== undefined)
    this.tape.close(entry, end)
    this.#ended()
  }
}

/** The member whose text is JSON itself: the arguments of a tool call. */
const ARGUMENTS = 'arguments'

/** Bytes of a string that are tested one by one before the rest is searched. */
const NEAR = 32
/** Bytes from which it pays to look for control characters in all of them at once. */
const MANY = 256

/** Whether any byte is a control character, which a JSON string may not contain. */
function hasControl(bytes: Buffer, from: number): boolean {
  let at = from
  for (; (bytes.byteOffset + at) % 4 !== 0; at++) if ((bytes[at] as number) < 0x20) return true
  const words = new Int32Array(bytes.buffer, bytes.byteOffset + at, (bytes.length - at) >> 2)
  for (let index = 0; index < words.length; index++) {
    const word = words[index] as number
    if (((word - 0x20202020) & ~word & 0x80808080) !== 0) return true
  }
  for (at += 4 * words.length; at < bytes.length; at++) if ((bytes[at] as number) < 0x20) return true
  return false
}

/** The index of the next such byte; the number of bytes if there is none. */
function indexOf(bytes: Buffer, byte: number, from: number): number {
  const index = bytes.indexOf(byte, from)
  return index === -1 ? bytes.length : index
}

/** The index after the letters, digits, signs and points that begin at `at`. */
function wordEnd(bytes: Buffer, at: number): number {
  for (; at < bytes.length; at++) {
    const byte = bytes[at] as number
    const part =
      (byte >= 0x30 && byte <= 0x39) ||
      (byte >= 0x61 && byte <= 0x7a) ||
      byte === MINUS ||
      byte === 0x2e ||
      byte === 0x2b ||
      byte === 0x45
    if (!part) return at
  }
  return at
}

function checkWord(bytes: Buffer, at: number, end: number, strict: boolean): void {
  const first = bytes[at] as number
  if (first !== MINUS && (first < 0x30 || first > 0x39)) {
    if (bytes.toString('latin1', at, end) !== LITERALS.get(first)) throw new JsonError({ kind: 'syntax' })
    return
  }
  if (end - at === 1 && first !== MINUS) return
  const text = bytes.toString('latin1', at, end)
  if (!NUMBER.test(text)) throw new JsonError({ kind: 'syntax' })
  // Some readers take a number beyond the range of a double for infinity, and others do not.
  if (strict && text.length > 4 && !Number.isFinite(Number(text)))
    throw new JsonError({ kind: 'range', text: text.slice(0, 32) })
}
