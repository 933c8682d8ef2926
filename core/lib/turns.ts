/**
 * Long work takes turns: about half a millisecond of it in each turn of the event loop. So however much long work there is, everybody else
 * waits that long. Owners take turns as well: however much work one of them has, another waits for one slice.
 */
import { Rotation } from './rotation.ts'

/** Bytes that are copied, or handed to the system, in one slice. */
export const SLICE_BYTES = 1024 * 1024
/** Milliseconds of slices in one turn of the event loop. */
const TURN_MS = 0.5

interface Slice {
  readonly work: () => void
  /** Its work begins behind the call: it has a turn of the event loop to itself. */
  readonly later: boolean
}

const waiting = new Rotation<Slice>()
let scheduled = false

/** Does a slice, of a few milliseconds at most, when it is its turn. @param owner whose work it is, such as a key's id */
export function inTurn(work: () => void, owner = ''): void {
  add({ work, later: false }, owner)
}

/** Resolves when the caller may do its next slice. @param owner as in `inTurn` */
export function turn(owner = ''): Promise<void> {
  return new Promise(resolve => add({ work: resolve, later: true }, owner))
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
