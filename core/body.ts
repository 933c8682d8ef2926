/**
 * A request's JSON body: checked once, and sent on as the very bytes that came, with single top-level members spliced.
 * What is checked and what is sent come from one pass over one buffer, so no second reading can differ from the first.
 */
import { isUtf8 } from 'node:buffer'
import { closingQuote } from './bytes.ts'
import { GatewayError } from './errors.ts'
import { type Contents, contentsOf } from './formats/contents.ts'

/** Deepest nesting of objects and arrays; deeper bodies serve nobody but those who attack parsers. */
const MAX_DEPTH = 64
interface Span {
  readonly start: number
  readonly end: number
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
  readonly #edits = new Map<string, unknown>()
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
    if (this.#edits.has(name)) return this.#edits.get(name)
    return Object.hasOwn(this.json, name) ? this.json[name] : undefined
  }

  /** The parsed body as it will be sent. */
  whole(): Readonly<Record<string, unknown>> {
    if (this.#edits.size + this.#removed.size === 0) return this.json
    return Object.fromEntries(Object.entries({ ...this.json, ...Object.fromEntries(this.#edits) }).filter(([name]) => !this.#removed.has(name)))
  }

  /** Replaces or adds one top-level member in what will be sent; all other bytes stay. */
  set(name: string, value: unknown): void {
    this.#removed.delete(name)
    this.#edits.set(name, value)
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
    const added = edits.filter(([name]) => !this.#spans.has(name)).map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`)
    const splices = edits.flatMap(([name, value]) => {
      const span = this.#spans.get(name)
      return span ? [{ start: span.start, end: span.end, text: JSON.stringify(value) }] : []
    })
    if (added.length > 0) splices.push({ start: this.#first, end: this.#first, text: added.join(',') + (this.#spans.size > 0 ? ',' : '') })
    splices.sort((a, b) => a.start - b.start)
    const parts: Buffer[] = []
    let at = 0
    for (const { start, end, text } of splices) {
      parts.push(this.received.subarray(at, start), Buffer.from(text))
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
      const value = this.#edits.has(name) ? Buffer.from(JSON.stringify(this.#edits.get(name))) : this.received.subarray(span.start, span.end)
      add(this.received.subarray(span.name, span.start), value)
    }
    for (const [name, value] of this.#edits) if (!this.#spans.has(name)) add(Buffer.from(`${JSON.stringify(name)}:${JSON.stringify(value)}`))
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

const QUOTE = 0x22
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d
const OPEN_ARRAY = 0x5b
const CLOSE_ARRAY = 0x5d
const COLON = 0x3a
const COMMA = 0x2c

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
          if (this.#depth > MAX_DEPTH) throw invalid(`The request body is nested more than ${MAX_DEPTH} levels deep.`)
          break
        case CLOSE_OBJECT:
        case CLOSE_ARRAY:
          if (--this.#depth === 0) this.#endMember(at)
          break
        case COLON:
          if (this.#depth === 1) this.#startMember({ start: stringStart, end: stringEnd }, at + 1)
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

  #endMember(end: number): void {
    if (this.#valueStart === 0) return
    let start = this.#valueStart
    let stop = end
    while (isSpace(this.#bytes[start])) start++
    while (isSpace(this.#bytes[stop - 1])) stop--
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

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}

/** A byte that can be part of a number; the `e` of `true` is one too and does no harm. */
function isNumeric(byte: number | undefined): boolean {
  if (byte === undefined) return false
  return (byte >= 0x30 && byte <= 0x39) || byte === 0x2b || byte === 0x2d || byte === 0x2e || byte === 0x65 || byte === 0x45
}
