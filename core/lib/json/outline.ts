/** A large JSON text without its long strings. What is left is parsed in a fraction of the time. */
import { turn } from '../turns.ts'
import { OPEN_OBJECT, QUOTE } from './bytes.ts'
import { JsonError } from './limits.ts'
import { JsonScanner } from './scanner.ts'
import type { Tape } from './tape.ts'
import { says } from './text.ts'
import { JsonView } from './view.ts'

/** Bytes that are scanned at a time. */
const SLICE_BYTES = 256 * 1024
/** Most levels of nesting. */
const DEPTH_MAX = 1000
/** Bytes from which a string counts as long. */
const LONG = 4096
/** Values and names from which a member is left out if it matters neither to the reply nor to its cost. */
const MANY = 10_000
/** Most values and names. They are parsed in one go. */
export const PARSED_MAX = 500_000
/** A member that matters neither to the reply nor to its cost, wherever it stands. */
const DETAIL = 'logprobs'
/** Members with the content of a reply: they are never left out. */
const CONTENT_MEMBERS: ReadonlySet<string> = new Set(['choices', 'output', 'content'])
/** What replaces a string, an object or a list that is left out. */
const EMPTY = { string: Buffer.from('""'), object: Buffer.from('{}'), list: Buffer.from('[]') }

/** Bytes that replace a range of a text. */
interface Splice {
  readonly start: number
  readonly end: number
  readonly bytes: Buffer
}

/** A text that has been scanned and parsed in outline. */
export class Outline {
  readonly view: JsonView
  /** The parsed text. Long strings, and large members that do not matter, are empty. */
  readonly json: unknown
  readonly #scanned: Buffer
  readonly #splice: Splice | undefined

  constructor(scanned: Buffer, view: JsonView, json: unknown, splice?: Splice) {
    this.#scanned = scanned
    this.view = view
    this.json = json
    this.#splice = splice
  }

  get bytes(): Buffer {
    if (!this.#splice) return this.#scanned
    const { start, end, bytes } = this.#splice
    return Buffer.concat([this.#scanned.subarray(0, start), bytes, this.#scanned.subarray(end)])
  }

  /**
   * A copy in which the string at a path is another one; the same outline if no string stands there. Only one string
   * can be replaced.
   * @param path names of members, from the root on
   */
  with(path: readonly string[], text: string): Outline {
    let view: JsonView | undefined = this.view
    for (const name of path) view = view?.member(name)
    if (!view?.isString) return this
    const { start, end } = view
    return new Outline(this.#scanned, this.view, replaced(this.json, path, text), {
      start,
      end,
      bytes: Buffer.from(JSON.stringify(text)),
    })
  }
}

/** Whether an entry is the value of a member named DETAIL. */
function isDetail(bytes: Buffer, tape: Tape, entry: number): boolean {
  if (entry === 0) return false
  const end = tape.end(entry - 1)
  const between = bytes.toString('latin1', end, tape.start(entry))
  return between.trim() === ':' && says(bytes, tape.start(entry - 1), end, DETAIL)
}

/** A value in which the value at a path is another one. */
function replaced(json: unknown, [name, ...path]: readonly string[], value: unknown): unknown {
  if (name === undefined) return value
  const object = json as Record<string, unknown>
  return { ...object, [name]: replaced(object[name], path, value) }
}

/**
 * Scans a JSON text in slices. Other work gets its turn between them.
 * @param owner whose work it is, as in `turn`
 * @returns undefined if the text is not JSON or names a member twice; `too large` if it has more values, or is deeper, than
 * any reply
 */
export async function outlineOf(bytes: Buffer, owner: string): Promise<Outline | 'too large' | undefined> {
  const scanner = new JsonScanner({ depth: DEPTH_MAX, values: Infinity })
  try {
    for (let end = SLICE_BYTES; end < bytes.length; end += SLICE_BYTES) {
      scanner.push(bytes.subarray(0, end), false)
      await turn(owner)
    }
    scanner.push(bytes, true)
  } catch (thrown) {
    if (thrown instanceof JsonError) return thrown.fault.kind === 'depth' ? 'too large' : undefined
    throw thrown
  }
  await turn(owner)
  const { tape, names } = scanner
  const parts: Buffer[] = []
  let at = 0
  let left = PARSED_MAX
  const leaveOut = (entry: number, instead: Buffer): void => {
    parts.push(bytes.subarray(at, tape.start(entry)), instead)
    at = tape.end(entry)
  }
  const large = new Set([...names].filter(([name]) => !CONTENT_MEMBERS.has(name)).map(([, entry]) => entry + 1))
  for (let entry = 0; entry < tape.size; entry++) {
    const first = bytes[tape.start(entry)]
    const next = tape.next(entry)
    if (first === QUOTE) {
      if (tape.end(entry) - tape.start(entry) >= LONG) leaveOut(entry, EMPTY.string)
    } else if (next - entry > MANY && (large.has(entry) || isDetail(bytes, tape, entry))) {
      leaveOut(entry, first === OPEN_OBJECT ? EMPTY.object : EMPTY.list)
      entry = next - 1
    }
    if (--left < 0) return 'too large'
  }
  const short = parts.length === 0 ? bytes : Buffer.concat([...parts, bytes.subarray(at)])
  return new Outline(bytes, new JsonView(bytes, tape, 0), JSON.parse(short.toString('utf8')))
}
