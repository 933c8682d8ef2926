/**
 * Looks through a stream's text for the events that are worth parsing, and measures the model output in it. The text is
 * latin-1, one character for each byte: it is searched faster than bytes are.
 */
import { LRUCache } from 'lru-cache'
import type { Format } from '../formats/index.ts'
import type { BlankLines } from './sse.ts'

/**
 * Bytes of the JSON strings that are the values of the named members; escapes count as they stand.
 * @param names an array that stays: the expression that looks for them is kept with it
 */
export function textBytes(latin1: string, names: readonly string[]): number {
  let expression = expressions.get(names)
  if (!expression) expressions.set(names, (expression = new RegExp(beginningOf(names), 'g')))
  let total = 0
  for (expression.lastIndex = 0; expression.test(latin1);) {
    const start = expression.lastIndex
    const end = closingQuote(latin1, start)
    total += end - start
    expression.lastIndex = end
  }
  return total
}

const expressions = new WeakMap<readonly string[], RegExp>()

/** The source of an expression that finds the opening quotes of the named members' texts, as its only group. */
function beginningOf(names: readonly string[]): string {
  return `"(?:${anyOf(names)})": *(")`
}

function anyOf(words: readonly string[]): string {
  return words.map(word => word.replace(/[$()*+./?[\\\]^{|}]/g, '\\$&')).join('|')
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

interface Search {
  readonly expression: RegExp
  /** It finds the beginnings of texts as well, and nothing else that it finds can stand in a text. */
  readonly measuresText: boolean
}

/** Stands in every event. */
const EVERY: Search = { expression: /[^]/g, measuresText: false }

/** Streams of one kind have the same ones. */
const searches = new LRUCache<string, Search>({ max: 100 })

function searchFor(format: Format, matches: readonly string[]): Search {
  const name = matches.length === 0 ? format.name : JSON.stringify([format.name, ...matches])
  let search = searches.get(name)
  if (!search) searches.set(name, (search = makeSearch(format, matches)))
  return search
}

function makeSearch({ signals, text }: Format, matches: readonly string[]): Search {
  // Inside a text quotes are escaped.
  const measures = matches.every(match => /^"\w+"$/.test(match) && !text.stream.includes(match.slice(1, -1)))
  const words = anyOf([...signals, ...matches])
  return {
    expression: new RegExp(measures ? `${beginningOf(text.stream)}|${words}` : words, 'g'),
    measuresText: measures,
  }
}

/** Where one event stands in a text. */
export interface Span {
  readonly start: number
  readonly end: number
}

export class EventFilter {
  /** Bytes of model output so far. */
  delivered = 0
  readonly #format: Format
  readonly #search: Search

  /** @param matches what makes an event worth parsing beside what its format tells something by; undefined, or an empty one, where each event is */
  constructor(format: Format, matches: readonly string[] | undefined) {
    this.#format = format
    this.#search = matches && !matches.includes('') ? searchFor(format, matches) : EVERY
  }

  /**
   * The events that are worth parsing, in order.
   * @param latin1 whole events
   */
  select(latin1: string, lines: BlankLines): readonly Span[] {
    const { expression, measuresText } = this.#search
    if (!measuresText) this.delivered += textBytes(latin1, this.#format.text.stream)
    const found: Span[] = []
    /** Where the last event that was found ends, and the last text. */
    let passed = 0
    let measured = 0
    /** Nothing was found since that text. */
    let plain = false
    for (expression.lastIndex = 0; ;) {
      const hit = expression.exec(latin1)
      if (!hit) return found
      if (hit[1] === undefined) {
        plain = false
        if (hit.index < passed) continue
        const start = lines.last(passed, hit.index)
        passed = lines.next(hit.index)
        found.push({ start, end: passed })
        if (!measuresText) expression.lastIndex = passed
      } else if (expression.lastIndex > measured) {
        // What stands between one text and the next is often the same again, and then tells as little as before.
        const between = plain ? latin1.slice(measured, expression.lastIndex) : undefined
        let start = expression.lastIndex
        for (;;) {
          measured = closingQuote(latin1, start)
          this.delivered += measured - start
          expression.lastIndex = start
          if (between === undefined || latin1.slice(measured, measured + between.length) !== between) break
          start = measured + between.length
        }
        plain = true
      }
    }
  }
}
