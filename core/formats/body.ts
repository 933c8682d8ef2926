/**
 * The JSON body of a request. It is checked once, while it arrives, and sent on as the bytes that arrived, with single
 * top-level members replaced. Checking and sending use the same scan of the same bytes, so that no second reading can
 * differ from the first.
 */
import { type Contents, ContentsReader } from './contents.ts'
import { type Conversation, conversationOf } from './conversation.ts'
import { measuring } from '../lib/json/escapes.ts'
import { joined } from '../lib/byte-buffer.ts'
import type { JsonScanner } from '../lib/json/scanner.ts'
import { Tape } from '../lib/json/tape.ts'
import { invalidBody } from '../errors.ts'
import { listOf } from '../lib/json/rebuild.ts'
import { JsonView } from '../lib/json/view.ts'
import { Slices, turn } from '../lib/turns.ts'

/** Steps of reading contents between two looks at the clock. */
const STEPS = 8

/** Strings that are measured before other work gets its turn. */
const TEXTS_AT_ONCE = 1000

/** The new value of a member. */
interface Edit {
  readonly value: unknown
  /** The value as JSON. */
  readonly bytes: Buffer
  /** For a list, the JSON of each element. */
  readonly elements?: readonly Buffer[]
}

/** What a scan of the bytes has found. */
type Scanned = Pick<JsonScanner, 'values' | 'tape' | 'found'> & {
  readonly inner: readonly number[]
  readonly names: ReadonlyMap<string, number>
}

/** Members that hold the conversation. They may be as large as the body. */
export const CONVERSATION: ReadonlySet<string> = new Set(['messages', 'input', 'system'])

/** A request body that has arrived and is valid. */
export class Body {
  /** The bytes as they arrived, until the conversation is released. */
  #received: Buffer | undefined
  /** The number of values in it. */
  readonly values: number
  /** Bytes by which members that were set as bytes have grown. */
  addedBytes = 0
  /** The names of what was left out as the body was brought into the shape of its path. */
  losses: readonly string[] = []
  #innerTexts: readonly number[]
  /** Whether a string begins as values of the gateway's own do. */
  readonly #found: boolean
  #tape: Tape
  /** The top-level names, each with its entry on the tape. */
  readonly #members: ReadonlyMap<string, number>
  readonly #edits = new Map<string, Edit>()
  readonly #removed = new Set<string>()
  /** Members that have been parsed. */
  readonly #parsed = new Map<string, unknown>()
  #contentsReader = new ContentsReader(this)
  #contents: Contents | undefined
  #conversation: { readonly digests: Conversation | undefined } | undefined
  /** The members beside the conversation, as they arrived, once it is released. */
  #kept: ReadonlyMap<string, Buffer> | undefined

  /** @param scanner a scanner that has read all bytes */
  constructor(received: Buffer, scanner: Scanned) {
    this.#received = received
    this.values = scanner.values
    this.#innerTexts = scanner.inner
    this.#found = scanner.found
    this.#tape = scanner.tape
    this.#members = scanner.names
  }

  /** The bytes as they arrived. @throws TypeError once the conversation is released */
  get received(): Buffer {
    if (!this.#received) throw new TypeError('the conversation of this request has been released')
    return this.#received
  }

  /** Whether the conversation is no longer there. */
  get isReleased(): boolean {
    return this.#kept !== undefined
  }

  /** What the body contains beside text. @throws GatewayError invalid_body if that is malformed */
  get contents(): Contents {
    return (this.#contents ??= this.#contentsReader.contents())
  }

  /** Whether it may contain values that the gateway made for a client. */
  get mayHoldOwn(): boolean {
    return this.#found || this.addedBytes > 0 || this.#contentsReader.ownItems
  }

  /**
   * Reads the contents of the conversation in slices. Other work gets its turn between them, and `contents` is quick
   * afterwards.
   * @throws GatewayError as `contents` does
   */
  async readContents(): Promise<void> {
    const walk = this.#contentsReader.walkConversation()
    const slices = new Slices()
    for (;;) {
      for (let step = 0; step < STEPS; step++) if (walk.next().done === true) return
      if (slices.over) await slices.next()
    }
  }

  /** The number of strings in it whose text is JSON. */
  get innerTexts(): number {
    return this.#innerTexts.length / 2
  }

  /**
   * Returns the number of values, with those of the strings whose text is JSON: only a translation parses the arguments of calls.
   * @throws GatewayError invalid_body beyond the limits
   */
  async allValues(limits: { readonly values: number; readonly depth: number }): Promise<number> {
    let { values } = this
    for (let at = 0; at < this.#innerTexts.length; at += 2) {
      const measure = measuring(this.received, this.#innerTexts[at] as number, this.#innerTexts[at + 1] as number)
      let step = measure.next()
      for (; step.done !== true; step = measure.next()) await turn()
      values += step.value.values
      if (values > limits.values)
        throw invalidBody(`The request, including the arguments of its calls, has more than ${limits.values} values.`)
      if (step.value.depth > limits.depth)
        throw invalidBody(`The arguments of a call are nested more than ${limits.depth} levels deep.`)
      if (at % TEXTS_AT_ONCE === 0 && at > 0) await turn()
    }
    return values
  }

  /** The top-level names as they arrived. */
  get names(): Iterable<string> {
    return this.#members.keys()
  }

  /** Whether a top-level member will be sent. */
  has(name: string): boolean {
    return this.#edits.has(name) || (this.#members.has(name) && !this.#removed.has(name))
  }

  /** A top-level member as it will be sent, parsed. For the conversation, which may be large, use `view`. */
  get(name: string): unknown {
    const edit = this.#edits.size > 0 ? this.#edits.get(name) : undefined
    if (edit) return edit.value
    // Most names that are asked for are not in the body.
    const entry = this.#members.get(name)
    if (entry === undefined || (this.#removed.size > 0 && this.#removed.has(name))) return undefined
    let parsed = this.#parsed.get(name)
    if (parsed === undefined) this.#parsed.set(name, (parsed = this.receivedView(name)?.json))
    return parsed
  }

  /** A top-level member as it will be sent, not parsed. */
  view(name: string): JsonView | undefined {
    if (this.#removed.has(name)) return undefined
    const edit = this.#edits.get(name)
    return edit ? JsonView.of(edit.bytes) : this.receivedView(name)
  }

  /** A top-level member as it arrived, not parsed. @throws TypeError for a conversation that is released */
  receivedView(name: string): JsonView | undefined {
    const kept = this.#kept?.get(name)
    if (kept) return JsonView.of(kept)
    const entry = this.#members.get(name)
    return entry === undefined ? undefined : this.#viewOf(entry)
  }

  #viewOf(nameEntry: number): JsonView {
    return new JsonView(this.received, this.#tape, nameEntry + 1)
  }

  /** Replaces or adds a top-level member. All other bytes stay the same. */
  set(name: string, value: unknown): void {
    this.#edit(name, { value, bytes: Buffer.from(JSON.stringify(value)) })
  }

  /**
   * Changes the elements of a top-level list. An element that `change` returns as it was keeps its bytes, and one for
   * which it returns undefined is removed. A member that is not a list stays the same.
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
    this.#edit(name, {
      value: kept.map(({ value }) => value),
      bytes: listOf(elements),
      elements,
    })
  }

  /** Replaces a top-level member by its bytes, which must be JSON. */
  setBytes(name: string, bytes: Buffer): void {
    this.addedBytes += Math.max(0, bytes.length - (this.view(name)?.bytes.length ?? 0))
    this.#edit(name, {
      bytes,
      get value(): unknown {
        return JSON.parse(bytes.toString('utf8'))
      },
    })
  }

  /** A copy. Changes of one do not affect the other. */
  fork(): Body {
    const scanned = {
      values: this.values,
      inner: this.#innerTexts,
      tape: this.#tape,
      names: this.#members,
      found: this.#found,
    }
    const copy = new Body(this.received, scanned)
    for (const [name, edit] of this.#edits) copy.#edits.set(name, edit)
    for (const name of this.#removed) copy.#removed.add(name)
    copy.addedBytes = this.addedBytes
    return copy
  }

  #edit(name: string, edit: Edit): void {
    this.#removed.delete(name)
    this.#edits.set(name, edit)
    this.#forget(name)
  }

  /** Removes a top-level member. */
  remove(name: string): void {
    this.#edits.delete(name)
    this.#removed.add(name)
    this.#forget(name)
  }

  /** Forgets what was found in a member, as the member has changed. */
  #forget(name: string): void {
    if (CONVERSATION.has(name)) this.#contentsReader.forget()
    this.#contents = undefined
  }

  /** The conversation as digests, as it arrived. @param member the member in which its format has it */
  conversation(member: string): Conversation | undefined {
    this.#conversation ??= { digests: conversationOf(this, member) }
    return this.#conversation.digests
  }

  /** Bytes of the members that hold the conversation; 0 once they are released. */
  get conversationBytes(): number {
    if (this.#kept) return 0
    let bytes = 0
    for (const name of CONVERSATION) bytes += this.receivedView(name)?.bytes.length ?? 0
    return bytes
  }

  /**
   * Releases the conversation, which needs most of the memory. Its digests, the other members, and what is known of the
   * contents stay.
   * @param member the member in which its format has it
   * @throws GatewayError as `contents` does; nothing is released then
   */
  release(member: string): void {
    if (this.#kept) return
    this.conversation(member)
    const contents = withoutBytes(this.contents)
    const kept = new Map<string, Buffer>()
    for (const name of this.names) {
      const view = CONVERSATION.has(name) ? undefined : this.receivedView(name)
      if (view) kept.set(name, Buffer.from(view.bytes))
    }
    for (const [name, edit] of this.#edits) {
      if (CONVERSATION.has(name)) this.#edits.delete(name)
      // Its elements are parts of the bytes that arrived.
      else if (edit.elements) this.#edits.set(name, { value: edit.value, bytes: edit.bytes })
    }
    for (const name of CONVERSATION) this.#parsed.delete(name)
    this.#kept = kept
    this.#received = undefined
    this.#tape = new Tape()
    this.#innerTexts = []
    this.#contents = contents
    this.#contentsReader = new ContentsReader(this)
  }

  /** The bytes to send. */
  bytes(): Buffer {
    return joined(this.parts())
  }

  /** The bytes to send, in parts: most of them are those that arrived. */
  parts(): readonly Buffer[] {
    if (this.#removed.size > 0) return [this.#joined()]
    if (this.#edits.size === 0) return [this.received]
    const edits = [...this.#edits]
    const added = edits
      .filter(([name]) => !this.#members.has(name))
      .map(([name, { bytes }]) => `${JSON.stringify(name)}:${bytes.toString('utf8')}`)
    const splices = edits.flatMap(([name, { bytes }]) => {
      const view = this.receivedView(name)
      return view ? [{ start: view.start, end: view.end, bytes }] : []
    })
    // After the opening brace.
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
    return parts
  }

  /** The members that are left, in order, each with its own bytes or its new value. */
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

/** Returns contents without the bytes of what is attached. */
function withoutBytes(contents: Contents): Contents {
  return { ...contents, attachments: contents.attachments.map(({ kind, place }) => ({ kind, place })) }
}
