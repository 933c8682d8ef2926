/** Escapes in JSON strings, and the size of JSON that is itself the text of a JSON string. */
import { BACKSLASH, CLOSE_ARRAY, CLOSE_OBJECT, COMMA, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from './bytes.ts'
import { JsonError } from './limits.ts'

/**
 * The index after the escape that begins at `at`; 0 if the bytes end within it.
 * @throws JsonError for an escape that JSON does not have
 */
export function escapeEnd(bytes: Buffer, at: number): number {
  const escaped = bytes[at + 1]
  if (escaped === undefined) return 0
  if (ESCAPES[escaped] === 1) return at + 2
  if (escaped !== 0x75) throw new JsonError({ kind: 'syntax' })
  if (at + 5 >= bytes.length) return 0
  for (let digit = at + 2; digit < at + 6; digit++)
    if (!isHex(bytes[digit] as number)) throw new JsonError({ kind: 'syntax' })
  return at + 6
}

function isHex(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x46) || (byte >= 0x61 && byte <= 0x66)
}

/** By byte: 1 for one of `"\/bfnrt`, which may follow a backslash. */
const ESCAPES = new Uint8Array(256)
for (const letter of '"\\/bfnrt') ESCAPES[letter.charCodeAt(0)] = 1

/** Bytes that are measured in one step. */
const STEP_BYTES = 65_536

/**
 * Measures the JSON inside a string, step by step.
 * @param start the index of the opening quote
 * @param end the index after the closing quote
 * @returns the number of values, and how deep they are nested; text that is not JSON is counted in the same way
 */
export function* measuring(
  bytes: Buffer,
  start: number,
  end: number,
): Generator<void, { readonly values: number; readonly depth: number }> {
  let values = 1
  let depth = 0
  let deepest = 0
  let quoted = false
  let pause = start + STEP_BYTES
  for (let at = start + 1; at < end - 1;) {
    if (at > pause) {
      pause = at + STEP_BYTES
      yield
    }
    let byte = bytes[at] as number
    const behind = byte === BACKSLASH ? escapeEnd(bytes, at) : at + 1
    if (byte === BACKSLASH) byte = unescaped(bytes, at)
    at = behind
    // In the inner JSON a backslash takes the next character with it.
    if (byte === BACKSLASH) at = bytes[at] === BACKSLASH ? escapeEnd(bytes, at) : at + 1
    else if (byte === QUOTE) quoted = !quoted
    else if (quoted) continue
    else if (byte === COMMA) values++
    else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      values++
      deepest = Math.max(deepest, ++depth)
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) depth--
  }
  return { values, depth: deepest }
}

/** The ASCII character that an escape stands for; 0 for others. */
function unescaped(bytes: Buffer, at: number): number {
  const escaped = bytes[at + 1] as number
  if (escaped !== 0x75) return escaped === QUOTE || escaped === BACKSLASH ? escaped : 0
  if (bytes[at + 2] !== 0x30 || bytes[at + 3] !== 0x30) return 0
  const code = digit(bytes[at + 4] as number) * 16 + digit(bytes[at + 5] as number)
  return code < 0x80 ? code : 0
}

/** The value of a hexadecimal digit. */
function digit(byte: number): number {
  return byte <= 0x39 ? byte - 0x30 : (byte | 0x20) - 0x57
}
