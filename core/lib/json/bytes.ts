/** The bytes that structure JSON. */

/** `"` */
export const QUOTE = 0x22
/** `{` */
export const OPEN_OBJECT = 0x7b
/** `}` */
export const CLOSE_OBJECT = 0x7d
/** `[` */
export const OPEN_ARRAY = 0x5b
/** `]` */
export const CLOSE_ARRAY = 0x5d
/** `:` */
export const COLON = 0x3a
/** `,` */
export const COMMA = 0x2c
/** `\` */
export const BACKSLASH = 0x5c

/**
 * The number of commas, opening brackets and line breaks. JSON has hardly more values than that, and a stream hardly
 * more events.
 */
export function separatorsIn(bytes: Buffer): number {
  let count = 0
  for (let at = 0; at < bytes.length; at++) count += SEPARATORS[bytes[at] as number] as number
  return count
}

/** By byte: 1 for a separator. */
const SEPARATORS = new Uint8Array(256)
SEPARATORS[0x0a] = SEPARATORS[COMMA] = SEPARATORS[OPEN_OBJECT] = SEPARATORS[OPEN_ARRAY] = 1
