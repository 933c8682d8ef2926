/** A large JSON text without its long strings: all else of it is parsed as ever, in a fraction of the time. */
import { turn } from '../turns.ts'
import { OPEN_OBJECT, QUOTE } from './bytes.ts'
import { JsonError } from './limits.ts'
import { JsonScanner } from './scanner.ts'
import type { Tape } from './tape.ts'
import { says } from './text.ts'
import { JsonView } from './view.ts'

/** Bytes that are scanned in one go. */
const SLICE_BYTES = 256 * 1024
/** Levels of nesting. */
const DEPTH_MAX = 1000
/** Bytes from which on a string is long. */
const LONG = 4096
/** Values and names from which on a member is left out that says nothing of what a reply is, or costs. */
const MANY = 10_000
/** Values and names that are parsed at most: they are parsed in one go. */
const PARSED_MAX = 500_000
/** A member, wherever it stands, that says nothing of what a reply is or costs. */
const DETAIL = 'logprobs'
/** Members that hold what a reply says. */
const TELLING: ReadonlySet<string> = new Set(['choices', 'output', 'content'])
/** What stands in the place of what is left out. */
const EMPTY = { string: Buffer.from('""'), object: Buffer.from('{}'), list: Buffer.from('[]') }

/** What stands in the place of some of a text's bytes. */
interface Splice {
  readonly start: number
  readonly end: number
  readonly bytes: Buffer
}

/** A text that has been scanned. */
export class Outline {
  readonly view: JsonView
  /** It as parsed; long strings, and large members that say nothing of what a reply is or costs, are empty. */
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

  /** It with another text as the value of the member at a path; as it is where no text stands there. It can be changed once. */
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

/** Whether an entry is the value of a member that is a detail. */
function isDetail(bytes: Buffer, tape: Tape, entry: number): boolean {
  if (entry === 0) return false
  const end = tape.end(entry - 1)
  const between = bytes.toString('latin1', end, tape.start(entry))
  return between.trim() === ':' && says(bytes, tape.start(entry - 1), end, DETAIL)
}

/** A value with another one at a path. */
function replaced(json: unknown, [name, ...path]: readonly string[], value: unknown): unknown {
  if (name === undefined) return value
  const object = json as Record<string, unknown>
  return { ...object, [name]: replaced(object[name], path, value) }
}

/**
 * Reads a JSON text in slices, between which others have their turn.
 * @param owner with whom long work takes turns
 * @returns undefined for what is not JSON, names a member twice, or is larger or nested deeper than any reply
 */
export async function outlineOf(bytes: Buffer, owner: string): Promise<Outline | undefined> {
  const scanner = new JsonScanner({ depth: DEPTH_MAX, values: Infinity })
  try {
    for (let end = SLICE_BYTES; end < bytes.length; end += SLICE_BYTES) {
      scanner.push(bytes.subarray(0, end), false)
      await turn(owner)
    }
    scanner.push(bytes, true)
  } catch (thrown) {
    if (thrown instanceof JsonError) return undefined
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
  const large = new Set([...names].filter(([name]) => !TELLING.has(name)).map(([, entry]) => entry + 1))
  for (let entry = 0; entry < tape.size; entry++) {
    const first = bytes[tape.start(entry)]
    const next = tape.next(entry)
    if (first === QUOTE) {
      if (tape.end(entry) - tape.start(entry) >= LONG) leaveOut(entry, EMPTY.string)
    } else if (next - entry > MANY && (large.has(entry) || isDetail(bytes, tape, entry))) {
      leaveOut(entry, first === OPEN_OBJECT ? EMPTY.object : EMPTY.list)
      entry = next - 1
    }
    if (--left < 0) return undefined
  }
  const short = parts.length === 0 ? bytes : Buffer.concat([...parts, bytes.subarray(at)])
  return new Outline(bytes, new JsonView(bytes, tape, 0), JSON.parse(short.toString('utf8')))
}
