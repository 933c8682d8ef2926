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

/** A text that has been scanned. */
export interface Outline {
  readonly view: JsonView
  /** It as parsed, with an empty string in the place of each long one. */
  readonly json: unknown
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
  return { view: new JsonView(bytes, scanner.tape, 0), json: JSON.parse(short.toString('utf8')) }
}
