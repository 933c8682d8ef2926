/** Makes texts from others safe to show on a terminal. */

/** The class of control characters, line separators, and characters that change the writing direction. */
const CLASS = String.raw`\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}`
const UNSEEN = new RegExp(`[${CLASS}]`, 'gu')

/** The pattern, for a JSON Schema, of a text that shows what it is, in one line. */
export const PLAIN_TEXT = `^[^${CLASS}]*$`
const PLAIN = new RegExp(PLAIN_TEXT, 'u')

/** Whether a text shows what it is, in one line. */
export function isPlain(text: string): boolean {
  return PLAIN.test(text)
}

/** Returns the escape of a character in JSON. */
export function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Replaces control characters by escapes as in JSON. Line breaks stay. */
export function printable(text: string): string {
  return text.replace(UNSEEN, character => (character === '\n' || character === '\t' ? character : escaped(character)))
}

/** Like `printable`, for a part of one line: line breaks and tabs are replaced as well. */
export function inOneLine(text: string): string {
  return printable(text.replaceAll('\n', '\\n').replaceAll('\t', '\\t'))
}
