/**
 * The heart of the gateway. A request goes down the stages of its chain. Its reply comes up through the stages that the
 * request passed, the last one first. When the exchange has ended, each of them settles.
 */
import { deadline } from '../lib/deadline.ts'
import { checkHeaders, GatewayError, Reply } from '../errors.ts'
import type { Fact, Head, Outcome, ReplyEvent, Rewriter, With } from '../exchange/exchange.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { type Log, reasonOf } from '../lib/log.ts'
import type { Plugin, Stage } from './stage.ts'
import { withTimeout } from '../lib/with-timeout.ts'

/** A stage with the plugin that it was set up by. */
export interface PlacedStage {
  readonly plugin: Plugin
  readonly stage: Stage<Fact, Fact>
}

/** Sends a request to its upstream and relays the reply. */
export type Forward = (x: HttpExchange, up: ReplyHooks) => Promise<Outcome>

/** When the chain was loaded, the gateway checked that every hook finds the facts that its type promises. */
type Known = With<Fact>

function known(x: HttpExchange): Known {
  return x as unknown as Known
}

/** The stages that have a hook for replies, the last one first. A reply of an upstream has passed all stages. */
class HookLists {
  readonly response: readonly PlacedStage[]
  readonly rewrite: readonly PlacedStage[]
  readonly event: readonly PlacedStage[]
  readonly progress: readonly PlacedStage[]
  /** Whether an event hook wants all events, and not only those with signals. */
  readonly wantsAll: boolean

  constructor(stages: readonly PlacedStage[]) {
    const having = (hook: keyof Stage<Fact, Fact>): PlacedStage[] =>
      stages.filter(({ stage }) => hook in stage).reverse()
    this.response = having('response')
    this.rewrite = having('rewrite')
    this.event = having('event')
    this.progress = having('progress')
    this.wantsAll = this.event.some(({ stage }) => stage.events !== 'signals')
  }
}

/** The way up: the hooks of the stages, in the opposite order. */
export class ReplyHooks {
  readonly #x: HttpExchange
  readonly #stages: readonly PlacedStage[]
  readonly #hooks: HookLists
  readonly #limit: number
  readonly log: Log
  /** How many stages the request has passed. */
  #passed = 0
  /** Headers of the reply that need no check: those that the gateway sets, and those that have passed. */
  #checkedHeaders: Record<string, string> = {}

  constructor(x: HttpExchange, stages: readonly PlacedStage[], hooks: HookLists, log: Log, limit: number) {
    this.#x = x
    this.#stages = stages
    this.#hooks = hooks
    this.log = log
    this.#limit = limit
  }

  /** Notes that a stage let the request pass: its request hook has resolved. */
  passed(): void {
    this.#passed++
  }

  /**
   * Runs the response hooks.
   * @throws GatewayError from a stage that turns the reply into an error; ReplyOverride if a stage gives a reply of its
   * own
   */
  response(head: Head): void {
    this.#checkedHeaders = { ...head.reply }
    for (const placed of this.#hooks.response) {
      const reply = this.#call('response', placed, head)
      if (reply) throw new ReplyOverride(reply, placed.plugin, this.#limit)
    }
  }

  rewriters(head: Head): Rewriter[] {
    const rewriters: Rewriter[] = []
    for (const placed of this.#hooks.rewrite) {
      const given = this.#call('rewrite', placed, head)
      if (given === undefined) continue
      if (!isRewriter(given)) throw ofStage(placed.plugin, new TypeError('its rewrite hook returned no Rewriter'))
      rewriters.push(given)
    }
    return rewriters
  }

  /** Runs a hook that may set headers of the reply. @returns what the hook returns; it may be plain JavaScript */
  #call(hook: 'response' | 'rewrite', { plugin, stage }: PlacedStage, head: Head): unknown {
    try {
      const given = stage[hook]?.(known(this.#x), head)
      checkHeaders(head.reply, this.#checkedHeaders)
      return given
    } catch (thrown) {
      throw ofStage(plugin, thrown)
    }
  }

  get wantsAll(): boolean {
    return this.#hooks.wantsAll
  }

  event(event: ReplyEvent): void {
    for (const placed of this.#hooks.event) {
      try {
        placed.stage.event?.(known(this.#x), event)
      } catch (cause) {
        this.#hookFailed(placed, cause, 'event hook failed')
      }
    }
  }

  /** The progress hooks as one function, which returns what to wait for; undefined if no stage has such a hook. */
  progress(): (() => readonly Promise<unknown>[] | undefined) | undefined {
    const watching = this.#hooks.progress
    if (watching.length === 0) return undefined
    return () => {
      let waiting: Promise<unknown>[] | undefined
      for (const placed of watching) {
        try {
          const wait = placed.stage.progress?.(known(this.#x))
          if (!wait) continue
          waiting ??= []
          waiting.push(wait.catch((cause: unknown) => this.#hookFailed(placed, cause, 'progress hook failed')))
        } catch (cause) {
          this.#hookFailed(placed, cause, 'progress hook failed')
        }
      }
      return waiting
    }
  }

  /** Tells the stages whether a client listens to a reply that is read on. */
  listening(anybody: boolean): void {
    for (const placed of this.#stages) {
      try {
        placed.stage.listening?.(known(this.#x), anybody)
      } catch (cause) {
        this.#hookFailed(placed, cause, 'listening hook failed')
      }
    }
  }

  /** Logs what a hook throws on the way up. The reply goes on. */
  #hookFailed({ plugin }: PlacedStage, cause: unknown, message: string): void {
    this.log.error({ exchange: this.#x.id, stage: plugin.name, err: cause }, message)
  }

  async settle(outcome: Outcome): Promise<void> {
    while (this.#passed > 0) {
      const placed = this.#stages[--this.#passed] as PlacedStage
      try {
        const settling = placed.stage.settle?.(known(this.#x), outcome)
        if (settling instanceof Promise) await withTimeout(settling, this.#limit, 'settle hook')
      } catch (cause) {
        this.#hookFailed(placed, cause, 'settle hook failed')
      }
    }
  }
}

function isRewriter(given: unknown): given is Rewriter {
  return typeof (given as Partial<Rewriter> | null)?.event === 'function'
}

/** Returns what a stage has thrown. An error that is not the gateway's own gets the stage's name. */
function ofStage({ name }: Plugin, thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown
  const cause = thrown instanceof Error ? thrown : new Error(String(thrown))
  // The log adds the message of the cause.
  return new GatewayError('internal', { cause: new Error(`stage ${name} failed`, { cause }) })
}

/** Thrown when a stage replaces the upstream's reply by its own. */
class ReplyOverride extends Error {
  /** Rejects with a GatewayError of the stage. */
  readonly reply: Promise<Reply>

  /**
   * @param given what the response hook returned
   * @param limit milliseconds that a promise may take
   */
  constructor(given: unknown, plugin: Plugin, limit: number) {
    super('a stage replaced the reply')
    this.reply = replyOf(given, plugin, limit)
    // The chain awaits it only when the upstream's reply has been given up. Until then a rejection has no handler.
    this.reply.catch(() => {})
  }
}

async function replyOf(given: unknown, plugin: Plugin, limit: number): Promise<Reply> {
  try {
    const reply = await withTimeout(given, limit, 'its response hook')
    if (reply instanceof Reply) return reply
    throw new TypeError('its response hook returned no Reply')
  } catch (thrown) {
    throw ofStage(plugin, thrown)
  }
}

/** The stages of one endpoint. */
export class Chain {
  readonly #stages: readonly PlacedStage[]
  readonly #hooks: HookLists
  readonly #log: Log
  readonly #limit: number

  /** @param limit milliseconds that a promise of a hook may take */
  constructor(stages: readonly PlacedStage[], log: Log, limit: number) {
    this.#stages = stages
    this.#hooks = new HookLists(stages)
    this.#log = log
    this.#limit = limit
  }

  /** Takes an exchange to its end. Never rejects. */
  async run(x: HttpExchange, forward: Forward): Promise<void> {
    const up = new ReplyHooks(x, this.#stages, this.#hooks, this.#log, this.#limit)
    let outcome: Outcome
    try {
      const reply = await this.#down(x, up)
      outcome = reply ? await x.answer(reply) : await forward(x, up)
    } catch (thrown) {
      outcome = await this.#instead(x, thrown)
    }
    await up.settle(outcome)
  }

  /** Answers the client when something was thrown before the reply began. */
  async #instead(x: HttpExchange, thrown: unknown): Promise<Outcome> {
    try {
      if (thrown instanceof ReplyOverride) return await x.answer(await thrown.reply)
    } catch (worse) {
      return this.#instead(x, worse)
    }
    const error = GatewayError.from(thrown)
    const { code, details } = error
    if (code === 'internal') this.#log.error({ exchange: x.id, code, err: details.cause }, 'failed')
    else if (details.cause !== undefined)
      this.#log.warn({ exchange: x.id, code, reason: reasonOf(details.cause) }, 'failed')
    try {
      return await x.fail(error)
    } catch (cause) {
      // Whatever prevents the answer, the exchange ends, so that its stages settle.
      this.#log.error({ exchange: x.id, err: cause }, 'cannot send an error')
      x.outlet.destroy()
      return { kind: 'failed', error, attempts: x.attempts }
    }
  }

  async #down(x: HttpExchange, up: ReplyHooks): Promise<Reply | undefined> {
    for (const placed of this.#stages) {
      try {
        const result: unknown = placed.stage.request?.(known(x))
        const given = result instanceof Promise ? await this.#limited(result, x, placed) : result
        if (given instanceof Reply) return given
        x.learn(given, placed.plugin)
      } catch (thrown) {
        throw ofStage(placed.plugin, thrown)
      }
      up.passed()
    }
    return undefined
  }

  /**
   * Limits the time of a request hook. The time that a client takes to send its body does not count. A hook that
   * resolves after the limit has let the request pass too late: it is settled at once, as it may have set money aside.
   */
  #limited(result: Promise<unknown>, x: HttpExchange, placed: PlacedStage): Promise<unknown> {
    const { plugin, stage } = placed
    return new Promise((resolve, reject) => {
      const late = deadline(this.#limit, () => {
        if (x.phase === 'reading-body') return late.refresh()
        const error = new GatewayError('internal', {
          cause: new Error(`stage ${plugin.name} took more than ${this.#limit} ms`),
        })
        reject(error)
        result
          .then(async given => {
            x.learn(given, plugin)
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
