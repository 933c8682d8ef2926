/** Reads the text of JSON strings from their bytes. */
import { BACKSLASH } from './bytes.ts'

/** The most bytes of a name that matters, if each of its letters is written as an escape. */
export const NAME_MAX = 200

/** The text of a JSON string. @param start the index of its opening quote */
export function stringAt(bytes: Buffer, start: number, end: number): string {
  if (end - start > NAME_MAX) {
    const text = bytes.subarray(start, end)
    return text.includes(BACKSLASH)
      ? (JSON.parse(text.toString('utf8')) as string)
      : text.toString('utf8', 1, text.length - 1)
  }
  for (let at = start; at < end; at++) {
    const byte = bytes[at] as number
    if (byte === BACKSLASH || byte > 0x7e) return JSON.parse(bytes.toString('utf8', start, end)) as string
  }
  return bytes.toString('latin1', start + 1, end - 1)
}

/** Whether a JSON string has this text. @param text printable ASCII without quotes and backslashes */
export function says(bytes: Buffer, start: number, end: number, text: string): boolean {
  const { length } = text
  const more = end - start - 2 - length
  if (more < 0) return false
  // Only a string with an escape has more bytes than its text.
  if (more > 0) return hasEscape(bytes, start, end) && stringAt(bytes, start, end) === text
  for (let at = 0; at < length; at++) if (bytes[start + 1 + at] !== text.charCodeAt(at)) return false
  return true
}

/** Whether a JSON string begins with this text, written without escapes. @param text printable ASCII without quotes and backslashes */
export function beginsWith(bytes: Buffer, start: number, end: number, text: string): boolean {
  const { length } = text
  if (end - start - 2 < length) return false
  for (let at = 0; at < length; at++) if (bytes[start + 1 + at] !== text.charCodeAt(at)) return false
  return true
}

/** Whether a string of at most NAME_MAX bytes has an escape. */
export function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  if (end - start > NAME_MAX) return false
  for (let at = start; at < end; at++) if (bytes[at] === BACKSLASH) return true
  return false
}
