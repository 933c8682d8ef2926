/** A large JSON text without its long strings: all else of it is parsed as ever, in a fraction of the time. */
import { turn } from '../turns.ts'
import { QUOTE } from './bytes.ts'
import { JsonError } from './limits.ts'
import { JsonScanner } from './scanner.ts'
import { JsonView } from './view.ts'

/** Bytes that are scanned in one go. */
const SLICE_BYTES = 256 * 1024
/** Levels of nesting. */
const DEPTH_MAX = 1000
/** Bytes from which on a string is long. */
const LONG = 4096
const EMPTY = Buffer.from('""')

/** What stands in the place of some of a text's bytes. */
interface Splice {
  readonly start: number
  readonly end: number
  readonly bytes: Buffer
}

/** A text that has been scanned. */
export class Outline {
  readonly view: JsonView
  /** It as parsed, with an empty string in the place of each long one. */
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
    return new Outline(this.#scanned, this.view, replaced(this.json, path, text), { start, end, bytes: Buffer.from(JSON.stringify(text)) })
  }
}

/** A value with another one at a path. */
function replaced(json: unknown, [name, ...path]: readonly string[], value: unknown): unknown {
  if (name === undefined) return value
  const object = json as Record<string, unknown>
  return { ...object, [name]: replaced(object[name], path, value) }
}

/**
 * Reads a JSON text in slices, between which others have their turn.
 * @param most values
 * @returns undefined for what is not JSON, holds more values, or is nested deeper than any reply
 */
export async function outlineOf(bytes: Buffer, most: number): Promise<Outline | undefined> {
  const scanner = new JsonScanner({ depth: DEPTH_MAX, values: most })
  try {
    for (let end = SLICE_BYTES; end < bytes.length; end += SLICE_BYTES) {
      scanner.push(bytes.subarray(0, end), false)
      await turn()
    }
    scanner.push(bytes, true)
  } catch (thrown) {
    if (thrown instanceof JsonError) return undefined
    throw thrown
  }
  await turn()
  const { size, starts, ends } = scanner.tape
  const parts: Buffer[] = []
  let at = 0
  for (let entry = 0; entry < size; entry++) {
    const [start, end] = [starts[entry] as number, ends[entry] as number]
    if (end - start < LONG || bytes[start] !== QUOTE) continue
    parts.push(bytes.subarray(at, start), EMPTY)
    at = end
  }
  const short = parts.length === 0 ? bytes : Buffer.concat([...parts, bytes.subarray(at)])
  return new Outline(bytes, new JsonView(bytes, scanner.tape, 0), JSON.parse(short.toString('utf8')))
}
