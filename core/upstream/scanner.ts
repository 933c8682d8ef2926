/**
 * Looks at a stream's bytes without parsing them: finds where events end, which of them can tell something, and how much
 * model output they carry. Only events that somebody wants are handed to the SSE parser.
 */
import { createParser, type EventSourceParser } from 'eventsource-parser'
import { closingQuote } from '../bytes.ts'
import { frame, ReplyEvent, type Format, type Rewriter } from '../formats/index.ts'

const LF = 0x0a
const CR = 0x0d

/** The index just behind the last blank line of the bytes, where an event ends; 0 when there is none. */
export function lastBoundary(bytes: Buffer): number {
  const length = bytes.length
  if (length > 1 && bytes[length - 1] === LF && bytes[length - 2] === LF) return length
  const lf = bytes.lastIndexOf('\n\n')
  if (!bytes.includes(CR)) return lf + (lf === -1 ? 1 : 2)
  const crlf = bytes.lastIndexOf('\n\r\n')
  const cr = bytes.lastIndexOf('\r\r')
  return Math.max(lf === -1 ? 0 : lf + 2, crlf === -1 ? 0 : crlf + 3, cr === -1 ? 0 : cr + 2)
}

/** The index just behind the first blank line at or after `from`; the length when there is none. */
function nextBoundary(bytes: Buffer, from: number, hasCr: boolean): number {
  const behind = (text: string): number => {
    const at = bytes.indexOf(text, from)
    return at === -1 ? bytes.length : at + text.length
  }
  return hasCr ? Math.min(behind('\n\n'), behind('\n\r\n'), behind('\r\r')) : behind('\n\n')
}

/** Bytes of the JSON strings that are the values of the named members; escapes count as they stand. */
export function textBytes(bytes: Buffer, names: readonly string[]): number {
  let total = 0
  for (const name of names) {
    const needle = `"${name}":`
    let at = bytes.indexOf(needle)
    while (at !== -1) {
      let start = at + needle.length
      while (bytes[start] === 0x20) start++
      const end = bytes[start] === 0x22 ? closingQuote(bytes, start) : start
      if (end > start) total += end - start - 1
      at = bytes.indexOf(needle, end)
    }
  }
  return total
}

/** What is wanted of a stream. */
export interface Wanted {
  /** Every event, or only the telling ones. */
  readonly all: boolean
  readonly rewriters: readonly Rewriter[]
  onEvent(event: ReplyEvent): void
}

/** Goes through the whole events of one stream, in order. */
export class Scanner {
  /** The first event seen. */
  opening: ReplyEvent | undefined
  /** The stream has said that it is complete. */
  complete = false
  /** Bytes of model output so far. */
  delivered = 0
  readonly #format: Format
  readonly #wanted: Wanted
  /** Byte strings that make an event worth parsing; undefined when all are. */
  readonly #needles: readonly string[] | undefined
  readonly #parser: EventSourceParser
  #parsed: ReplyEvent[] = []

  constructor(format: Format, wanted: Wanted) {
    this.#format = format
    this.#wanted = wanted
    const everything = wanted.all || wanted.rewriters.some(rewriter => rewriter.needles === undefined)
    this.#needles = everything ? undefined : [...format.telling, ...wanted.rewriters.flatMap(rewriter => rewriter.needles ?? [])]
    this.#parser = createParser({
      onEvent: ({ event, data }) => this.#parsed.push(new ReplyEvent(format, event ?? '', data)),
    })
  }

  /**
   * Looks at bytes that end at an event's end.
   * @returns the bytes to send: the same buffer unless a rewriter changed something
   */
  push(bytes: Buffer): Buffer {
    this.delivered += textBytes(bytes, this.#format.text.stream)
    const changed: Buffer[] = []
    let sent = 0
    for (const { start, end } of this.#worthParsing(bytes)) {
      const instead = this.#look(bytes.subarray(start, end))
      if (instead === undefined) continue
      changed.push(bytes.subarray(sent, start), instead)
      sent = end
    }
    if (sent === 0) return bytes
    changed.push(bytes.subarray(sent))
    return Buffer.concat(changed)
  }

  *#worthParsing(bytes: Buffer): Generator<{ start: number; end: number }> {
    const hasCr = bytes.includes(CR)
    let at = 0
    if (!this.opening || !this.#needles) {
      // The opening event may be needed to end the stream in its format.
      while (at < bytes.length && (!this.opening || !this.#needles)) {
        const end = nextBoundary(bytes, at, hasCr)
        yield { start: at, end }
        at = end
      }
    }
    const hits = (this.#needles ?? []).map(needle => ({ needle, at: bytes.indexOf(needle, at) }))
    while (at < bytes.length) {
      let hit = -1
      for (const next of hits) {
        if (next.at !== -1 && next.at < at) next.at = bytes.indexOf(next.needle, at)
        if (next.at !== -1 && (hit === -1 || next.at < hit)) hit = next.at
      }
      if (hit === -1) return
      const start = at + lastBoundary(bytes.subarray(at, hit))
      const end = nextBoundary(bytes, hit, hasCr)
      yield { start, end }
      at = end
    }
  }

  /** Parses one event's bytes, closing the last one of a stream that leaves it open; returns what to send instead of them, if anything changed. */
  #look(bytes: Buffer): Buffer | undefined {
    this.#parsed = []
    this.#parser.feed(terminated(bytes))
    let changed = false
    const frames: string[] = []
    for (const event of this.#parsed) {
      this.opening ??= event
      if (event.reading.last) this.complete = true
      this.#wanted.onEvent(event)
      const instead = rewrite(this.#format, event, this.#wanted.rewriters)
      if (instead !== undefined) changed = true
      for (const out of instead ?? [event]) frames.push(frame(out.type, out.data))
    }
    return changed ? Buffer.from(frames.join('')) : undefined
  }
}

function terminated(bytes: Buffer): string {
  const text = bytes.toString('utf8')
  return lastBoundary(bytes) === bytes.length ? text : `${text}\n\n`
}

/** The first event of a stream's bytes; comments before it do not count. */
export function firstEvent(format: Format, bytes: Buffer): ReplyEvent | undefined {
  const hasCr = bytes.includes(CR)
  const events: ReplyEvent[] = []
  const parser = createParser({ onEvent: ({ event, data }) => events.push(new ReplyEvent(format, event ?? '', data)) })
  for (let at = 0; at < bytes.length && events.length === 0;) {
    const end = nextBoundary(bytes, at, hasCr)
    parser.feed(terminated(bytes.subarray(at, end)))
    at = end
  }
  return events[0]
}

/** An event as the rewriters leave it, each given what the one before made; undefined when none changed it. */
export function rewrite(format: Format, event: ReplyEvent, rewriters: readonly Rewriter[]): readonly ReplyEvent[] | undefined {
  const [first, ...others] = rewriters
  if (!first) return undefined
  const instead = first.event(event)
  if (instead === undefined) return rewrite(format, event, others)
  return instead.flatMap(({ type, data }) => {
    const made = new ReplyEvent(format, type, data)
    return rewrite(format, made, others) ?? [made]
  })
}
