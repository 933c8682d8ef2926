/** Looking at JSON without parsing it. */

export const QUOTE = 0x22
export const OPEN_OBJECT = 0x7b
export const CLOSE_OBJECT = 0x7d
export const OPEN_ARRAY = 0x5b
export const CLOSE_ARRAY = 0x5d
export const COLON = 0x3a
export const COMMA = 0x2c
const BACKSLASH = 0x5c

/** The index of the quote that closes the JSON string opened at `open`; the length when it is never closed. */
export function closingQuote(bytes: Buffer, open: number): number {
  let at = open
  for (;;) {
    at = bytes.indexOf(QUOTE, at + 1)
    if (at === -1) return bytes.length
    let slashes = 0
    while (bytes[at - 1 - slashes] === BACKSLASH) slashes++
    if (slashes % 2 === 0) return at
  }
}

/** The elements of a JSON list, each as its bytes. */
export function elementsOf(list: Buffer): Buffer[] {
  const elements: Buffer[] = []
  let depth = 0
  let start = 1
  for (let at = 0; at < list.length; at++) {
    const byte = list[at]
    if (byte === QUOTE) at = closingQuote(list, at)
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) depth++
    else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) depth--
    if ((byte === COMMA && depth === 1) || depth === 0) {
      const element = trimmed(list.subarray(start, at))
      if (element.length > 0) elements.push(element)
      start = at + 1
    }
  }
  return elements
}

function trimmed(bytes: Buffer): Buffer {
  let [start, end] = [0, bytes.length]
  while (start < end && (bytes[start] ?? 0) <= 0x20) start++
  while (end > start && (bytes[end - 1] ?? 0) <= 0x20) end--
  return bytes.subarray(start, end)
}
