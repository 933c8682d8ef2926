/**
 * Lines of requests that wait for a slot: the requests of one key above its `concurrency`. The first that came is the
 * first that is served, and newcomers wait behind it.
 */

/** How often the first of a line looks for a slot that another process may have freed, in milliseconds. */
const LOOK_MS = 250

/** The answer to a request for a slot. */
interface Answer {
  readonly kind: string
}

/** The answer to a request that got no slot. */
type Busy = Answer & { readonly kind: 'busy' }

const BUSY: Busy = { kind: 'busy' }

/** How long a request waits. */
export interface Patience {
  /** Maximum number of requests of the key that wait to be called. */
  readonly most: number
  readonly waitMs: number
  /** Returns a signal that aborts when the client leaves. */
  readonly signal: () => AbortSignal
}

/** Why a waiting request is called: a request has ended, it is time to look, or it has waited long enough. */
type Call = 'end' | 'look' | 'over'

/** Asks for a slot when it is the request's turn. @param waitedMs for how long it has waited */
type Again<T> = (waitedMs: number) => Promise<T>

/** A waiting request. */
class Waiter {
  #resolve: ((call: Call) => void) | undefined

  /** Whether it waits to be called. Otherwise it asks, and is about to get a slot. */
  get isIdle(): boolean {
    return this.#resolve !== undefined
  }

  /** Waits until it is called. */
  called(): Promise<Call> {
    return new Promise(resolve => (this.#resolve = resolve))
  }

  call(call: Call): void {
    const resolve = this.#resolve
    this.#resolve = undefined
    resolve?.(call)
  }
}

/** The requests of one key that wait or ask. */
class Line {
  /** The first that came stands first, also while it asks. */
  readonly waiting: Waiter[] = []
  /** Requests that wait, or that ask without having waited. */
  count = 0
  /** Requests that have ended, and whose slots no other request has asked for since then. */
  #ended = 0
  /** All that have ended. */
  #endedInAll = 0
  readonly #lookMs: number
  /** Runs while a request waits. */
  #looking: NodeJS.Timeout | undefined
  /** Whether the first asks because it looked. It also gets a slot that becomes free meanwhile, so no other request is called. */
  #isLooking = false

  constructor(lookMs: number) {
    this.#lookMs = lookMs
  }

  /** The number of requests that wait to be called. */
  get idle(): number {
    return this.waiting.filter(({ isIdle }) => isIdle).length
  }

  /** Notes that a request has ended, and calls the first that waits. Its slot may be for one that has not come yet. */
  ended(): void {
    this.#ended++
    this.#endedInAll++
    this.#callNext()
  }

  #callNext(): void {
    while (this.#ended > 0 && !this.#isLooking) {
      const next = this.waiting.find(({ isIdle }) => isIdle)
      if (!next) return
      this.#ended--
      next.call('end')
    }
  }

  /** Asks for a slot, and again if a request has ended after the question. */
  async ask<T extends Answer>(request: () => Promise<T>): Promise<T> {
    for (;;) {
      const before = this.#endedInAll
      const answer = await request()
      if (answer.kind !== 'busy') return answer
      // What had become free before the question is taken.
      this.#ended = Math.min(this.#ended, this.#endedInAll - before)
      if (this.#ended === 0) return answer
      this.#ended--
    }
  }

  /** Asks for a request that has not waited. The slot that it gets is no longer free for the requests that wait. */
  async askFirst<T extends Answer>(request: () => Promise<T>): Promise<T> {
    const answer = await this.ask(request)
    if (answer.kind === 'held' && this.#ended > 0) this.#ended--
    return answer
  }

  /** Waits in line until the answer is another than `busy`, or the time is over. */
  async wait<T extends Answer>(request: Again<T>, { waitMs, signal }: Patience): Promise<T | Busy> {
    const waiter = new Waiter()
    const beganMs = performance.now()
    const gone = signal()
    let isOver = gone.aborted
    const over = (): void => {
      isOver = true
      waiter.call('over')
    }
    const patience = setTimeout(over, waitMs)
    gone.addEventListener('abort', over)
    this.waiting.push(waiter)
    this.#looking ??= setInterval(() => this.waiting[0]?.call('look'), this.#lookMs)
    let leavesSlot = false
    try {
      for (;;) {
        if (isOver) return BUSY
        const called = waiter.called()
        this.#callNext()
        const turn = await called
        if (turn === 'over') return BUSY
        leavesSlot = true
        if (gone.aborted) return BUSY
        const isLook = turn === 'look'
        if (isLook) this.#isLooking = true
        const answer = await this.ask(() => request(performance.now() - beganMs)).finally(() => {
          if (isLook) this.#isLooking = false
        })
        // After a look, there may be more slots. A refused request leaves its slot to the next one.
        leavesSlot = answer.kind === 'held' ? isLook : answer.kind !== 'busy'
        if (answer.kind !== 'busy') return answer
      }
    } finally {
      clearTimeout(patience)
      gone.removeEventListener('abort', over)
      this.waiting.splice(this.waiting.indexOf(waiter), 1)
      if (this.waiting.length === 0) {
        clearInterval(this.#looking)
        this.#looking = undefined
      }
      if (leavesSlot) this.ended()
    }
  }
}

/** The lines of one process. */
export class Lines {
  readonly #of = new Map<string, Line>()
  readonly #lookMs: number

  constructor(lookMs = LOOK_MS) {
    this.#lookMs = lookMs
  }

  /** How many requests wait. */
  get length(): number {
    return [...this.#of.values()].reduce((sum, line) => sum + line.waiting.length, 0)
  }

  /** Returns how many requests of a key wait. */
  waiting(key: string): number {
    return this.#of.get(key)?.waiting.length ?? 0
  }

  /**
   * Asks for a slot, at once if no other request waits for one. If the answer is `busy`, waits and asks again.
   * @param first asks without having waited
   * @param again asks when it is the request's turn
   * @returns the last answer: `busy` if the line is full, the time is over, or the client has left
   */
  async ask<T extends Answer>(
    key: string,
    patience: Patience,
    first: () => Promise<T>,
    again: Again<T>,
  ): Promise<T | Busy> {
    let line = this.#of.get(key)
    if (!line) this.#of.set(key, (line = new Line(this.#lookMs)))
    line.count++
    try {
      const answer = line.waiting.length === 0 ? await line.askFirst(first) : BUSY
      if (answer.kind !== 'busy' || line.idle >= patience.most) return answer
      return await line.wait(again, patience)
    } finally {
      if (--line.count === 0) this.#of.delete(key)
    }
  }

  /** Calls the first that waits: a request of the key has ended. */
  ended(key: string): void {
    this.#of.get(key)?.ended()
  }
}
