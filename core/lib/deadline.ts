/**
 * Time limits that are rarely reached. A request is under several of them, one after the other, and a timer of Node's
 * for each would cost more than what it guards. Here all limits of one length share an interval, which checks them
 * eight times in that length. So a limit is never early, and it is late by an eighth of its length at most. When the
 * process was stopped, or was busy for long, the data that it waited for may lie in its sockets. Node runs timers
 * before it reads them. So a limit that is up right after such a pause fires at the next check only.
 */
import { SwapList, type Indexed } from './swap-list.ts'

/** Checks within the length of a limit. */
const LOOKS = 8

/** A running time limit. */
export interface Deadline {
  /** Starts the time again, also after it was up. Does nothing after `clear`. */
  refresh(): void
  /** Cancels the limit. */
  clear(): void
}

/**
 * Starts a time limit. It calls back once when the time is up, unless it is cleared before, and does not keep the
 * process alive.
 * @param ms more than 0
 */
export function deadline(ms: number, late: () => void): Deadline {
  let watch = watches.get(ms)
  if (!watch) watches.set(ms, (watch = new Watch(ms)))
  return new Watched(watch, late)
}

class Watched implements Deadline, Indexed {
  index = -1
  due = 0
  /** The limit was up when the process came back from a pause. */
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
  /** Milliseconds between two checks. */
  readonly #every: number
  readonly #running = new SwapList<Watched>()
  #interval: NodeJS.Timeout | undefined
  /** When the last check was. */
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
      // The callback of one limit may clear others.
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
