/** Makes texts from others safe to show on a terminal. */

/** Control characters, line separators, and characters that change the writing direction. */
const UNSEEN = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/** Replaces control characters by escapes as in JSON. Line breaks stay. */
export function printable(text: string): string {
  return text.replace(UNSEEN, character =>
    character === '\n' || character === '\t'
      ? character
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** Like `printable`, for a part of one line: line breaks and tabs are replaced as well. */
export function inOneLine(text: string): string {
  return printable(text.replaceAll('\n', '\\n').replaceAll('\t', '\\t'))
}
