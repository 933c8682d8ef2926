/**
 * A request's JSON body: checked once, while it arrives, and sent on as the very bytes that came, with single top-level members
 * spliced. What is checked and what is sent come from one pass over one buffer, so no second reading can differ from the first.
 */
import { type Contents, ContentsReader } from './contents.ts'
import { measuring } from '../lib/json/escapes.ts'
import type { JsonScanner } from '../lib/json/scanner.ts'
import type { Tape } from '../lib/json/tape.ts'
import { JsonView } from '../lib/json/view.ts'
import { turn } from '../lib/turns.ts'

/** Milliseconds for which a body is looked through before others get their turn, and the steps between two looks at the clock. */
const SLICE_MS = 1
const STEPS = 8

/** Indices of texts that are measured before others get their turn. */
const TEXTS_AT_ONCE = 1000

/** What a member is to be instead. */
interface Edit {
  readonly value: unknown
  /** Its JSON. */
  readonly bytes: Buffer
  /** Of a list, the JSON of each element. */
  readonly elements?: readonly Buffer[]
}

/** Members that hold the conversation, which may be as large as the body. */
export const CONVERSATION: ReadonlySet<string> = new Set(['messages', 'input', 'system'])

export class Body {
  /** The bytes as they came. */
  readonly received: Buffer
  /** How many values it holds. */
  readonly values: number
  readonly #innerTexts: readonly number[]
  readonly #tape: Tape
  /** By name of a top-level member, the entry of that name. */
  readonly #members: ReadonlyMap<string, number>
  readonly #edits = new Map<string, Edit>()
  readonly #removed = new Set<string>()
  /** Members as they were parsed. */
  readonly #parsed = new Map<string, unknown>()
  readonly #contentsReader = new ContentsReader(this)
  #contents: Contents | undefined

  /** @param scanner that has read all of it */
  constructor(received: Buffer, scanner: JsonScanner) {
    this.received = received
    this.values = scanner.values
    this.#innerTexts = scanner.inner
    this.#tape = scanner.tape
    this.#members = scanner.names
  }

  /** What it holds beside its text. @throws GatewayError invalid_body where that makes no sense */
  get contents(): Contents {
    return (this.#contents ??= this.#contentsReader.contents())
  }

  /** Looks through the conversation, and lets others have their turn meanwhile: `contents` is quick after that. @throws GatewayError as `contents` does */
  async readContents(): Promise<void> {
    const walk = this.#contentsReader.said()
    for (let until = performance.now() + SLICE_MS; ;) {
      for (let step = 0; step < STEPS; step++) if (walk.next().done === true) return
      if (performance.now() < until) continue
      await turn()
      until = performance.now() + SLICE_MS
    }
  }

  /** How many texts it has that are JSON themselves. */
  get innerTexts(): number {
    return this.#innerTexts.length / 2
  }

  /** Measures its texts that are JSON themselves: how many values they hold, and how deep they are nested. */
  async inner(): Promise<{ readonly values: number; readonly depth: number }> {
    let values = 0
    let depth = 0
    for (let at = 0; at < this.#innerTexts.length; at += 2) {
      const measure = measuring(this.received, this.#innerTexts[at] as number, this.#innerTexts[at + 1] as number)
      let step = measure.next()
      for (; step.done !== true; step = measure.next()) await turn()
      values += step.value.values
      depth = Math.max(depth, step.value.depth)
      if (at % TEXTS_AT_ONCE === 0 && at > 0) await turn()
    }
    return { values, depth }
  }

  /** The names of the top-level members as they came. */
  get names(): Iterable<string> {
    return this.#members.keys()
  }

  /** Whether a top-level member will be sent. */
  has(name: string): boolean {
    return this.#edits.has(name) || (this.#members.has(name) && !this.#removed.has(name))
  }

  /** A top-level member as it will be sent, parsed. A conversation may be large: look at it by `view`. */
  get(name: string): unknown {
    const edit = this.#edits.size > 0 ? this.#edits.get(name) : undefined
    if (edit) return edit.value
    // Most names that are asked for are not there.
    const entry = this.#members.get(name)
    if (entry === undefined || (this.#removed.size > 0 && this.#removed.has(name))) return undefined
    let parsed = this.#parsed.get(name)
    if (parsed === undefined) this.#parsed.set(name, (parsed = this.#viewOf(entry).json))
    return parsed
  }

  /** A top-level member as it will be sent, unparsed. */
  view(name: string): JsonView | undefined {
    if (this.#removed.has(name)) return undefined
    const edit = this.#edits.get(name)
    return edit ? JsonView.of(edit.bytes) : this.received_view(name)
  }

  /** A top-level member as it came, unparsed. */
  received_view(name: string): JsonView | undefined {
    const entry = this.#members.get(name)
    return entry === undefined ? undefined : this.#viewOf(entry)
  }

  #viewOf(nameEntry: number): JsonView {
    return new JsonView(this.received, this.#tape, nameEntry + 1)
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
    const raw = this.#edits.get(name)?.elements ?? [...(this.view(name)?.elements() ?? [])].map(({ bytes }) => bytes)
    const kept = before.flatMap((element: unknown, index) => {
      const value = change(element, index)
      return value === undefined
        ? []
        : [{ value, bytes: value === element && raw[index] ? raw[index] : Buffer.from(JSON.stringify(value)) }]
    })
    if (kept.length === before.length && kept.every(({ value }, index) => value === before[index])) return
    const elements = kept.map(({ bytes }) => bytes)
    const commas = elements.flatMap((bytes, index) => (index === 0 ? [bytes] : [Buffer.from(','), bytes]))
    this.#edit(name, {
      value: kept.map(({ value }) => value),
      bytes: Buffer.concat([Buffer.from('['), ...commas, Buffer.from(']')]),
      elements,
    })
  }

  #edit(name: string, edit: Edit): void {
    this.#removed.delete(name)
    this.#edits.set(name, edit)
    this.#forget(name)
  }

  /** Leaves one top-level member out of what will be sent. */
  remove(name: string): void {
    this.#edits.delete(name)
    this.#removed.add(name)
    this.#forget(name)
  }

  /** A member has changed: what was found in it may not be there any more. */
  #forget(name: string): void {
    if (CONVERSATION.has(name)) this.#contentsReader.forget()
    this.#contents = undefined
  }

  /** The bytes to send. */
  bytes(): Buffer {
    if (this.#removed.size > 0) return this.#joined()
    if (this.#edits.size === 0) return this.received
    const edits = [...this.#edits]
    const added = edits
      .filter(([name]) => !this.#members.has(name))
      .map(([name, { bytes }]) => `${JSON.stringify(name)}:${bytes.toString('utf8')}`)
    const splices = edits.flatMap(([name, { bytes }]) => {
      const view = this.received_view(name)
      return view ? [{ start: view.start, end: view.end, bytes }] : []
    })
    // Just behind the opening brace.
    const first = this.#tape.start(0) + 1
    if (added.length > 0)
      splices.push({
        start: first,
        end: first,
        bytes: Buffer.from(added.join(',') + (this.#members.size > 0 ? ',' : '')),
      })
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
    for (const [name, entry] of this.#members) {
      if (this.#removed.has(name)) continue
      const { start, bytes } = this.#viewOf(entry)
      add(this.received.subarray(this.#tape.start(entry), start), this.#edits.get(name)?.bytes ?? bytes)
    }
    for (const [name, { bytes }] of this.#edits)
      if (!this.#members.has(name)) add(Buffer.from(`${JSON.stringify(name)}:`), bytes)
    return Buffer.concat([...parts, Buffer.from(parts.length === 0 ? '{}' : '}')])
  }
}
