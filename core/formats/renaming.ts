/** Replaces a string in the text of a reply. All other bytes stay the same. */
import { lru } from '../lib/lru.ts'

/**
 * The data of an event, or a JSON reply, in which the string at a path is another one.
 * @param path names of members, from the root on. If no string stands there, the data is returned unchanged
 */
export function renamed(data: string, path: readonly string[], name: string): string {
  const span = spanOf(data, path)
  return span ? data.slice(0, span.start) + JSON.stringify(name) + data.slice(span.end) : data
}

/** Where the string at a path stands, quotes included. One pass over the text. */
function spanOf(json: string, path: readonly string[]): { start: number; end: number } | undefined {
  let depth = 0
  /** How many members of the path have been entered. */
  let inside = 0
  let entering = false
  let found: { start: number; end: number } | undefined
  for (let at = 0; at < json.length; at++) {
    switch (json[at]) {
      case '{':
      case '[':
        depth++
        if (entering && json[at] === '{') inside++
        entering = false
        break
      case '}':
      case ']':
        depth--
        inside = Math.min(inside, Math.max(depth - 1, 0))
        break
      case '"': {
        entering = false
        const end = stringEnd(json, at)
        const value = depth === inside + 1 ? valueAfter(json, end) : undefined
        if (value !== undefined && textOf(json, at, end) === path[inside]) {
          // If several members have the name, the last one counts.
          if (inside < path.length - 1) entering = true
          else if (json[value] === '"') found = { start: value, end: stringEnd(json, value) }
        }
        at = end - 1
        break
      }
      default:
        // Only an object can be entered.
        if (entering && !/[\s:]/.test(json[at] as string)) entering = false
    }
  }
  return found
}

/** Returns the text of a string in JSON, whose quotes are at the ends of the range. */
function textOf(json: string, start: number, end: number): unknown {
  const text = json.slice(start + 1, end - 1)
  return text.includes('\\') ? JSON.parse(json.slice(start, end)) : text
}

/** The index after the quote that ends the string which begins at `start`. */
function stringEnd(json: string, start: number): number {
  for (let at = json.indexOf('"', start + 1); at !== -1; at = json.indexOf('"', at + 1)) {
    let slashes = 0
    while (json[at - 1 - slashes] === '\\') slashes++
    if (slashes % 2 === 0) return at + 1
  }
  return json.length
}

/** The index of a member's value, if a name ends at `end`; undefined otherwise. */
function valueAfter(json: string, end: number): number | undefined {
  let at = end
  while (/\s/.test(json[at] ?? '')) at++
  if (json[at] !== ':') return undefined
  at++
  while (/\s/.test(json[at] ?? '')) at++
  return at
}

/** What `ModelRenamer` looks for. */
const MODEL = '"model"'
const NAME = MODEL.slice(1)
/** A beginning of an event in which `model` can only be a member of the event's own object. */
const FLAT = /^data: ?\{(?:[^{}[\]\\\r]*,)?$/
/** Another line break, or an escaped letter, with which the name of the member could be spelled once more. */
const UNUSUAL = /\r|\\u00[46]/i
const ESCAPED = String.raw`\u00`

/**
 * Renames the model in the events of a stream, as latin-1 text. It changes an event of one line in which `model` stands
 * before anything nested, once, with the name that is expected. Other events have to be parsed: `unlikeNew` finds them.
 */
export class ModelRenamer {
  /** Finds what may be the member with another value than the new name. */
  readonly unlikeNew: RegExp
  #from = ''
  readonly #to: string
  /** The beginning of the last event that was changed. */
  #flat = ''

  /** @param from the name that is expected, if it is known yet */
  constructor(from: string | undefined, to: string) {
    if (from !== undefined) this.expect(from)
    const { latin1, unlike } = nameOf(to)
    this.#to = latin1
    this.unlikeNew = unlike
  }

  /** Sets the name that is expected. */
  expect(from: string): void {
    this.#from = nameOf(from).latin1
  }

  edit(latin1: string): string {
    if (this.#from === '') return latin1
    const hasUnusual = latin1.includes('\r') || latin1.includes(ESCAPED)
    let edited = ''
    let copied = 0
    let at = nextModel(latin1, 0)
    while (at !== -1) {
      const end = endOfLine(latin1, at)
      let next = nextModel(latin1, at + MODEL.length)
      const isOnce = next === -1 || next > end
      const value = at + MODEL.length + (latin1[at + MODEL.length + 1] === ' ' ? 2 : 1)
      if (
        isOnce &&
        latin1[at + MODEL.length] === ':' &&
        latin1.startsWith(this.#from, value) &&
        this.#isOwn(latin1, at, end) &&
        !(hasUnusual && UNUSUAL.test(latin1.slice(at, end)))
      ) {
        edited += latin1.slice(copied, value) + this.#to
        copied = value + this.#from.length
      }
      if (!isOnce) next = nextModel(latin1, end)
      at = next
    }
    return copied === 0 ? latin1 : edited + latin1.slice(copied)
  }

  /** Whether what begins at `at` is a member of the own object of an event that is a whole line, which ends at `end`. */
  #isOwn(latin1: string, at: number, end: number): boolean {
    if (!latin1.startsWith('\n\n', end)) return false
    // The events of a stream begin alike.
    const { length } = this.#flat
    let start = at - length
    if (length === 0 || !latin1.startsWith(this.#flat, start)) {
      start = latin1.lastIndexOf('\n', at) + 1
      const beginning = latin1.slice(start, at)
      if (!FLAT.test(beginning)) return false
      this.#flat = beginning
    }
    return start === 0 || (latin1[start - 1] === '\n' && latin1[start - 2] === '\n')
  }
}

/** Returns where `"model"` stands next; -1 if it does not. Looking for the quote first would stop at each of them. */
function nextModel(latin1: string, from: number): number {
  let at = latin1.indexOf(NAME, from)
  while (at > 0 && latin1[at - 1] !== '"') at = latin1.indexOf(NAME, at + 1)
  return Math.max(-1, at - 1)
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf('\n', from)
  return end === -1 ? text.length : end
}

/** A name as a JSON string in latin-1, one character per byte, and what finds a model with another name. */
interface Name {
  readonly latin1: string
  readonly unlike: RegExp
}

const names = lru<string, Name>(1000)

function nameOf(name: string): Name {
  let known = names.get(name)
  if (!known) {
    const latin1 = Buffer.from(JSON.stringify(name)).toString('latin1')
    names.set(name, (known = { latin1, unlike: new RegExp(`"model"(?!: ?${RegExp.escape(latin1)})`) }))
  }
  return known
}
