/**
 * Weighs a PDF without reading it as one: by its page objects, the children of its page trees, and the text that its streams
 * hold. Whatever would take long, or can hide a page, makes it one that cannot be weighed.
 */
import { inflateSync } from 'node:zlib'

/** What a PDF shows of its size. */
export interface PdfSize {
  readonly pages: number
  /** Bytes of the streams that put text on pages. */
  readonly textBytes: number
}

/** Bytes of a file, and of all that is unpacked of it, that are looked at. */
const FILE_MAX = 8 * 1024 * 1024
const UNPACKED_MAX = 16 * 1024 * 1024
/** Streams that are unpacked. */
const STREAMS_MAX = 10_000
/** Filters of pictures, which hold no text. */
const PICTURES = /\/(?:DCTDecode|JPXDecode|CCITTFaxDecode|JBIG2Decode)\b/
/** A letter of a name that is written as its number hides the name. */
const HIDDEN_NAME = /\/[A-Za-z]*#(?:4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])/i

/** The size of a PDF; undefined when it does not show it. */
export function pdfSize(bytes: Buffer): PdfSize | undefined {
  if (bytes.length > FILE_MAX) return undefined
  const text = bytes.toString('latin1')
  if (text.includes('/Encrypt') || HIDDEN_NAME.test(text)) return undefined
  const parts = new Parts(bytes, text)
  if (!parts.unpack()) return undefined
  const kids = parts.structures.flatMap(childrenIn)
  // A page that stands in a tree twice is shown twice.
  if (new Set(kids).size < kids.length) return undefined
  const pages = Math.max(
    kids.length,
    parts.structures.reduce((sum, text) => sum + pageObjectsIn(text), 0),
  )
  return pages === 0 ? undefined : { pages, textBytes: parts.textBytes }
}

/** The parts of a file in which its structure stands: the file itself, and the object streams in it. */
class Parts {
  readonly structures: string[]
  textBytes = 0
  readonly #bytes: Buffer
  readonly #text: string
  #left = UNPACKED_MAX

  constructor(bytes: Buffer, text: string) {
    this.#bytes = bytes
    this.#text = text
    this.structures = [text]
  }

  /** Unpacks all streams. @returns false when one of them cannot be */
  unpack(): boolean {
    let behind = 0
    for (let count = 0; ; count++) {
      const at = this.#next(behind)
      if (at === -1) return true
      const start = this.#text.startsWith('\r\n', at + 6) ? at + 8 : at + 7
      const end = this.#text.indexOf('endstream', start)
      if (end === -1 || count > STREAMS_MAX) return false
      // The dictionary of a stream stands right before it.
      const dictionary = this.#text.slice(Math.max(behind, at - 2000), at)
      if (!this.#unpackOne(dictionary.slice(dictionary.lastIndexOf('obj') + 3), this.#bytes.subarray(start, end))) return false
      behind = end + 9
    }
  }

  /** Where the next stream begins, right behind its dictionary; -1 when there is none. */
  #next(from: number): number {
    let at = this.#text.indexOf('stream', from)
    while (at !== -1 && !/>>\s{0,4}$/.test(this.#text.slice(Math.max(0, at - 6), at))) at = this.#text.indexOf('stream', at + 6)
    return at
  }

  #unpackOne(dictionary: string, packed: Buffer): boolean {
    if (PICTURES.test(dictionary)) return true
    let plain = packed
    if (dictionary.includes('/Filter')) {
      const filters = dictionary.match(/\/\w+Decode\b/g) ?? []
      if (filters.length !== 1 || filters[0] !== '/FlateDecode') return false
      try {
        plain = inflateSync(packed, { maxOutputLength: this.#left })
      } catch {
        return false
      }
    }
    if ((this.#left -= plain.length) <= 0) return false
    const text = plain.toString('latin1')
    if (/\/Type\s*\/ObjStm/.test(dictionary)) this.structures.push(text)
    else if (/\bT[jJ]\b/.test(text)) this.textBytes += plain.length
    return true
  }
}

function pageObjectsIn(text: string): number {
  return text.match(/\/Type\s*\/Page(?![A-Za-z])/g)?.length ?? 0
}

/** References to the children of page trees. */
function childrenIn(text: string): string[] {
  const children: string[] = []
  for (let at = text.indexOf('/Kids'); at !== -1;) {
    const open = text.indexOf('[', at)
    const close = open === -1 ? -1 : text.indexOf(']', open)
    if (close === -1) break
    children.push(...(text.slice(open, close).match(/\d+\s+\d+\s+R/g) ?? []))
    at = text.indexOf('/Kids', close)
  }
  return children
}
