/**
 * Lines of requests that wait for a place: the requests of one key above its `concurrency`. The first that came is the
 * first that is served, and newcomers wait behind it.
 */

/** How often the first of a line looks for a place that another process may have freed, in milliseconds. */
const LOOK_MS = 250

/** The answer to a request for a place. */
interface Answer {
  readonly kind: string
}

/** The answer to a request that got no place. */
type Busy = Answer & { readonly kind: 'busy' }

const BUSY: Busy = { kind: 'busy' }

/** How long a request waits. */
export interface Patience {
  /** Maximum number of waiting requests of the key. */
  readonly most: number
  readonly waitMs: number
  /** Returns a signal that aborts when the client leaves. */
  readonly signal: () => AbortSignal
}

/** Why a waiting request is called: a request has ended, it is time to look, or it has waited long enough. */
type Turn = 'end' | 'look' | 'over'

/** A waiting request. */
interface Waiter {
  /** Undefined while it asks. */
  call: ((turn: Turn) => void) | undefined
}

/** The requests of one key that wait or ask. */
class Line {
  /** The first that came stands first, also while it asks. */
  readonly waiting: Waiter[] = []
  /** Requests that wait, or that ask without having waited. */
  count = 0
  /** Requests that ask. */
  #asking = 0
  /** Requests that ended since one of those asked. */
  #missed = 0

  /** Calls the first that waits. */
  call(turn: Turn): void {
    const next = this.waiting.find(({ call }) => call)
    if (next) next.call?.(turn)
    else if (turn === 'end' && this.#asking > 0) this.#missed++
  }

  /** Asks for a place, and again if a place may have become free after the question. */
  async ask<T extends Answer>(request: () => Promise<T>): Promise<T> {
    this.#asking++
    try {
      for (;;) {
        const answer = await request()
        if (answer.kind !== 'busy' || this.#missed === 0) return answer
        this.#missed--
      }
    } finally {
      if (--this.#asking === 0) this.#missed = 0
    }
  }

  /** Waits in line until the answer is another than `busy`, or the time is over. */
  async wait<T extends Answer>(request: () => Promise<T>, { waitMs, signal }: Patience): Promise<T | Busy> {
    const waiter: Waiter = { call: undefined }
    const gone = signal()
    let isOver = gone.aborted
    const over = (): void => {
      isOver = true
      waiter.call?.('over')
    }
    const patience = setTimeout(over, waitMs)
    const looking = setInterval(() => this.waiting[0] === waiter && waiter.call?.('look'), LOOK_MS)
    gone.addEventListener('abort', over)
    this.waiting.push(waiter)
    let passesOn = false
    try {
      for (;;) {
        if (isOver) return BUSY
        const turn = await new Promise<Turn>(resolve => (waiter.call = resolve))
        waiter.call = undefined
        if (turn === 'over') return BUSY
        const answer = gone.aborted ? BUSY : await this.ask(request)
        if (answer.kind === 'busy' && !gone.aborted) continue
        // A request without a place leaves it to the next one. After a look, there may be more places.
        passesOn = turn === 'look' || answer.kind !== 'held'
        return answer
      }
    } finally {
      clearTimeout(patience)
      clearInterval(looking)
      gone.removeEventListener('abort', over)
      this.waiting.splice(this.waiting.indexOf(waiter), 1)
      if (passesOn) this.call('end')
    }
  }
}

/** The lines of one process. */
export class Lines {
  readonly #of = new Map<string, Line>()

  /** Returns how many requests of a key wait. */
  waiting(key: string): number {
    return this.#of.get(key)?.waiting.length ?? 0
  }

  /**
   * Asks for a place, at once if no other request waits for one. If the answer is `busy`, waits and asks again.
   * @param first asks without having waited
   * @param again asks when it is the request's turn
   * @returns the last answer: `busy` if the line is full, the time is over, or the client has left
   */
  async ask<T extends Answer>(
    key: string,
    patience: Patience,
    first: () => Promise<T>,
    again: () => Promise<T>,
  ): Promise<T | Busy> {
    let line = this.#of.get(key)
    if (!line) this.#of.set(key, (line = new Line()))
    line.count++
    try {
      const answer = line.waiting.length === 0 ? await line.ask(first) : BUSY
      if (answer.kind !== 'busy' || line.waiting.length >= patience.most) return answer
      return await line.wait(again, patience)
    } finally {
      if (--line.count === 0) this.#of.delete(key)
    }
  }

  /** Calls the first that waits: a request of the key has ended. */
  ended(key: string): void {
    this.#of.get(key)?.call('end')
  }
}
