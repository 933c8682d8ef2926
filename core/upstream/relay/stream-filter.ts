/**
 * Filters for a stream's bytes. The pass-through filter leaves them unchanged except for selected events, which alone
 * are parsed. The translating filter parses and translates all of them.
 */
import { createParser, type EventSourceParser } from 'eventsource-parser'
import { ReplyEvent, type Format, type Rewriter, type StreamTranslation } from '../../formats/index.ts'
import { BlankLines, eventsIn, framed, terminated } from './sse.ts'
import { EventFilter, OutputBytes } from './event-filter.ts'

/** What the stages want to see of a stream. */
export interface Wanted {
  /** Whether they want every event, instead of only those with signals. */
  readonly all: boolean
  readonly rewriters: readonly Rewriter[]
  onEvent(event: ReplyEvent): void
}

/** Processes the whole events of one stream, in order. */
export interface StreamFilter {
  /** Bytes of model output so far. */
  readonly delivered: number
  /** Why the stream cannot continue, if so. */
  readonly broken?: unknown
  /**
   * Processes bytes that end at an event's end.
   * @returns the bytes to send
   */
  push(bytes: Buffer): Buffer
}

/** Passes a stream's bytes through, except for events that a rewriter changes. */
export class PassThroughFilter implements StreamFilter {
  readonly #format: Format
  readonly #wanted: Wanted
  readonly #eventFilter: EventFilter
  readonly #edits: readonly NonNullable<Rewriter['edit']>[]
  #looked = false

  constructor(format: Format, wanted: Wanted) {
    this.#format = format
    this.#wanted = wanted
    const others = wanted.rewriters.filter(({ matches }) => matches !== format.signals)
    const all = wanted.all || others.some(({ matches }) => matches === undefined)
    this.#eventFilter = new EventFilter(format, all ? undefined : others.flatMap(({ matches = [] }) => matches))
    this.#edits = all ? [] : others.flatMap(rewriter => (rewriter.edit ? [rewriter.edit] : []))
  }

  get delivered(): number {
    return this.#eventFilter.output.bytes
  }

  push(bytes: Buffer): Buffer {
    const latin1 = bytes.toString('latin1')
    const edited = this.#edits.reduce((text, edit) => edit(text), latin1)
    return edited === latin1 ? this.#rewrite(bytes, latin1) : this.#rewrite(Buffer.from(edited, 'latin1'), edited)
  }

  #rewrite(bytes: Buffer, latin1: string): Buffer {
    const changed: Buffer[] = []
    let sent = 0
    for (const { start, end } of this.#eventFilter.select(latin1, new BlankLines(bytes, latin1))) {
      const instead = this.#look(bytes.subarray(start, end))
      if (instead === undefined) continue
      changed.push(bytes.subarray(sent, start), instead)
      sent = end
    }
    if (sent === 0) return bytes
    changed.push(bytes.subarray(sent))
    return Buffer.concat(changed)
  }

  /**
   * Parses the bytes of one event, adding a missing blank line at the end of a stream. Returns the replacement, if
   * anything changed.
   */
  #look(bytes: Buffer): Buffer | undefined {
    let changed = false
    const out: ReplyEvent[] = []
    const events = eventsIn(this.#format, bytes, !this.#looked)
    this.#looked = true
    for (const event of events) {
      this.#eventFilter.output.addName(event.reading.nameBytes ?? 0)
      this.#wanted.onEvent(event)
      const instead = rewrite(this.#format, event, this.#wanted.rewriters)
      if (instead !== undefined) changed = true
      out.push(...(instead ?? [event]))
    }
    return changed ? Buffer.from(framed(out)) : undefined
  }
}

/** Translates a stream. Every event is parsed, and none is sent as it came. */
export class TranslatingFilter implements StreamFilter {
  broken: unknown
  readonly #output: OutputBytes
  readonly #client: Format
  readonly #wanted: Wanted
  readonly #translation: StreamTranslation
  #out: ReplyEvent[] = []
  readonly #parser: EventSourceParser

  constructor(upstream: Format, client: Format, translation: StreamTranslation, wanted: Wanted) {
    this.#output = new OutputBytes(upstream.text)
    this.#client = client
    this.#wanted = wanted
    this.#translation = translation
    this.#parser = createParser({
      onEvent: ({ event, data }) => this.#look(new ReplyEvent(upstream, event ?? '', data)),
    })
  }

  get delivered(): number {
    return this.#output.bytes
  }

  push(bytes: Buffer): Buffer {
    this.#output.take(bytes.toString('latin1'))
    this.#out = []
    this.#parser.feed(terminated(bytes))
    return Buffer.from(framed(rewritten(this.#client, this.#out, this.#wanted.rewriters)))
  }

  #look(event: ReplyEvent): void {
    // The client has its complete reply. A failure after its end has no effect.
    if (this.broken !== undefined) return
    try {
      if (this.#translation.over && event.reading.failure) return
      this.#output.addName(event.reading.nameBytes ?? 0)
      this.#wanted.onEvent(event)
      for (const out of this.#translation.event(event)) this.#out.push(out)
    } catch (thrown) {
      // What was translated before the failure is still sent.
      this.broken = thrown
    }
  }
}

/** Applies rewriters to events. A rewriter gets only the events that it may want to change. */
export function rewritten(
  format: Format,
  events: readonly ReplyEvent[],
  rewriters: readonly Rewriter[],
): readonly ReplyEvent[] {
  const wanted = ({ data }: ReplyEvent): boolean =>
    rewriters.some(({ matches }) => matches?.some(match => standsIn(match, data)) ?? true)
  return events.flatMap(event => (wanted(event) ? (rewrite(format, event, rewriters) ?? [event]) : [event]))
}

/** The beginning of a data line. */
const FIELD = 'data: '

/** Returns whether a match occurs in the data of an event. */
function standsIn(match: string | RegExp, data: string): boolean {
  if (match instanceof RegExp) return match.test(data)
  return match.startsWith(FIELD) ? data.startsWith(match.slice(FIELD.length)) : data.includes(match)
}

/** Applies rewriters to one event, one after the other. Undefined if none changed it. */
export function rewrite(
  format: Format,
  event: ReplyEvent,
  rewriters: readonly Rewriter[],
): readonly ReplyEvent[] | undefined {
  const [first, ...others] = rewriters
  if (!first) return undefined
  const instead = first.event(event)
  if (instead === undefined) return rewrite(format, event, others)
  return instead.flatMap(each => {
    const made =
      each instanceof ReplyEvent ? each : new ReplyEvent(format, each.type, each.data, { comment: each.comment })
    return rewrite(format, made, others) ?? [made]
  })
}
