/**
 * Looks at a stream's bytes without parsing them: finds which events can tell something, and how much model output they
 * carry. Only events that somebody wants are handed to the SSE parser.
 */
import { createParser, type EventSourceParser } from 'eventsource-parser'
import { LRUCache } from 'lru-cache'
import { ReplyEvent, type Format, type Rewriter, type StreamTranslation } from '../formats/index.ts'
import { blankLines, eventsIn, framed, nextBoundary, previousBoundary, terminated } from './sse.ts'

/**
 * Bytes of the JSON strings that are the values of the named members; escapes count as they stand.
 * @param latin1 the bytes as a latin-1 string: one character a byte, and searched faster than a buffer
 * @param names an array that stays: the expression that looks for them is kept with it
 */
export function textBytes(latin1: string, names: readonly string[]): number {
  const opening = expressionOf(names, () => `"(?:${anyOf(names)})": *"`)
  let total = 0
  for (opening.lastIndex = 0; opening.test(latin1);) {
    const start = opening.lastIndex
    const end = closingQuote(latin1, start)
    total += end - start
    opening.lastIndex = end
  }
  return total
}

/** Expressions of the formats' own words: one for all of them goes through the bytes once. */
const expressions = new WeakMap<readonly string[], RegExp>()

function expressionOf(words: readonly string[], source: () => string): RegExp {
  let expression = expressions.get(words)
  if (!expression) expressions.set(words, (expression = new RegExp(source(), 'g')))
  return expression
}

/** Expressions of words that rewriters have brought; streams of one kind have the same ones. */
const searches = new LRUCache<string, RegExp>({ max: 100 })

function searchFor(needles: readonly string[]): RegExp {
  const name = JSON.stringify(needles)
  let search = searches.get(name)
  if (!search) searches.set(name, (search = new RegExp(anyOf(needles), 'g')))
  return search
}

function anyOf(words: readonly string[]): string {
  return words.map(literal).join('|')
}

function literal(text: string): string {
  return text.replace(/[$()*+./?[\\\]^{|}]/g, '\\$&')
}

/** The index of the quote that closes the JSON string whose text begins at `start`. */
function closingQuote(latin1: string, start: number): number {
  for (let at = start; ; at++) {
    at = latin1.indexOf('"', at)
    if (at === -1) return latin1.length
    let slashes = 0
    while (at - 1 - slashes >= start && latin1.charCodeAt(at - 1 - slashes) === 0x5c) slashes++
    if (slashes % 2 === 0) return at
  }
}

/** What is wanted of a stream. */
export interface Wanted {
  /** Every event, or only the telling ones. */
  readonly all: boolean
  readonly rewriters: readonly Rewriter[]
  onEvent(event: ReplyEvent): void
}

/** Goes through the whole events of one stream, in order. */
export interface Passage {
  /** Bytes of model output so far. */
  readonly delivered: number
  /** What goes to the client may be other bytes than came. */
  readonly changes: boolean
  /** Why nothing more can come of the stream, once that is so. */
  readonly broken?: unknown
  /**
   * Looks at bytes that end at an event's end.
   * @returns the bytes to send
   */
  push(bytes: Buffer): Buffer
}

/** Stands in every event. */
const EVERY = new RegExp('', 'g')

/** Lets a stream's bytes pass as they are, but for events that a rewriter changes. */
export class Scanner implements Passage {
  /** Bytes of model output so far. */
  delivered = 0
  readonly changes: boolean
  readonly #format: Format
  readonly #wanted: Wanted
  /** Finds what makes an event worth parsing; any of them may be. */
  readonly #telling: RegExp
  readonly #strikes: readonly RegExp[]
  #looked = false

  constructor(format: Format, wanted: Wanted) {
    this.#format = format
    this.#wanted = wanted
    this.changes = wanted.rewriters.length > 0
    const { telling } = format
    const others = wanted.rewriters.filter(({ needles }) => needles !== telling)
    if (wanted.all || others.some(({ needles }) => needles === undefined)) this.#telling = EVERY
    else if (others.length === 0) this.#telling = expressionOf(telling, () => anyOf(telling))
    else this.#telling = searchFor([...telling, ...others.flatMap(({ needles = [] }) => needles)])
    this.#strikes = this.#telling === EVERY ? [] : others.flatMap(({ strikes }) => strikes ?? [])
  }

  push(bytes: Buffer): Buffer {
    const latin1 = bytes.toString('latin1')
    this.delivered += textBytes(latin1, this.#format.text.stream)
    const left = this.#strikes.reduce((text, strike) => text.replace(strike, ''), latin1)
    return left === latin1 ? this.#rewrite(bytes, latin1) : this.#rewrite(Buffer.from(left, 'latin1'), left)
  }

  #rewrite(bytes: Buffer, latin1: string): Buffer {
    const changed: Buffer[] = []
    let sent = 0
    for (const { start, end } of this.#worthParsing(latin1, blankLines(bytes))) {
      const instead = this.#look(bytes.subarray(start, end))
      if (instead === undefined) continue
      changed.push(bytes.subarray(sent, start), instead)
      sent = end
    }
    if (sent === 0) return bytes
    changed.push(bytes.subarray(sent))
    return Buffer.concat(changed)
  }

  *#worthParsing(latin1: string, ends: readonly string[]): Generator<{ start: number; end: number }> {
    const search = this.#telling
    for (let at = 0; at < latin1.length;) {
      search.lastIndex = at
      const hit = search.exec(latin1)?.index
      if (hit === undefined) return
      const start = Math.max(at, previousBoundary(latin1, hit, ends))
      at = nextBoundary(latin1, hit, ends)
      yield { start, end: at }
    }
  }

  /** Parses one event's bytes, closing the last one of a stream that leaves it open; returns what to send instead of them, if anything changed. */
  #look(bytes: Buffer): Buffer | undefined {
    let changed = false
    const out: ReplyEvent[] = []
    const events = eventsIn(this.#format, bytes, !this.#looked)
    this.#looked = true
    for (const event of events) {
      this.#wanted.onEvent(event)
      const instead = rewrite(this.#format, event, this.#wanted.rewriters)
      if (instead !== undefined) changed = true
      out.push(...(instead ?? [event]))
    }
    return changed ? Buffer.from(framed(out)) : undefined
  }
}

/** Translates a stream: every event is read, and none goes out as it came. */
export class Translator implements Passage {
  delivered = 0
  broken: unknown
  readonly changes = true
  readonly #upstream: Format
  readonly #client: Format
  readonly #wanted: Wanted
  readonly #translation: StreamTranslation
  #out: ReplyEvent[] = []
  readonly #parser: EventSourceParser

  constructor(upstream: Format, client: Format, translation: StreamTranslation, wanted: Wanted) {
    this.#upstream = upstream
    this.#client = client
    this.#wanted = wanted
    this.#translation = translation
    this.#parser = createParser({ onEvent: ({ event, data }) => this.#look(new ReplyEvent(upstream, event ?? '', data)) })
  }

  push(bytes: Buffer): Buffer {
    this.delivered += textBytes(bytes.toString('latin1'), this.#upstream.text.stream)
    this.#out = []
    this.#parser.feed(terminated(bytes))
    return Buffer.from(framed(rewritten(this.#client, this.#out, this.#wanted.rewriters)))
  }

  #look(event: ReplyEvent): void {
    // A failure after the end is nobody's: the client has its reply, and it is whole.
    if (this.broken !== undefined) return
    try {
      if (this.#translation.over && event.reading.failure) return
      this.#wanted.onEvent(event)
      for (const out of this.#translation.event(event)) this.#out.push(out)
    } catch (thrown) {
      // What was told before goes out all the same.
      this.broken = thrown
    }
  }
}

/** Events as the rewriters leave them; one is asked only about those it may want. */
export function rewritten(format: Format, events: readonly ReplyEvent[], rewriters: readonly Rewriter[]): readonly ReplyEvent[] {
  const wanted = ({ data }: ReplyEvent): boolean => rewriters.some(({ needles }) => needles?.some(needle => `data: ${data}`.includes(needle)) ?? true)
  return events.flatMap(event => (wanted(event) ? (rewrite(format, event, rewriters) ?? [event]) : [event]))
}

/** An event as the rewriters leave it, each given what the one before made; undefined when none changed it. */
export function rewrite(format: Format, event: ReplyEvent, rewriters: readonly Rewriter[]): readonly ReplyEvent[] | undefined {
  const [first, ...others] = rewriters
  if (!first) return undefined
  const instead = first.event(event)
  if (instead === undefined) return rewrite(format, event, others)
  return instead.flatMap(({ type, data, comment }) => {
    const made = new ReplyEvent(format, type, data, comment)
    return rewrite(format, made, others) ?? [made]
  })
}
