/** Down, up, settle: the heart. A request goes down the stages, its reply comes up those it passed, last one first. */
import { deadline } from './deadline.ts'
import { GatewayError, Reply } from './errors.ts'
import type { Fact, Head, Outcome, ReplyEvent, Rewriter, With } from './exchange.ts'
import type { LiveExchange } from './live.ts'
import type { Log } from './log.ts'
import type { Plugin, Stage } from './plugin.ts'
import { within } from './within.ts'

/** A stage in its place. */
export interface PlacedStage {
  readonly plugin: Plugin
  readonly stage: Stage<Fact, Fact>
}

/** Sends a request that no stage answered to its upstream and relays the reply. */
export type Forward = (x: LiveExchange, up: Up) => Promise<Outcome>

/** The order check at load has made sure that the facts a hook's type promises are there. */
type Known = With<Fact>

function known(x: LiveExchange): Known {
  return x as unknown as Known
}

/** The way up: the stages that let the request pass, asked in reverse order. */
export class Up {
  readonly #x: LiveExchange
  readonly #passed: PlacedStage[] = []
  readonly #limit: number
  readonly log: Log

  constructor(x: LiveExchange, log: Log, limit: number) {
    this.#x = x
    this.log = log
    this.#limit = limit
  }

  /** A stage joins once its request hook has resolved. */
  join(placed: PlacedStage): void {
    this.#passed.unshift(placed)
  }

  /** @throws GatewayError from a stage that replaces the upstream's reply; Instead, when it does so by a reply of its own */
  response(head: Head): void {
    for (const { stage } of this.#passed) {
      const reply = stage.response?.(known(this.#x), head)
      if (reply) throw new Instead(reply)
    }
  }

  rewriters(head: Head): Rewriter[] {
    return this.#passed.map(({ stage }) => stage.rewrite?.(known(this.#x), head)).filter(rewriter => rewriter !== undefined)
  }

  /** Whether an event hook wants all events, not only the telling ones. */
  wantsAll(): boolean {
    return this.#passed.some(({ stage }) => 'event' in stage && stage.events !== 'telling')
  }

  event(event: ReplyEvent): void {
    for (const placed of this.#passed) {
      try {
        placed.stage.event?.(known(this.#x), event)
      } catch (cause) {
        this.#hookFailed(placed, cause, 'event hook failed')
      }
    }
  }

  /** The stages that watch a stream's progress, as one call that answers with what to wait for, if anything; undefined when none does. */
  progress(): (() => readonly Promise<unknown>[] | undefined) | undefined {
    const watching = this.#passed.filter(({ stage }) => 'progress' in stage)
    if (watching.length === 0) return undefined
    return () => {
      let waiting: Promise<unknown>[] | undefined
      for (const placed of watching) {
        try {
          const wait = placed.stage.progress?.(known(this.#x))
          if (wait) (waiting ??= []).push(wait)
        } catch (cause) {
          this.#hookFailed(placed, cause, 'progress hook failed')
        }
      }
      return waiting
    }
  }

  /** What a hook throws on the way up is logged; the bytes go on. */
  #hookFailed({ plugin }: PlacedStage, cause: unknown, message: string): void {
    this.log.error({ exchange: this.#x.id, stage: plugin.name, err: cause }, message)
  }

  async settle(outcome: Outcome): Promise<void> {
    for (const placed of this.#passed) {
      try {
        const settling = placed.stage.settle?.(known(this.#x), outcome)
        if (settling instanceof Promise) await within(settling, this.#limit, 'settle hook')
      } catch (cause) {
        this.#hookFailed(placed, cause, 'settle hook failed')
      }
    }
  }
}

/** A stage's own reply in the place of the upstream's. */
class Instead extends Error {
  readonly reply: Reply | Promise<Reply>

  constructor(reply: Reply | Promise<Reply>) {
    super('a stage replaced the reply')
    this.reply = reply
  }
}

/** The stages of one endpoint. */
export class Chain {
  readonly #stages: readonly PlacedStage[]
  readonly #log: Log
  readonly #limit: number

  /** @param limit milliseconds that one request hook may take */
  constructor(stages: readonly PlacedStage[], log: Log, limit: number) {
    this.#stages = stages
    this.#log = log
    this.#limit = limit
  }

  /** Takes an exchange to its end, whatever it is. Never rejects. */
  async run(x: LiveExchange, forward: Forward): Promise<void> {
    const up = new Up(x, this.#log, this.#limit)
    let outcome: Outcome
    try {
      const reply = await this.#down(x, up)
      outcome = reply ? await x.answer(reply) : await this.#forwarded(x, up, forward)
    } catch (thrown) {
      const error = GatewayError.from(thrown)
      if (error.details.cause !== undefined) this.#log.warn({ exchange: x.id, code: error.code, err: error.details.cause }, 'failed')
      outcome = await x.fail(error)
    }
    await up.settle(outcome)
  }

  async #forwarded(x: LiveExchange, up: Up, forward: Forward): Promise<Outcome> {
    try {
      return await forward(x, up)
    } catch (thrown) {
      if (thrown instanceof Instead) return x.answer(await thrown.reply)
      throw thrown
    }
  }

  async #down(x: LiveExchange, up: Up): Promise<Reply | undefined> {
    for (const placed of this.#stages) {
      const result = placed.stage.request?.(known(x))
      const given: unknown = result instanceof Promise ? await this.#limited(result, x, placed) : result
      if (given instanceof Reply) return given
      if (given !== undefined) x.learn(given as object, placed.plugin)
      up.join(placed)
    }
    return undefined
  }

  /**
   * A hook that never resolves must not hold its exchange for ever; the time a client takes to send is not the hook's. One
   * that resolves after all has let the request pass too late, and is settled at once: it may have set something aside.
   */
  #limited(result: Promise<unknown>, x: LiveExchange, placed: PlacedStage): Promise<unknown> {
    const { plugin, stage } = placed
    return new Promise((resolve, reject) => {
      const late = deadline(this.#limit, () => {
        if (x.reading) return late.refresh()
        const error = new GatewayError('internal', { cause: new Error(`stage ${plugin.name} took more than ${this.#limit} ms`) })
        reject(error)
        result
          .then(async given => {
            if (given !== undefined) x.learn(given as object, plugin)
            await stage.settle?.(known(x), { kind: 'failed', error, attempts: [] })
          })
          .catch((cause: unknown) => this.#log.error({ exchange: x.id, stage: plugin.name, err: cause }, 'late hook'))
      })
      result.then(
        given => {
          late.clear()
          resolve(given)
        },
        (cause: unknown) => {
          late.clear()
          reject(cause)
        },
      )
    })
  }
}
