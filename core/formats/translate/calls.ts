/** The input of tool calls: JSON text here, an object or bare text in some formats. */
import { parseExact } from './decoding.ts'
import type { Json } from '../terms.ts'
import { object, text } from '../json.ts'

/** The input of a call as JSON text. Some providers and clients send the value itself. */
export function inputText(input: unknown): string {
  return text(input) ?? (input === undefined || input === null ? '' : JSON.stringify(input))
}

/**
 * The object in the JSON text of a call; empty for empty text. Text that is not an object is kept as a member that says
 * so.
 */
export function inputObject(input: string): Json {
  if (input.trim() === '' || input.trim() === 'null') return {}
  try {
    const json = object(parseExact(input))
    if (json) return json
  } catch {
    // Models sometimes send invalid JSON.
  }
  return { INVALID_JSON: input }
}

/** The input of a freeform tool in the JSON text of its call. If the text was cut off, as much as there is. */
export function freeformInput(input: string): string {
  try {
    const json = object(JSON.parse(input))
    return text(json?.['input']) ?? (json && Object.keys(json).length === 0 ? '' : input)
  } catch {
    const begun = /^\s*\{\s*"input"\s*:\s*"/.exec(input)
    return (begun && cutString(input.slice(begun[0].length))) ?? input
  }
}

/** The text of a JSON string that was cut off, without an incomplete escape at its end. */
function cutString(rest: string): string | undefined {
  for (let less = 0; less <= ESCAPE_MOST; less++) {
    try {
      return JSON.parse(`"${rest.slice(0, rest.length - less)}"`) as string
    } catch {
      // Try again with one character less.
    }
  }
  return undefined
}

/** Characters of the longest escape in a JSON string. */
const ESCAPE_MOST = 6

/** The JSON text of a freeform tool's call. */
export function wrappedInput(input: string): string {
  return JSON.stringify({ input })
}
