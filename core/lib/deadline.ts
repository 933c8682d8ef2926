/**
 * Time limits that are hardly ever reached. A request is under several, one after the other, and a timer of Node's for
 * each costs more than what it guards. Here a limit is a place in a roster: all of one length share an interval, which
 * looks over them eight times in that length. So a limit is never early, and up to an eighth of its length late.
 *
 * When the process itself was stopped, or busy for long, what it waited for may have come and lies in its sockets. Node
 * looks at timers before it reads, and would tell of an upstream or a store that never was late; a limit that is up then
 * is told of at the next look.
 */
import { SwapList, type Indexed } from './swap-list.ts'

/** How often a limit is looked at in its length. */
const LOOKS = 8

export interface Deadline {
  /** The time begins anew, also after it was up; not after `clear`. */
  refresh(): void
  /** The limit holds no longer. */
  clear(): void
}

/** Calls back once when the time is up, unless it is cleared before. It keeps no process alive. @param ms more than 0 */
export function deadline(ms: number, late: () => void): Deadline {
  let watch = watches.get(ms)
  if (!watch) watches.set(ms, (watch = new Watch(ms)))
  return new Watched(watch, late)
}

class Watched implements Deadline, Indexed {
  index = -1
  due = 0
  /** It was up when the process came back from a pause. */
  spared = false
  readonly late: () => void
  readonly #watch: Watch
  #cleared = false

  constructor(watch: Watch, late: () => void) {
    this.#watch = watch
    this.late = late
    this.refresh()
  }

  refresh(): void {
    if (!this.#cleared) this.#watch.start(this)
  }

  clear(): void {
    this.#cleared = true
    this.#watch.end(this)
  }
}

/** All limits of one length. */
class Watch {
  readonly #ms: number
  /** Milliseconds between two looks. */
  readonly #every: number
  readonly #running = new SwapList<Watched>()
  #interval: NodeJS.Timeout | undefined
  /** When it was last looked. */
  #looked = 0

  constructor(ms: number) {
    this.#ms = ms
    this.#every = Math.ceil(ms / LOOKS)
  }

  start(limit: Watched): void {
    const now = performance.now()
    limit.due = now + this.#ms
    limit.spared = false
    if (!this.#running.has(limit)) this.#running.add(limit)
    if (this.#interval) return
    this.#looked = now
    this.#interval = setInterval(this.#look, this.#every).unref()
  }

  end(limit: Watched): void {
    this.#running.delete(limit)
  }

  readonly #look = (): void => {
    const now = performance.now()
    const paused = now - this.#looked > 2 * this.#every
    this.#looked = now
    for (const limit of this.#running.all()) {
      // One that is late may clear others.
      if (limit.due > now || !this.#running.has(limit)) continue
      if (paused && !limit.spared) {
        limit.spared = true
        continue
      }
      this.#running.delete(limit)
      limit.late()
    }
    if (this.#running.size > 0) return
    clearInterval(this.#interval)
    this.#interval = undefined
  }
}

const watches = new Map<number, Watch>()
