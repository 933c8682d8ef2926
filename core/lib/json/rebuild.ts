/** Changes parts of a JSON text without parsing the rest. What is not changed keeps its bytes. */
import { CLOSE_ARRAY, CLOSE_OBJECT, COLON, COMMA, OPEN_ARRAY, OPEN_OBJECT } from './bytes.ts'
import type { JsonView } from './view.ts'

/** What becomes of a value: itself, other bytes, or nothing. */
export type Change = JsonView | Buffer | undefined

const byte = (value: number): Buffer => Buffer.from([value])

/** Joins pieces with commas, within brackets. */
function within(open: number, pieces: readonly Buffer[], close: number): Buffer {
  const separated = pieces.flatMap((piece, index) => (index === 0 ? [piece] : [byte(COMMA), piece]))
  return Buffer.concat([byte(open), ...separated, byte(close)])
}

/** An object with its members changed; the object itself if none is. */
export function withMembers(object: JsonView, change: (name: string, value: JsonView) => Change): JsonView | Buffer {
  const pieces: Buffer[] = []
  let isSame = true
  for (const { name, bytes, value } of object.members()) {
    const changed = change(name, value)
    isSame &&= changed === value
    if (changed === undefined) continue
    pieces.push(Buffer.concat([bytes, byte(COLON), Buffer.isBuffer(changed) ? changed : changed.bytes]))
  }
  return isSame ? object : within(OPEN_OBJECT, pieces, CLOSE_OBJECT)
}

/** The JSON of a list of values. */
export function listOf(values: readonly Buffer[]): Buffer {
  return within(OPEN_ARRAY, values, CLOSE_ARRAY)
}

/** A list whose elements are changed one by one. */
export class ListRebuild {
  readonly #list: JsonView
  readonly #pieces: Buffer[] = []
  /** The elements that stay as they are, and follow each other. */
  #run: { readonly start: number; end: number } | undefined
  #isSame = true
  /** How many elements the list has now. */
  size = 0

  constructor(list: JsonView) {
    this.#list = list
  }

  /** Adds what becomes of the next element. */
  add(element: JsonView, change: Change): void {
    if (change !== undefined) this.size++
    if (change === element) {
      if (this.#run) this.#run.end = element.end
      else this.#run = { start: element.start, end: element.end }
      return
    }
    this.#isSame = false
    this.#endRun()
    if (change !== undefined) this.#pieces.push(Buffer.isBuffer(change) ? change : change.bytes)
  }

  /** The list; the same one if no element was changed. */
  get result(): JsonView | Buffer {
    if (this.#isSame) return this.#list
    this.#endRun()
    return listOf(this.#pieces)
  }

  #endRun(): void {
    if (this.#run) this.#pieces.push(this.#list.range(this.#run.start, this.#run.end))
    this.#run = undefined
  }
}

/** A list with its elements changed. */
export function withElements(list: JsonView, change: (element: JsonView) => Change): ListRebuild {
  const rebuild = new ListRebuild(list)
  for (const element of list.elements()) rebuild.add(element, change(element))
  return rebuild
}
