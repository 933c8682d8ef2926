/**
 * Finds the events that are worth parsing in the text of a stream, and counts the bytes of model output. The text is
 * latin-1, one character per byte, since texts are searched faster than bytes.
 */
import { LRUCache } from 'lru-cache'
import type { Format, OutputText } from '../../formats/index.ts'
import type { BlankLines } from './sse.ts'

/** Returns the bytes of output in a JSON reply: of the strings that are values of its members. Escapes count as written. */
export function outputBytes(latin1: string, { reply }: OutputText): number {
  return bytesBehind(
    latin1,
    expressionOf(reply, () => beginningOf({ stream: reply, reply })),
  )
}

/** The bytes of model output in the events of a stream, as they arrive. */
export class OutputBytes {
  readonly #text: OutputText
  /** Bytes that events add. */
  #added = 0
  /** Bytes of the parts that other events repeat as a whole. */
  #whole = 0
  /** Bytes of the names of calls. */
  #names = 0

  constructor(text: OutputText) {
    this.#text = text
  }

  /** Some upstreams send only the whole parts. */
  get bytes(): number {
    return Math.max(this.#added, this.#whole) + this.#names
  }

  /** Counts the output in whole events. */
  take(latin1: string): void {
    const { stream, whole } = this.#text
    this.#added += bytesBehind(
      latin1,
      expressionOf(stream, () => beginningOf(this.#text)),
    )
    if (whole)
      this.#whole += bytesBehind(
        latin1,
        expressionOf(whole.members, () => wholeOf(whole)),
      )
  }

  /** Counts the name of a call. */
  addName(bytes: number): void {
    this.#names += bytes
  }

  /** Counts text that an event adds. */
  add(bytes: number): void {
    this.#added += bytes
  }

  /** Counts text that an event repeats. */
  addWhole(bytes: number): void {
    this.#whole += bytes
  }
}

/** Returns the total bytes of the texts whose beginnings an expression finds. */
function bytesBehind(latin1: string, expression: RegExp): number {
  let total = 0
  for (expression.lastIndex = 0; expression.test(latin1);) {
    const start = expression.lastIndex
    const end = closingQuote(latin1, start)
    total += end - start
    expression.lastIndex = end
  }
  return total
}

/** Compiled expressions, by the list of a format from which each is made. */
const expressions = new WeakMap<readonly string[], RegExp>()

function expressionOf(names: readonly string[], source: () => string): RegExp {
  let expression = expressions.get(names)
  if (!expression) expressions.set(names, (expression = new RegExp(source(), 'g')))
  return expression
}

/** Returns the source of an expression that finds the opening quotes of the texts that events add, as its only group. */
function beginningOf({ stream, repeats }: OutputText): string {
  const isNew = repeats === undefined ? '' : `(?<!${escaped(repeats)})`
  return `"(?:${anyOf(stream)})" ?: *(")${isNew}`
}

/** Returns the source of an expression that finds the opening quotes of repeated texts, as its only group. */
function wholeOf({ types, members }: NonNullable<OutputText['whole']>): string {
  // Anchored at the beginning of an event, so that a text which repeats the types cannot make the search long.
  return `data: *{"type": *"[\\w.]*(?:${anyOf(types)})"[^\\r\\n]*?"(?:${anyOf(members)})": *(")`
}

function sourceOf(match: string | RegExp): string {
  return typeof match === 'string' ? escaped(match) : match.source
}

function anyOf(words: readonly string[]): string {
  return words.map(escaped).join('|')
}

function escaped(word: string): string {
  return word.replace(/[$()*+./?[\\\]^{|}]/g, '\\$&')
}

/** Returns the index of the quote that closes the JSON string whose text begins at `start`. */
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
  /** Whether the expression also finds the beginnings of texts, and its other matches cannot occur inside a text. */
  readonly measuresText: boolean
}

/** Matches every event. */
const EVERY: Search = { expression: /[^]/g, measuresText: false }

/** Streams of one kind share their expressions. */
const searches = new LRUCache<string, Search>({ max: 100 })

function searchFor(format: Format, matches: readonly (string | RegExp)[]): Search {
  const name = matches.length === 0 ? format.name : JSON.stringify([format.name, ...matches.map(sourceOf)])
  let search = searches.get(name)
  if (!search) searches.set(name, (search = makeSearch(format, matches)))
  return search
}

function makeSearch({ signals, text }: Format, matches: readonly (string | RegExp)[]): Search {
  const sources = matches.map(sourceOf)
  // Quotes inside a text are escaped, so such a word is no part of one, whatever must not follow it.
  const measures = sources.every(source => {
    const word = /^"(\w+)"(?:\(\?!.*\))?$/.exec(source)?.[1]
    return word !== undefined && !text.stream.includes(word)
  })
  const words = [...signals.map(sourceOf), ...sources].join('|')
  return {
    expression: new RegExp([...(measures ? textsOf(text) : []), words].join('|'), 'g'),
    measuresText: measures,
  }
}

/** The beginnings of texts: the first group is that of added ones, the second one that of repeated ones. */
function textsOf(text: OutputText): string[] {
  return text.whole ? [beginningOf(text), wholeOf(text.whole)] : [beginningOf(text)]
}

/** The position of one event in a text. */
export interface Span {
  readonly start: number
  readonly end: number
}

/** The event filter of one stream. */
export class EventFilter {
  readonly output: OutputBytes
  readonly #search: Search

  /**
   * @param matches what makes an event worth parsing, besides the format's own signals; if undefined or if it contains
   * an empty string, every event is
   */
  constructor(format: Format, matches: readonly (string | RegExp)[] | undefined) {
    this.output = new OutputBytes(format.text)
    this.#search = matches && !matches.includes('') ? searchFor(format, matches) : EVERY
  }

  /**
   * Returns the events that are worth parsing, in order.
   * @param latin1 whole events
   */
  select(latin1: string, lines: BlankLines): readonly Span[] {
    const { expression, measuresText } = this.#search
    if (!measuresText) this.output.take(latin1)
    const found: Span[] = []
    /** The end of the last event that was found, and the end of the last text. */
    let passed = 0
    let measured = 0
    /** Whether nothing was found since that text. */
    let plain = false
    for (expression.lastIndex = 0; ;) {
      const hit = expression.exec(latin1)
      if (!hit) return found
      if (hit[2] !== undefined) {
        plain = false
        const start = expression.lastIndex
        measured = expression.lastIndex = closingQuote(latin1, start)
        this.output.addWhole(measured - start)
      } else if (hit[1] === undefined) {
        plain = false
        if (hit.index < passed) continue
        const start = lines.last(passed, hit.index)
        passed = lines.next(hit.index)
        found.push({ start, end: passed })
        if (!measuresText) expression.lastIndex = passed
      } else if (expression.lastIndex > measured) {
        // The bytes between two texts often repeat, and then contain no more signals than before.
        const between = plain ? latin1.slice(measured, expression.lastIndex) : undefined
        let start = expression.lastIndex
        for (;;) {
          measured = closingQuote(latin1, start)
          this.output.add(measured - start)
          expression.lastIndex = start
          if (between === undefined || latin1.slice(measured, measured + between.length) !== between) break
          start = measured + between.length
        }
        plain = true
      }
    }
  }
}
