/** Server-sent events in a stream's bytes: where they end, and what stands in them. */
import { createParser, type EventSourceMessage } from 'eventsource-parser'
import { frame, ReplyEvent, type Format } from '../formats/index.ts'

const LF = 0x0a
const CR = 0x0d

/** The index just behind the last blank line of the bytes, where an event ends; 0 when there is none. */
export function lastBoundary(bytes: Buffer): number {
  const length = bytes.length
  if (length > 1 && bytes[length - 1] === LF && bytes[length - 2] === LF) return length
  return previousBoundary(bytes, length, blankLines(bytes))
}

/** Bytes, or a text that has one character for each. */
interface Searched {
  readonly length: number
  indexOf(text: string, from: number): number
  lastIndexOf(text: string, from: number): number
}

const LINES_OF_LF = ['\n\n']
const LINES_OF_ALL = ['\n\n', '\n\r\n', '\r\r']

/** The spellings of a blank line that can stand in a stream. A single byte is found in a buffer much sooner than a text. */
export function blankLines(bytes: Buffer): readonly string[] {
  return bytes.includes(CR) ? LINES_OF_ALL : LINES_OF_LF
}

/** The index just behind the first blank line at or after `from`; the length when there is none. */
export function nextBoundary(bytes: Searched, from: number, ends: readonly string[]): number {
  let nearest = bytes.length
  for (const end of ends) {
    const at = bytes.indexOf(end, from)
    if (at !== -1) nearest = Math.min(nearest, at + end.length)
  }
  return nearest
}

/** The index just behind the last blank line before `before`; 0 when there is none. */
export function previousBoundary(bytes: Searched, before: number, ends: readonly string[]): number {
  let nearest = 0
  for (const end of ends) {
    const at = bytes.lastIndexOf(end, before - 1)
    if (at !== -1) nearest = Math.max(nearest, at + end.length)
  }
  return nearest
}

/** The text of events; the last of them is closed where it lacks its end. */
export function terminated(bytes: Buffer): string {
  const text = bytes.toString('utf8')
  return lastBoundary(bytes) === bytes.length ? text : `${text}\n\n`
}

const found: EventSourceMessage[] = []
const parser = createParser({ onEvent: event => found.push(event) })

/**
 * The events of bytes that begin with one; the last of them may lack its end.
 * @param beginning they are a stream's first, where a byte order mark does not count
 */
export function eventsIn(format: Format, bytes: Buffer, beginning: boolean): ReplyEvent[] {
  parser.reset()
  if (!beginning) parser.feed('\n')
  parser.feed(terminated(bytes))
  return found.splice(0).map(({ event, data }) => new ReplyEvent(format, event ?? '', data))
}

/** The first event of a stream's bytes; comments before it do not count. */
export function firstEvent(format: Format, bytes: Buffer): ReplyEvent | undefined {
  const ends = blankLines(bytes)
  for (let at = 0; at < bytes.length;) {
    const end = nextBoundary(bytes, at, ends)
    const [event] = eventsIn(format, bytes.subarray(at, end), at === 0)
    if (event) return event
    at = end
  }
  return undefined
}

/** Events as one text. */
export function framed(events: readonly ReplyEvent[]): string {
  return events.map(({ type, data, comment }) => frame(type, data, comment)).join('')
}
