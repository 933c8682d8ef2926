/** Server-sent events in bytes: their boundaries and contents. */
import { createParser } from 'eventsource-parser'
import { frame, ReplyEvent, type Format } from '../../formats/index.ts'

const LF = 0x0a
const CR = 0x0d

const SPELLINGS_OF_LF = ['\n\n']
const SPELLINGS = ['\n\n', '\n\r\n', '\r\r']

/** Returns the index after the last blank line, where an event ends. 0 if there is none. */
export function lastBoundary(bytes: Buffer): number {
  const length = bytes.length
  if (length > 1 && bytes[length - 1] === LF && bytes[length - 2] === LF) return length
  let last = 0
  for (const blank of bytes.includes(CR) ? SPELLINGS : SPELLINGS_OF_LF) {
    const at = bytes.lastIndexOf(blank)
    if (at !== -1) last = Math.max(last, at + blank.length)
  }
  return last
}

/** Returns the index after the first blank line at or after `from`, or the number of bytes if no blank line follows. */
export function nextBoundary(bytes: Buffer, from: number): number {
  let first = bytes.length
  for (const blank of SPELLINGS) {
    const at = bytes.indexOf(blank, from)
    if (at !== -1) first = Math.min(first, at + blank.length)
  }
  return first
}

const BLANK = /\n\r?\n|\r\r/g

/** The blank lines of a text. If `next` is called with increasing indices, the whole text is scanned only once. */
export class BlankLines {
  readonly #text: string
  readonly #plain: boolean

  /** @param latin1 the same bytes as text, one character per byte */
  constructor(bytes: Buffer, latin1 = bytes.toString('latin1')) {
    this.#text = latin1
    // Searching a buffer for one byte is much faster than searching a text.
    this.#plain = !bytes.includes(CR)
  }

  /** Returns the index after the first blank line at or after `from`, or the length if there is none. */
  next(from: number): number {
    if (this.#plain) {
      const at = this.#text.indexOf('\n\n', from)
      return at === -1 ? this.#text.length : at + 2
    }
    BLANK.lastIndex = from
    return BLANK.test(this.#text) ? BLANK.lastIndex : this.#text.length
  }

  /** Returns the index after the last blank line between two indices, or the first index if there is none. */
  last(from: number, to: number): number {
    if (this.#plain) {
      const at = this.#text.lastIndexOf('\n\n', to - 2)
      return at < from ? from : at + 2
    }
    let last = from
    for (let end = this.next(from); end <= to; end = this.next(end)) last = end
    return last
  }
}

/** Returns the text of events, with a blank line added if the last event lacks it. */
export function terminated(bytes: Buffer): string {
  const text = bytes.toString('utf8')
  return lastBoundary(bytes) === bytes.length ? text : `${text}\n\n`
}

/**
 * Parses events. The last one may lack its blank line.
 * @param beginning whether a stream begins here, so that a byte order mark is skipped
 */
export function eventsIn(format: Format, bytes: Buffer, beginning: boolean): ReplyEvent[] {
  const events: ReplyEvent[] = []
  const parser = createParser({
    onEvent: ({ event = '', data }) => events.push(new ReplyEvent(format, event, data)),
  })
  if (!beginning) parser.feed('\n')
  parser.feed(terminated(bytes))
  return events
}

/** Returns the first event of a stream, skipping comments. */
export function firstEvent(format: Format, bytes: Buffer): ReplyEvent | undefined {
  // A text of comments alone need not be parsed.
  if (!bytes.includes('data')) return undefined
  const lines = new BlankLines(bytes)
  for (let at = 0; at < bytes.length;) {
    const end = lines.next(at)
    const [event] = eventsIn(format, bytes.subarray(at, end), at === 0)
    if (event) return event
    at = end
  }
  return undefined
}

/** Serializes events as one text. */
export function framed(events: readonly ReplyEvent[]): string {
  return events.map(({ type, data, comment }) => frame(type, data, comment)).join('')
}
