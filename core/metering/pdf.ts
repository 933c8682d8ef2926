/**
 * Weighs a PDF without interpreting it fully: by its page objects, the children of its page trees, and the text in its
 * streams. If that would take long, or a page may be hidden, the PDF has no known weight.
 */
import { inflateSync } from 'node:zlib'

/** The visible size of a PDF. */
export interface PdfSize {
  readonly pages: number
  /** Bytes of the streams that put text on pages. */
  readonly textBytes: number
}

/** Bytes that may still be examined, in files and in unpacked streams. */
export interface Budget {
  bytes: number
}

/** Maximum bytes examined in all files of one request, including unpacked streams. */
export const BUDGET_BYTES = 24 * 1024 * 1024
/** Maximum unpacked streams. */
const STREAMS_MAX = 10_000
/** Maximum characters of a stream's dictionary. */
const DICTIONARY_MAX = 4000
/** Filters of images, which contain no text. */
const PICTURES = /\/(?:DCTDecode|JPXDecode|CCITTFaxDecode|JBIG2Decode)\b/
/** A letter that is written as a character code hides a name. */
const HIDDEN_NAME = /\/[A-Za-z]*#(?:4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])/i

/** Returns the size of a PDF. Undefined if it cannot be determined. */
export function pdfSize(bytes: Buffer, budget: Budget = { bytes: BUDGET_BYTES }): PdfSize | undefined {
  if ((budget.bytes -= bytes.length) < 0) return undefined
  const text = bytes.toString('latin1')
  if (text.includes('/Encrypt') || HIDDEN_NAME.test(text)) return undefined
  const parts = new Parts(bytes, text, budget)
  if (!parts.unpack()) return undefined
  const kids = parts.structures.flatMap(childrenIn)
  // A page that appears twice in a tree is shown twice.
  if (new Set(kids).size < kids.length) return undefined
  const pages = Math.max(
    kids.length,
    parts.structures.reduce((sum, text) => sum + pageObjectsIn(text), 0),
  )
  return pages === 0 ? undefined : { pages, textBytes: parts.textBytes }
}

/** The parts of a file that contain its structure: the file itself and its object streams. */
class Parts {
  readonly structures: string[]
  textBytes = 0
  readonly #bytes: Buffer
  readonly #text: string
  readonly #budget: Budget

  constructor(bytes: Buffer, text: string, budget: Budget) {
    this.#bytes = bytes
    this.#text = text
    this.#budget = budget
    this.structures = [text]
  }

  /** Unpacks all streams. @returns false if a stream cannot be unpacked or appears in an unexpected place */
  unpack(): boolean {
    let behind = 0
    for (let count = 0; ; count++) {
      const at = this.#begins(behind)
      const end = this.#text.indexOf('endstream', behind)
      if (at === -1) return end === -1
      // A stream whose beginning was not found hides its contents.
      if (end < at || count > STREAMS_MAX) return false
      const start = this.#text.startsWith('\r\n', at + 6) ? at + 8 : at + 7
      if (!this.#unpackOne(this.#dictionary(behind, at), this.#bytes.subarray(start, end))) return false
      behind = end + 9
    }
  }

  /** Returns where the next stream begins, directly after its dictionary. -1 if there is none. */
  #begins(from: number): number {
    let at = this.#text.indexOf('stream', from)
    while (at !== -1 && !/>>\s{0,4}$/.test(this.#text.slice(Math.max(0, at - 6), at)))
      at = this.#text.indexOf('stream', at + 6)
    return at
  }

  /** Returns the text between the beginning of an object and its stream, without strings and comments. */
  #dictionary(behind: number, at: number): string {
    const text = withoutTexts(this.#text.slice(Math.max(behind, at - DICTIONARY_MAX), at)).replace(/%[^\r\n]*/g, '')
    return text.slice(text.lastIndexOf('obj') + 3)
  }

  #unpackOne(dictionary: string, packed: Buffer): boolean {
    if (PICTURES.test(dictionary)) return true
    let plain = packed
    if (dictionary.includes('/Filter')) {
      const filters = dictionary.match(/\/\w+Decode\b/g) ?? []
      if (filters.length !== 1 || filters[0] !== '/FlateDecode') return false
      try {
        plain = inflateSync(packed, { maxOutputLength: Math.max(1, this.#budget.bytes) })
      } catch (thrown) {
        this.#budget.bytes -=
          (thrown as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? Infinity : packed.length
        return false
      }
    }
    if (plain !== packed && (this.#budget.bytes -= plain.length) < 0) return false
    const text = plain.toString('latin1')
    if (/\/Type\s*\/ObjStm/.test(dictionary)) this.structures.push(text)
    else if (/\bT[jJ]\b/.test(text)) this.textBytes += plain.length
    return true
  }
}

/** Removes strings in parentheses, in one pass. */
function withoutTexts(text: string): string {
  let left = ''
  let open = -1
  let from = 0
  for (let at = 0; at < text.length; at++) {
    const letter = text[at]
    if (letter === '(') open = at
    else if (open === -1) continue
    else if (letter === '\\') at++
    else if (letter === ')') {
      left += text.slice(from, open)
      from = at + 1
      open = -1
    }
  }
  return left + text.slice(from)
}

function pageObjectsIn(text: string): number {
  return text.match(/\/Type\s*\/Page(?![A-Za-z])/g)?.length ?? 0
}

/** Returns the references to children of page trees. */
function childrenIn(text: string): string[] {
  const children: string[] = []
  for (let at = text.indexOf('/Kids'); at !== -1;) {
    const open = text.indexOf('[', at)
    const close = open === -1 ? -1 : text.indexOf(']', open)
    if (close === -1) break
    for (const [child] of text.slice(open, close).matchAll(/(?<!\d)\d{1,10}\s{1,4}\d{1,5}\s{1,4}R\b/g))
      children.push(child)
    at = text.indexOf('/Kids', close)
  }
  return children
}
