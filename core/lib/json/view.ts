/** Values of a JSON text that has been scanned. They are parsed only when they are needed. */
import { OPEN_ARRAY, OPEN_OBJECT, QUOTE } from './bytes.ts'
import { UNLIMITED } from './limits.ts'
import { JsonScanner } from './scanner.ts'
import type { Tape } from './tape.ts'
import { beginsWith, says, stringAt } from './text.ts'

/** `true`, `false` and `null`, by the code of their first letter. The scanner has checked the other letters. */
const LITERALS: ReadonlyMap<number, boolean | null> = new Map([
  [0x74, true],
  [0x66, false],
  [0x6e, null],
])

/** One value of a scanned text. */
export class JsonView {
  readonly #bytes: Buffer
  readonly #tape: Tape
  readonly #entry: number

  constructor(bytes: Buffer, tape: Tape, entry: number) {
    this.#bytes = bytes
    this.#tape = tape
    this.#entry = entry
  }

  /** Scans text that is known to be JSON. */
  static of(bytes: Buffer): JsonView {
    const scanner = new JsonScanner(UNLIMITED)
    scanner.push(bytes, true)
    return new JsonView(bytes, scanner.tape, 0)
  }

  /** The index of the first byte of the value, and the index after its last one. */
  get start(): number {
    return this.#tape.start(this.#entry)
  }

  get end(): number {
    return this.#tape.end(this.#entry)
  }

  /** The bytes of the value, unchanged. */
  get bytes(): Buffer {
    return this.#bytes.subarray(this.start, this.end)
  }

  /** The number of values and names in it, the value itself included. */
  get entries(): number {
    return this.#tape.next(this.#entry) - this.#entry
  }

  get isObject(): boolean {
    return this.#bytes[this.start] === OPEN_OBJECT
  }

  get isList(): boolean {
    return this.#bytes[this.start] === OPEN_ARRAY
  }

  get isString(): boolean {
    return this.#bytes[this.start] === QUOTE
  }

  get isNull(): boolean {
    return this.#bytes[this.start] === 0x6e
  }

  /** The text of a string; undefined for anything else. */
  get text(): string | undefined {
    return this.isString ? stringAt(this.#bytes, this.start, this.end) : undefined
  }

  /** The value, parsed. */
  get json(): unknown {
    if (this.isString) return this.text
    const literal = LITERALS.get(this.#bytes[this.start] as number)
    return literal === undefined ? JSON.parse(this.#bytes.toString('utf8', this.start, this.end)) : literal
  }

  /** Whether it is a string with this text. @param text printable ASCII */
  is(text: string): boolean {
    return this.isString && this.#says(this.#entry, text)
  }

  /**
   * A member of the object: the last one if several have the name, undefined if there is none.
   * @param name printable ASCII
   */
  member(name: string): JsonView | undefined {
    if (!this.isObject) return undefined
    const tape = this.#tape
    const end = tape.next(this.#entry)
    let found = -1
    for (let entry = this.#entry + 1; entry < end; entry = tape.next(entry + 1))
      if (this.#says(entry, name)) found = entry + 1
    return found === -1 ? undefined : new JsonView(this.#bytes, this.#tape, found)
  }

  /**
   * The bytes of all strings in it, at any depth, that are values of members with these names; quotes are not counted.
   */
  textBytes(names: readonly string[]): number {
    const tape = this.#tape
    let total = 0
    const walk = (entry: number): void => {
      const end = tape.next(entry)
      const nameEntries = this.#bytes[tape.start(entry)] === OPEN_OBJECT ? 1 : 0
      for (let value = entry + 1 + nameEntries; value < end; value = tape.next(value) + nameEntries) {
        const start = tape.start(value)
        if (this.#bytes[start] !== QUOTE) walk(value)
        else if (nameEntries === 1 && names.some(name => this.#says(value - 1, name)))
          total += tape.end(value) - start - 2
      }
    }
    walk(this.#entry)
    return total
  }

  /** Whether it is a string that begins with this text on the wire. @param text printable ASCII without quotes and backslashes */
  begins(text: string): boolean {
    return this.isString && beginsWith(this.#bytes, this.start, this.end, text)
  }

  /** Bytes of the text that it is a part of. */
  range(start: number, end: number): Buffer {
    return this.#bytes.subarray(start, end)
  }

  /** The members of the object in order, each with the bytes of its name. */
  *members(): Generator<{ readonly name: string; readonly bytes: Buffer; readonly value: JsonView }> {
    if (!this.isObject) return
    const tape = this.#tape
    const end = tape.next(this.#entry)
    for (let entry = this.#entry + 1; entry < end; entry = tape.next(entry + 1)) {
      const [from, to] = [tape.start(entry), tape.end(entry)]
      const value = new JsonView(this.#bytes, tape, entry + 1)
      yield { name: stringAt(this.#bytes, from, to), bytes: this.#bytes.subarray(from, to), value }
    }
  }

  /** The names of the object's members, in order. */
  *names(): Generator<string> {
    if (!this.isObject) return
    const tape = this.#tape
    const end = tape.next(this.#entry)
    for (let entry = this.#entry + 1; entry < end; entry = tape.next(entry + 1))
      yield stringAt(this.#bytes, tape.start(entry), tape.end(entry))
  }

  /** The elements of a list; none for anything else. */
  *elements(): Generator<JsonView> {
    if (this.isList) yield* this.children()
  }

  /** The values of an object's members, or the elements of a list. */
  *children(): Generator<JsonView> {
    const tape = this.#tape
    const end = tape.next(this.#entry)
    const nameEntries = this.isObject ? 1 : 0
    for (let entry = this.#entry + 1 + nameEntries; entry < end; entry = tape.next(entry) + nameEntries)
      yield new JsonView(this.#bytes, this.#tape, entry)
  }

  /** Whether the string at an entry has this text. */
  #says(entry: number, text: string): boolean {
    return says(this.#bytes, this.#tape.start(entry), this.#tape.end(entry), text)
  }
}
