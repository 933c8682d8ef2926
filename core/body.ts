/**
 * A request's JSON body: checked once, and sent on as the very bytes that came, with single top-level members spliced.
 * What is checked and what is sent come from one pass over one buffer, so no second reading can differ from the first.
 */
import { isUtf8 } from 'node:buffer'
import { CLOSE_ARRAY, CLOSE_OBJECT, closingQuote, COLON, COMMA, elementsOf, OPEN_ARRAY, OPEN_OBJECT, QUOTE } from './bytes.ts'
import { GatewayError } from './errors.ts'
import { type Contents, contentsOf } from './formats/contents.ts'

/** Deepest nesting of objects and arrays; deeper bodies serve nobody but those who attack parsers. */
const MAX_DEPTH = 64
/** Most top-level members. */
const MAX_MEMBERS = 1000

interface Span {
  readonly start: number
  readonly end: number
}

/** What a member is to be instead. */
interface Edit {
  readonly value: unknown
  /** Its JSON. */
  readonly bytes: Buffer
  /** Of a list, the JSON of each element. */
  readonly elements?: readonly Buffer[]
}

/** Where a member's value stands, and where its name begins. */
interface Member extends Span {
  readonly name: number
}

export class Body {
  /** The bytes as they came. */
  readonly received: Buffer
  /** The parsed body; edits do not show in it, `get` does. */
  readonly json: Readonly<Record<string, unknown>>
  readonly #spans: ReadonlyMap<string, Member>
  readonly #first: number
  readonly #edits = new Map<string, Edit>()
  readonly #removed = new Set<string>()
  #contents: Contents | undefined

  /**
   * @throws GatewayError invalid_body for anything but a JSON object in UTF-8 with distinct top-level members, at most
   * 64 levels deep, whose numbers are all finite
   */
  constructor(received: Buffer) {
    this.received = received
    const scan = new Scanner(received).run()
    this.json = parse(received)
    this.#spans = scan.members
    this.#first = scan.first
  }

  /** What it holds beside its text. */
  get contents(): Contents {
    return (this.#contents ??= contentsOf(this.whole()))
  }

  /** A top-level member as it will be sent. */
  get(name: string): unknown {
    if (this.#removed.has(name)) return undefined
    const edit = this.#edits.get(name)
    if (edit) return edit.value
    return Object.hasOwn(this.json, name) ? this.json[name] : undefined
  }

  /** The parsed body as it will be sent. */
  whole(): Readonly<Record<string, unknown>> {
    if (this.#edits.size + this.#removed.size === 0) return this.json
    return Object.fromEntries(
      Object.entries({ ...this.json, ...Object.fromEntries([...this.#edits].map(([name, { value }]) => [name, value])) }).filter(
        ([name]) => !this.#removed.has(name),
      ),
    )
  }

  /** Replaces or adds one top-level member in what will be sent; all other bytes stay. */
  set(name: string, value: unknown): void {
    this.#edit(name, { value, bytes: Buffer.from(JSON.stringify(value)) })
  }

  /**
   * Changes the elements of a top-level list in what will be sent. An element that `change` returns as it was keeps its bytes;
   * one for which it returns undefined is left out. A member that is not a list stays as it is.
   */
  change(name: string, change: (element: unknown, index: number) => unknown): void {
    const before = this.get(name)
    if (!Array.isArray(before)) return
    const span = this.#spans.get(name)
    const edit = this.#edits.get(name)
    const raw = edit ? (edit.elements ?? []) : span ? elementsOf(this.received.subarray(span.start, span.end)) : []
    const kept = before.flatMap((element: unknown, index) => {
      const value = change(element, index)
      return value === undefined ? [] : [{ value, bytes: value === element && raw[index] ? raw[index] : Buffer.from(JSON.stringify(value)) }]
    })
    if (kept.length === before.length && kept.every(({ value }, index) => value === before[index])) return
    const elements = kept.map(({ bytes }) => bytes)
    const commas = elements.flatMap((bytes, index) => (index === 0 ? [bytes] : [Buffer.from(','), bytes]))
    this.#edit(name, { value: kept.map(({ value }) => value), bytes: Buffer.concat([Buffer.from('['), ...commas, Buffer.from(']')]), elements })
  }

  #edit(name: string, edit: Edit): void {
    this.#removed.delete(name)
    this.#edits.set(name, edit)
    if (name === 'tools') this.#contents = undefined
  }

  /** Leaves one top-level member out of what will be sent. */
  remove(name: string): void {
    this.#edits.delete(name)
    this.#removed.add(name)
    this.#contents = undefined
  }

  /** The bytes to send. */
  bytes(): Buffer {
    if (this.#removed.size > 0) return this.#joined()
    if (this.#edits.size === 0) return this.received
    const edits = [...this.#edits]
    const added = edits.filter(([name]) => !this.#spans.has(name)).map(([name, { bytes }]) => `${JSON.stringify(name)}:${bytes.toString('utf8')}`)
    const splices = edits.flatMap(([name, { bytes }]) => {
      const span = this.#spans.get(name)
      return span ? [{ start: span.start, end: span.end, bytes }] : []
    })
    if (added.length > 0) splices.push({ start: this.#first, end: this.#first, bytes: Buffer.from(added.join(',') + (this.#spans.size > 0 ? ',' : '')) })
    splices.sort((a, b) => a.start - b.start)
    const parts: Buffer[] = []
    let at = 0
    for (const { start, end, bytes } of splices) {
      parts.push(this.received.subarray(at, start), bytes)
      at = end
    }
    parts.push(this.received.subarray(at))
    return Buffer.concat(parts)
  }

  /** The members that are left, in their order, each as it came but for its edits. */
  #joined(): Buffer {
    const parts: Buffer[] = []
    const add = (...pieces: Buffer[]): void => void parts.push(Buffer.from(parts.length === 0 ? '{' : ','), ...pieces)
    for (const [name, span] of this.#spans) {
      if (this.#removed.has(name)) continue
      add(this.received.subarray(span.name, span.start), this.#edits.get(name)?.bytes ?? this.received.subarray(span.start, span.end))
    }
    for (const [name, { bytes }] of this.#edits) if (!this.#spans.has(name)) add(Buffer.from(`${JSON.stringify(name)}:`), bytes)
    return Buffer.concat([...parts, Buffer.from(parts.length === 0 ? '{}' : '}')])
  }
}

function invalid(message: string, param?: string): GatewayError {
  return new GatewayError('invalid_body', { message, ...(param !== undefined && { param }) })
}

function parse(bytes: Buffer): Readonly<Record<string, unknown>> {
  if (!isUtf8(bytes)) throw invalid('The request body is not valid UTF-8.')
  let json: unknown
  try {
    json = JSON.parse(bytes.toString('utf8'))
  } catch {
    throw invalid('The request body is not valid JSON.')
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) throw invalid('The request body must be a JSON object.')
  return json as Readonly<Record<string, unknown>>
}

/**
 * Walks the bytes before any parser sees them: bounds the nesting and notes where the top-level members stand. What it
 * finds in bytes that are no JSON is of no use, but then parsing fails and nobody asks.
 */
class Scanner {
  readonly members = new Map<string, Member>()
  /** Just behind the opening brace: where a new member goes. */
  first = 0
  readonly #bytes: Buffer
  #depth = 0
  /** Of the objects that are open, the names in them that must not stand twice, as bits. */
  readonly #named: number[] = []
  #name = ''
  #nameStart = 0
  #valueStart = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  run(): this {
    const bytes = this.#bytes
    let stringStart = 0
    let stringEnd = 0
    for (let at = 0; at < bytes.length; at++) {
      switch (bytes[at]) {
        case QUOTE: {
          stringStart = at
          stringEnd = closingQuote(bytes, at) + 1
          at = stringEnd - 1
          break
        }
        case OPEN_OBJECT:
        case OPEN_ARRAY:
          if (++this.#depth === 1) this.first = at + 1
          this.#named[this.#depth] = 0
          if (this.#depth > MAX_DEPTH) throw invalid(`The request body is nested more than ${MAX_DEPTH} levels deep.`)
          break
        case CLOSE_OBJECT:
        case CLOSE_ARRAY:
          if (--this.#depth === 0) this.#endMember(at)
          break
        case COLON:
          if (this.#depth === 1) this.#startMember({ start: stringStart, end: stringEnd }, at + 1)
          else this.#checkInner(stringStart, stringEnd)
          break
        case COMMA:
          if (this.#depth === 1) this.#endMember(at)
          break
        default:
          if (isNumeric(bytes[at])) at = this.#skipNumber(at) - 1
      }
    }
    return this
  }

  #startMember(key: Span, value: number): void {
    const quoted = this.#bytes.toString('utf8', key.start, key.end)
    try {
      // Most names say what they are as they stand.
      this.#name = /^"[ !#-[\]-~]*"$/.test(quoted) ? quoted.slice(1, -1) : (JSON.parse(quoted) as string)
    } catch {
      throw invalid('The request body is not valid JSON.')
    }
    this.#nameStart = key.start
    this.#valueStart = value
    if (this.members.has(this.#name)) {
      throw invalid(`The request body names "${this.#name.slice(0, 64)}" twice.`, this.#name.slice(0, 64))
    }
  }

  /** Of a name that stands twice some parsers believe the first, and others the last: it must not say what a part or a tool is. */
  #checkInner(start: number, end: number): void {
    // The shortest and the longest of them, with their quotes; an escape makes a name longer.
    if (end - start < 4 || end - start > 200) return
    const quoted = this.#bytes.toString('latin1', start, end)
    const bit = TELLING_NAMES.get(quoted.includes('\\') ? unescaped(quoted) : quoted.slice(1, -1))
    if (bit === undefined) return
    const named = this.#named[this.#depth] ?? 0
    if ((named & bit) !== 0) throw invalid(`The request body names ${quoted} twice in one object.`)
    this.#named[this.#depth] = named | bit
  }

  #endMember(end: number): void {
    if (this.#valueStart === 0) return
    let start = this.#valueStart
    let stop = end
    while (isSpace(this.#bytes[start])) start++
    while (isSpace(this.#bytes[stop - 1])) stop--
    if (this.members.size >= MAX_MEMBERS) throw invalid(`The request body has more than ${MAX_MEMBERS} members.`)
    this.members.set(this.#name, { name: this.#nameStart, start, end: stop })
    this.#valueStart = 0
  }

  /** Numbers beyond the range of a double would reach the parser as infinity and the upstream as themselves. */
  #skipNumber(start: number): number {
    let end = start + 1
    while (isNumeric(this.#bytes[end])) end++
    if (end - start > 4 && !Number.isFinite(Number(this.#bytes.toString('latin1', start, end)))) {
      const text = this.#bytes.toString('latin1', start, Math.min(end, start + 32))
      if (/^-?\d/.test(text)) throw invalid(`The request body holds a number out of range: ${text}`)
    }
    return end
  }
}

/** Names that say what a part of a request is, or what it refers to; each has a bit of its own. */
const TELLING_NAMES: ReadonlyMap<string, number> = new Map(
  ['type', 'id', 'file_id', 'model', 'role', 'content', 'source', 'container', 'container_id', 'environment', 'vector_store_ids', 'file_ids', 'skill_id'].map(
    (name, index) => [name, 1 << index],
  ),
)

function unescaped(quoted: string): string {
  try {
    return JSON.parse(quoted) as string
  } catch {
    return quoted
  }
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}

/** A byte that can be part of a number; the `e` of `true` is one too and does no harm. */
function isNumeric(byte: number | undefined): boolean {
  if (byte === undefined) return false
  return (byte >= 0x30 && byte <= 0x39) || byte === 0x2b || byte === 0x2d || byte === 0x2e || byte === 0x65 || byte === 0x45
}
