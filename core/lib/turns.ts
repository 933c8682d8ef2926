/**
 * Long work takes turns: it gets about half a millisecond in each turn of the event loop, so that other work waits no
 * longer than that. The owners of long work take turns as well: however much work one owner has, another owner waits
 * for one slice of it.
 */
import { Rotation } from './rotation.ts'

/** Size in bytes from which a body, an event or a reply is processed in turn with other long work. */
export const LONG_BYTES = 64 * 1024

/** Bytes that are copied, or handed to the operating system, in one slice. */
export const SLICE_BYTES = 1024 * 1024
/** Milliseconds of one slice of work that asks for its turns itself. */
const SLICE_MS = 1
/** Milliseconds of slices in one turn of the event loop. */
const TURN_MS = 0.5

interface Slice {
  readonly work: () => void
  /** The work begins after the call returns, and has a turn of the event loop to itself. */
  readonly later: boolean
}

const waiting = new Rotation<Slice>()
let scheduled = false

/**
 * Runs a slice of work, of a few milliseconds at most, when its turn comes.
 * @param owner whose work it is, such as a key's id
 */
export function inTurn(work: () => void, owner = ''): void {
  add({ work, later: false }, owner)
}

/** Resolves when the events that have arrived by now have been handled. */
export function afterEvents(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

/** Resolves when the caller may run its next slice. @param owner as in `inTurn` */
export function turn(owner = ''): Promise<void> {
  return new Promise(resolve => add({ work: resolve, later: true }, owner))
}

/** Long work that gives way to other work each time it has run for a millisecond. */
export class Slices {
  #until = performance.now() + SLICE_MS

  /** Whether it is the turn of other work. */
  get over(): boolean {
    return performance.now() >= this.#until
  }

  /** Resolves when the work may go on. */
  async next(): Promise<void> {
    await turn()
    this.#until = performance.now() + SLICE_MS
  }
}

function add(slice: Slice, owner: string): void {
  waiting.add(owner, slice)
  if (scheduled) return
  scheduled = true
  setImmediate(run)
}

function run(): void {
  const until = performance.now() + TURN_MS
  for (let slice = waiting.next(); slice; slice = waiting.next()) {
    slice.work()
    if (slice.later || performance.now() > until) break
  }
  scheduled = !waiting.empty
  if (scheduled) setImmediate(run)
}
