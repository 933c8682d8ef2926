/** Counts the pages of a PDF without reading it as one: by its page objects, its counts and the children of its page trees. */
import { inflateSync } from 'node:zlib'

/** Bytes of object streams that are unpacked in all. */
const UNPACKED_MAX = 16 * 1024 * 1024
const PAGE = /\/Type\s*\/Page(?![A-Za-z])/g
const COUNT = /\/Count\s+(\d{1,7})/g
const KIDS = /\/Kids\s*\[([^\]]*)\]/g

/** The most pages that the file can be taken to have; undefined when it does not show any. */
export function pdfPages(bytes: Buffer): number | undefined {
  const text = bytes.toString('latin1')
  const unpacked = objectStreams(bytes, text)
  if (unpacked === undefined) return undefined
  const parts = [text, ...unpacked]
  const found = (pattern: RegExp): RegExpExecArray[] => parts.flatMap(part => [...part.matchAll(pattern)])
  const kids = found(KIDS).reduce((sum, [, refs = '']) => sum + (refs.match(/\bR\b/g)?.length ?? 0), 0)
  const pages = Math.max(found(PAGE).length, kids, ...found(COUNT).map(([, count]) => Number(count)))
  return pages === 0 ? undefined : pages
}

/** Objects that a file keeps compressed; undefined when they cannot be unpacked. */
function objectStreams(bytes: Buffer, text: string): string[] | undefined {
  const streams: string[] = []
  let left = UNPACKED_MAX
  for (const { index } of text.matchAll(/\/Type\s*\/ObjStm\b/g)) {
    const begins = /stream\r?\n/g
    begins.lastIndex = index
    const start = begins.exec(text)
    const end = text.indexOf('endstream', index)
    if (!start || end === -1) return undefined
    try {
      const stream = inflateSync(bytes.subarray(start.index + start[0].length, end), { maxOutputLength: left })
      left -= stream.length
      streams.push(stream.toString('latin1'))
    } catch {
      return undefined
    }
    if (left <= 0) return undefined
  }
  return streams
}
