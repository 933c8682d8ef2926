/**
 * Long work takes turns: one slice, of whichever work, in each turn of the event loop. So however much long work there is, everybody
 * else waits for one slice at a time.
 */
const waiting: (() => void)[] = []
/** Bytes that are copied, or handed to the system, in one slice. */
export const SLICE_BYTES = 1024 * 1024

let scheduled = false

/** Does a slice, of a few milliseconds at most, when it is its turn. */
export function inTurn(slice: () => void): void {
  waiting.push(slice)
  schedule()
}

/** Resolves when the caller may do its next slice. */
export function turn(): Promise<void> {
  return new Promise(inTurn)
}

function schedule(): void {
  if (scheduled) return
  scheduled = true
  setImmediate(next)
}

function next(): void {
  scheduled = false
  waiting.shift()?.()
  if (waiting.length > 0) schedule()
}
