/**
 * The heart of the gateway. A request goes down the stages of its chain. Its reply comes up through the stages that the
 * request passed, the last one first. When the exchange has ended, each of them settles.
 */
import { deadline } from '../lib/deadline.ts'
import { GatewayError, KeyChanged, Reply } from '../errors.ts'
import type { Outcome } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { learn } from '../exchange/members.ts'
import type { Log } from '../lib/log.ts'
import { reasonOf } from '../lib/reason.ts'
import type { RequestBook } from './request-book.ts'
import {
  HookLists,
  known,
  ofStage,
  type PlacedStage,
  ReplyHooks,
  type ReplyHooksNeeds,
  ReplyOverride,
} from './reply-hooks.ts'

/** How often a request begins again, at most, because its key keeps changing. */
const AGAIN_MAX = 3

/** Reads the record of a key again. @returns whether it has changed */
export type RereadKey = (x: HttpExchange) => Promise<boolean>

/** What the chains of a generation share. */
export interface ChainNeeds {
  readonly log: Log
  /** Milliseconds that a promise of a hook may take. */
  readonly limitMs: number
  readonly book: RequestBook
  readonly rereadKey: RereadKey
}

/** Sends a request to its upstream and relays the reply. */
export type Forward = (x: HttpExchange, up: ReplyHooks) => Promise<Outcome>

/** The stages of one endpoint. */
export class Chain {
  readonly #stages: readonly PlacedStage[]
  readonly #up: ReplyHooksNeeds
  readonly #log: Log
  readonly #limitMs: number
  readonly #book: RequestBook
  readonly #rereadKey: RereadKey
  /** The index of the stage that finds the key. It is -1 if no stage does. */
  readonly #keyAt: number

  constructor(stages: readonly PlacedStage[], { log, limitMs, book, rereadKey }: ChainNeeds) {
    this.#stages = stages
    this.#up = { stages, hooks: new HookLists(stages), log, limitMs }
    this.#log = log
    this.#limitMs = limitMs
    this.#book = book
    this.#rereadKey = rereadKey
    this.#keyAt = stages.findIndex(({ plugin }) => plugin.gives.includes('key'))
  }

  /** Takes an exchange to its end. Never rejects. */
  async run(x: HttpExchange, forward: Forward): Promise<void> {
    const up = new ReplyHooks(x, this.#up)
    let outcome: Outcome
    try {
      const reply = await this.#down(x, up)
      outcome = reply ? await x.answer(reply) : await forward(x, up)
    } catch (thrown) {
      outcome = await this.#instead(x, thrown)
    }
    x.outlet.close()
    try {
      this.#book.ended(x, outcome)
    } catch (cause) {
      this.#log.error({ exchange: x.id, err: cause }, 'cannot count a request')
    }
    await up.settle(outcome)
  }

  /** Answers the client when something was thrown before the reply began. */
  async #instead(x: HttpExchange, thrown: unknown): Promise<Outcome> {
    try {
      if (thrown instanceof ReplyOverride) {
        const { status } = await x.answer(await thrown.reply)
        // The reply is the stage's own, even if the client did not wait for it.
        return { kind: 'answered', status }
      }
    } catch (worse) {
      return this.#instead(x, worse)
    }
    const error = GatewayError.from(thrown)
    try {
      const { code, details } = error
      if (code === 'internal') this.#log.error({ exchange: x.id, code, err: details.cause }, 'failed')
      else if (details.cause !== undefined)
        this.#log.warn({ exchange: x.id, code, reason: reasonOf(details.cause) }, 'failed')
      return await x.fail(error)
    } catch (cause) {
      return this.#unsendable(x, cause)
    }
  }

  /** Ends an exchange whose error could not be sent, so that its stages settle in any case. */
  async #unsendable(x: HttpExchange, cause: unknown): Promise<Outcome> {
    this.#log.error({ exchange: x.id, err: cause }, 'cannot send an error')
    const error = new GatewayError('internal')
    try {
      return await x.fail(error)
    } catch {
      x.outlet.destroy()
      return { kind: 'failed', error, attempts: x.attempts }
    }
  }

  /**
   * Takes a request down. A cached record of its key is trusted until the store, or a stage that refuses the request by it, shows
   * that it has changed. Then the request begins again from the key.
   */
  async #down(x: HttpExchange, up: ReplyHooks): Promise<Reply | undefined> {
    for (let times = 0; ; times++) {
      try {
        return await this.#pass(x, up)
      } catch (thrown) {
        if (times === AGAIN_MAX || !(await this.#mayBeginAgain(x, up.count, thrown))) throw thrown
        x.beginAgain(this.#stages.slice(this.#keyAt).flatMap(({ plugin }) => plugin.gives))
        up.backTo(this.#keyAt)
      }
    }
  }

  /** @param at the stage that has thrown */
  async #mayBeginAgain(x: HttpExchange, at: number, thrown: unknown): Promise<boolean> {
    if (at <= this.#keyAt || this.#keyAt === -1) return false
    if (thrown instanceof KeyChanged) {
      await this.#rereadKey(x)
      return true
    }
    const mayDepend = this.#stages[at]?.plugin.needs.includes('key') && GatewayError.from(thrown).status < 500
    // Without the store the refusal stands.
    return mayDepend === true && !x.keyIsCurrent && this.#rereadKey(x).catch(() => false)
  }

  async #pass(x: HttpExchange, up: ReplyHooks): Promise<Reply | undefined> {
    for (const placed of this.#stages.slice(up.count)) {
      try {
        const result: unknown = placed.stage.request?.(known(x))
        const given = result instanceof Promise ? await this.#limited(result, x, placed) : result
        if (given instanceof Reply) return given
        learn(x, given, placed.plugin)
      } catch (thrown) {
        throw ofStage(placed.plugin, thrown)
      }
      up.passed()
    }
    return undefined
  }

  /**
   * Limits the time of a request hook. The time that a client takes to send its body does not count. If a
   * hook resolves after the limit, its stage is settled at once, since it may have set money aside.
   */
  #limited(result: Promise<unknown>, x: HttpExchange, placed: PlacedStage): Promise<unknown> {
    const { plugin, stage } = placed
    return new Promise((resolve, reject) => {
      const late = deadline(this.#limitMs, () => {
        if (x.phase === 'reading-body') return late.refresh()
        const error = new GatewayError('internal', {
          cause: new Error(`stage ${plugin.name} failed: its request hook took more than ${this.#limitMs} ms`),
        })
        reject(error)
        result
          .then(async given => {
            if (given instanceof Reply) return
            learn(x, given, plugin)
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
