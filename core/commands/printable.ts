/** What a terminal may be shown of texts that others have chosen. */

/** Control characters, line separators, and characters that turn the direction of a line around. */
const UNSEEN = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/** A text of one line or several in which nothing controls the terminal: control characters stand as escapes, as in JSON. */
export function printable(text: string): string {
  return text.replace(UNSEEN, character =>
    character === '\n' || character === '\t'
      ? character
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** A text that is a part of one line: it has no line breaks and no tabs either. */
export function inOneLine(text: string): string {
  return printable(text.replaceAll('\n', '\\n').replaceAll('\t', '\\t'))
}
