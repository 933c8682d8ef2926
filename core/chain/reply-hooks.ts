/** The way up: the hooks of the stages that a request passed, in the opposite order, and what they may return. */
import { checkHeaders, GatewayError, Reply } from '../errors.ts'
import type { Attempt, Fact, Head, Outcome, Rewriter } from '../exchange/exchange.ts'
import type { BuiltInWith } from '../exchange/built-in.ts'
import type { HttpExchange } from '../exchange/http-exchange.ts'
import { type OutgoingEvent, ReplyEvent } from '../formats/events.ts'
import type { Log } from '../lib/log.ts'
import { reasonOf } from '../lib/reason.ts'
import { withTimeout } from '../lib/with-timeout.ts'
import type { BuiltInStage } from './built-in-stage.ts'
import type { Plugin } from './stage.ts'

/** A stage with the plugin that it was set up by. */
export interface PlacedStage {
  readonly plugin: Plugin
  readonly stage: BuiltInStage<Fact, Fact>
}

/** When the chain was loaded, the gateway checked that every hook finds the facts that its type promises. */
type Known = BuiltInWith<Fact>

/** Returns an exchange as hooks see it. */
export function known(x: HttpExchange): Known {
  return x
}

/** The hooks of authors that run when the reply of a stream has begun. */
const LATE_HOOKS = ['event', 'progress', 'rewrite', 'settle'] as const

/** The stages that have a hook for replies, the last one first. A reply of an upstream has passed all stages. */
export class HookLists {
  readonly attempt: readonly PlacedStage[]
  readonly response: readonly PlacedStage[]
  readonly rewrite: readonly PlacedStage[]
  readonly event: readonly PlacedStage[]
  readonly progress: readonly PlacedStage[]
  readonly decide: readonly PlacedStage[]
  /** Whether an event hook wants all events, and not only those with signals. */
  readonly wantsAll: boolean
  /** Whether a stage of an author may read the request's body when the reply of a stream has begun. */
  readonly bodyIsReadLate: boolean

  constructor(stages: readonly PlacedStage[]) {
    const having = (hook: keyof BuiltInStage<Fact, Fact>): PlacedStage[] =>
      stages.filter(({ stage }) => hook in stage).reverse()
    this.attempt = having('attempt')
    this.response = having('response')
    this.rewrite = having('rewrite')
    this.event = having('event')
    this.progress = having('progress')
    this.decide = having('decide')
    this.wantsAll = this.event.some(({ stage }) => stage.events !== 'signals')
    this.bodyIsReadLate = stages.some(({ plugin, stage }) => !plugin.builtIn && LATE_HOOKS.some(hook => hook in stage))
  }
}

/** What all exchanges of a chain share on their way up. */
export interface ReplyHooksNeeds {
  readonly stages: readonly PlacedStage[]
  readonly hooks: HookLists
  readonly log: Log
  /** Milliseconds that a promise of a hook may take. */
  readonly limitMs: number
}

/** The way up: the hooks of the stages, in the opposite order. */
export class ReplyHooks {
  readonly #x: HttpExchange
  readonly #stages: readonly PlacedStage[]
  readonly #hooks: HookLists
  readonly #limitMs: number
  readonly log: Log
  /** Set when the stages have decided, with what the last bytes wait for. */
  #decided: { readonly wait: Promise<unknown> | undefined } | undefined
  /** How many stages the request has passed. */
  #passed = 0
  /** Headers of the reply that need no check: those that the gateway sets, and those that have passed. */
  #checkedHeaders: Record<string, string> = {}

  constructor(x: HttpExchange, { stages, hooks, log, limitMs }: ReplyHooksNeeds) {
    this.#x = x
    this.#stages = stages
    this.#hooks = hooks
    this.log = log
    this.#limitMs = limitMs
  }

  /** Notes that a stage let the request pass: its request hook has resolved. */
  passed(): void {
    this.#passed++
  }

  /** How many stages let the request pass. */
  get count(): number {
    return this.#passed
  }

  /** The request begins again at a stage. */
  backTo(index: number): void {
    this.#passed = index
  }

  /**
   * Runs the attempt hooks before the request goes out again: to another account, or shortened to the same one.
   * @param failed the attempt before
   * @returns false if a stage refuses the new account
   * @throws GatewayError of a stage
   */
  async beforeNextAttempt(failed: Attempt): Promise<boolean> {
    let usable = true
    for (const placed of this.#hooks.attempt) {
      try {
        const answer = placed.stage.attempt?.(known(this.#x), failed)
        if ((await withTimeout(answer, this.#limitMs, 'its attempt hook')) === false) usable = false
      } catch (thrown) {
        throw ofStage(placed.plugin, thrown)
      }
    }
    return usable
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
      if (reply) throw new ReplyOverride(reply, placed.plugin, this.#limitMs)
    }
  }

  rewriters(head: Head): Rewriter[] {
    const rewriters: Rewriter[] = []
    for (const placed of this.#hooks.rewrite) {
      const given = this.#call('rewrite', placed, head)
      if (given === undefined) continue
      try {
        rewriters.push(checkedRewriter(given, placed.plugin))
      } catch (thrown) {
        throw ofStage(placed.plugin, thrown)
      }
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

  /** Whether a stage of an author may read the request's body when the reply of a stream has begun. */
  get bodyIsReadLate(): boolean {
    return this.#hooks.bodyIsReadLate
  }

  event(event: ReplyEvent): void {
    for (const placed of this.#hooks.event) {
      try {
        // The hook may be asynchronous, though its type does not allow it.
        const observed: unknown = placed.stage.event?.(known(this.#x), event)
        if (observed instanceof Promise) this.#watch(observed, placed, 'event hook failed')
      } catch (cause) {
        this.#hookFailed(placed, cause, 'event hook failed')
      }
    }
  }

  /** The progress hooks as one function, which returns what to wait for; undefined if no stage has such a hook. */
  progress(): (() => readonly Promise<unknown>[] | undefined) | undefined {
    const watching = this.#hooks.progress
    if (watching.length === 0) return undefined
    return () => this.#waits(watching, 'progress', stage => stage.progress?.(known(this.#x)))
  }

  /** Runs the decide hooks, unless they have run. @returns what the last bytes of the reply must wait for */
  decide(outcome: Outcome): Promise<unknown> | undefined {
    if (this.#decided) return this.#decided.wait
    const waits = this.#waits(this.#hooks.decide, 'decide', stage => stage.decide?.(known(this.#x), outcome))
    this.#decided = { wait: waits && Promise.all(waits) }
    return this.#decided.wait
  }

  /** Runs a hook of some stages. @returns what to wait for, none of which rejects */
  #waits(
    stages: readonly PlacedStage[],
    hook: string,
    run: (stage: BuiltInStage<Fact, Fact>) => Promise<void> | void,
  ): Promise<unknown>[] | undefined {
    let waiting: Promise<unknown>[] | undefined
    for (const placed of stages) {
      try {
        const wait = run(placed.stage)
        if (!wait) continue
        waiting ??= []
        const limited = withTimeout(wait, this.#limitMs, `${hook} hook`)
        waiting.push(limited.catch((cause: unknown) => this.#hookFailed(placed, cause, `${hook} hook failed`)))
      } catch (cause) {
        this.#hookFailed(placed, cause, `${hook} hook failed`)
      }
    }
    return waiting
  }

  /** Tells the stages whether a client listens to a reply that is read on. */
  listening(anybody: boolean): void {
    for (const placed of this.#stages) {
      try {
        const observed: unknown = placed.stage.listening?.(known(this.#x), anybody)
        if (observed instanceof Promise) this.#watch(observed, placed, 'listening hook failed')
      } catch (cause) {
        this.#hookFailed(placed, cause, 'listening hook failed')
      }
    }
  }

  #watch(observed: Promise<unknown>, placed: PlacedStage, message: string): void {
    observed.catch((cause: unknown) => this.#hookFailed(placed, cause, message))
  }

  /** Logs what a hook throws on the way up. The reply goes on. */
  #hookFailed({ plugin }: PlacedStage, cause: unknown, message: string): void {
    this.log.error({ exchange: this.#x.id, stage: plugin.name, err: cause }, message)
  }

  async settle(outcome: Outcome): Promise<void> {
    // Nothing is decided after this.
    this.#decided ??= { wait: undefined }
    while (this.#passed > 0) {
      const placed = this.#stages[--this.#passed] as PlacedStage
      try {
        const settling = placed.stage.settle?.(known(this.#x), outcome)
        if (settling instanceof Promise) await withTimeout(settling, this.#limitMs, 'settle hook')
      } catch (cause) {
        this.#hookFailed(placed, cause, 'settle hook failed')
      }
    }
  }
}

const REWRITER_MEMBERS: readonly string[] = ['matches', 'edit', 'event'] satisfies (keyof Rewriter)[]

/**
 * Returns a rewriter whose errors name its stage. A plugin may be plain JavaScript, so the types are checked.
 * @throws TypeError if it is no Rewriter. Its `event` throws a GatewayError if it does not return events
 */
function checkedRewriter(given: unknown, plugin: Plugin): Rewriter {
  const rewriter = given as Rewriter
  if (typeof rewriter?.event !== 'function') {
    if (given instanceof Promise) given.catch(() => {})
    throw new TypeError('its rewrite hook returned no Rewriter')
  }
  // An instance of a class may have members of its own.
  const isPlain = Object.getPrototypeOf(rewriter) === Object.prototype
  const unknown = isPlain ? Object.keys(rewriter).find(member => !REWRITER_MEMBERS.includes(member)) : undefined
  if (unknown !== undefined) throw new TypeError(`its Rewriter has an unknown member "${unknown}"`)
  const { matches, edit } = rewriter
  if (matches !== undefined && !(Array.isArray(matches) && matches.every(isMatch)))
    throw new TypeError(
      'the `matches` of its Rewriter must be a list of strings and of regular expressions without flags',
    )
  if (edit !== undefined && typeof edit !== 'function')
    throw new TypeError('the `edit` of its Rewriter must be a function')
  return {
    ...(matches && { matches }),
    ...(edit && {
      edit(text) {
        try {
          const edited: unknown = rewriter.edit?.(text)
          if (typeof edited === 'string') return edited
          throw new TypeError('the `edit` of its Rewriter did not return a string')
        } catch (thrown) {
          throw ofStage(plugin, thrown)
        }
      },
    }),
    event(event) {
      try {
        const events: unknown = rewriter.event(event)
        if (events instanceof Promise) events.catch(() => {})
        if (events === undefined || (Array.isArray(events) && events.every(isOutgoing)))
          return events as ReturnType<Rewriter['event']>
        throw new TypeError('its Rewriter did not return a list of events')
      } catch (thrown) {
        throw ofStage(plugin, thrown)
      }
    },
  }
}

function isMatch(match: unknown): boolean {
  return typeof match === 'string' || (match instanceof RegExp && match.flags === '')
}

function isOutgoing(event: Partial<OutgoingEvent> | null): boolean {
  if (event instanceof ReplyEvent) return true
  if (typeof event?.type !== 'string' || typeof event.data !== 'string') return false
  // A line break would begin another field of the stream.
  return !/[\r\n]/.test(`${event.type}${event.comment ?? ''}`)
}

/** Returns what a stage has thrown. An error that is not the gateway's own gets the stage's name. */
export function ofStage({ name }: Plugin, thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown
  const cause = thrown instanceof Error ? thrown : new Error(reasonOf(thrown))
  // The log adds the message of the cause.
  return new GatewayError('internal', { cause: new Error(`stage ${name} failed`, { cause }) })
}

/** Thrown when a stage replaces the upstream's reply by its own. */
export class ReplyOverride extends Error {
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
    throw new TypeError(
      'its response hook returned something else than a Reply; to add headers, do not return a promise',
    )
  } catch (thrown) {
    throw ofStage(plugin, thrown)
  }
}
