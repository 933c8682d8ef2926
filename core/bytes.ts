/** Looking at JSON without parsing it. */

const QUOTE = 0x22
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
