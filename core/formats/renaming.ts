/** Replaces a string in the text of a reply. All other bytes stay the same. */

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
const MODEL = '"model":'
/** A beginning of an event in which `model` can only be a member of the event's own object. */
const FLAT = /^data: ?\{(?:[^{}[\]\\\r]*,)?$/
/** Another line break, or an escaped letter, with which the name of the member could be spelled once more. */
const UNUSUAL = /\r|\\u00[46]/i

/**
 * Renames the model in the events of a stream, as latin-1 text. It changes an event of one line in which `model` stands
 * before anything nested, once, with the name that is expected. Other events have to be parsed: `unlikeNew` finds them.
 */
export class ModelRenamer {
  /** Finds what may be the member with another value than the new name. */
  readonly unlikeNew: RegExp
  #from = ''
  readonly #to: string

  /** @param from the name that is expected, if it is known yet */
  constructor(from: string | undefined, to: string) {
    if (from !== undefined) this.expect(from)
    this.#to = latin1Of(to)
    this.unlikeNew = new RegExp(`"model"(?!: ?${RegExp.escape(this.#to)})`)
  }

  /** Sets the name that is expected. */
  expect(from: string): void {
    this.#from = latin1Of(from)
  }

  edit(latin1: string): string {
    if (this.#from === '') return latin1
    let edited = ''
    let copied = 0
    for (let at = latin1.indexOf(MODEL); at !== -1;) {
      const start = latin1.lastIndexOf('\n', at) + 1
      const end = endOfLine(latin1, at)
      const value = at + MODEL.length + (latin1[at + MODEL.length] === ' ' ? 1 : 0)
      if (latin1.startsWith(this.#from, value) && isUsual(latin1, { start, at, end })) {
        edited += latin1.slice(copied, value) + this.#to
        copied = value + this.#from.length
      }
      at = latin1.indexOf(MODEL, end)
    }
    return copied === 0 ? latin1 : edited + latin1.slice(copied)
  }
}

/** Whether a line is a whole event with `model` in its own object, and nothing else there may be this member. */
function isUsual(latin1: string, { start, at, end }: { start: number; at: number; end: number }): boolean {
  const isAlone = (start === 0 || latin1[start - 2] === '\n') && latin1.startsWith('\n\n', end)
  if (!isAlone || !FLAT.test(latin1.slice(start, at))) return false
  const rest = latin1.slice(at + MODEL.length, end)
  return !rest.includes('"model"') && !UNUSUAL.test(rest)
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf('\n', from)
  return end === -1 ? text.length : end
}

/** Returns a text as a JSON string in latin-1, one character per byte. */
function latin1Of(text: string): string {
  return Buffer.from(JSON.stringify(text)).toString('latin1')
}
