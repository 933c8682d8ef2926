/** Texts of JSON strings and words, read from their bytes. */
import { BACKSLASH } from './bytes.ts'

/** The most bytes of a name that anybody looks for, each letter of it as an escape. */
export const NAME_MAX = 200

/** Bytes that are all ASCII, as text. */
export function latin1(bytes: Buffer, start: number, end: number): string {
  return bytes.toString('latin1', start, end)
}

/** The text of the JSON string that stands in these bytes, its quotes included. */
export function stringAt(bytes: Buffer, start: number, end: number): string {
  if (end - start > NAME_MAX) {
    const text = bytes.subarray(start, end)
    return text.includes(BACKSLASH) ? (JSON.parse(text.toString('utf8')) as string) : text.toString('utf8', 1, text.length - 1)
  }
  for (let at = start; at < end; at++) {
    const byte = bytes[at] as number
    if (byte === BACKSLASH || byte > 0x7e) return JSON.parse(bytes.toString('utf8', start, end)) as string
  }
  return latin1(bytes, start + 1, end - 1)
}
