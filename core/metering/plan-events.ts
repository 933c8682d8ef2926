/** Notes what happens to plans as they are used: that one renews, that one ends, and that a window is nearly used up. */
import type { Config } from '../config/config.ts'
import type { Keys } from '../keys/keys.ts'
import type { Hold } from '../ledger/hold.ts'
import type { Log } from '../lib/log.ts'
import { lru } from '../lib/lru.ts'
import { isValid } from '../plans/plan.ts'
import { nameOf, statesIn, windowViews } from '../plans/state.ts'

/** Events that this process has noted. Others may note them too, which changes nothing. */
const NOTED_MAX = 10_000
/** From so many percent on, a window is nearly used up. */
const LOW_PERCENT = 90n

/** What is read of a hold. */
type NotedHold = Pick<Hold, 'account' | 'standing' | 'claims' | 'request'>

/** Notes what happens to plans. */
export class PlanEvents {
  readonly #keys: Pick<Keys, 'plans'>
  readonly #keyTypes: Config['keyTypes']
  readonly #now: () => number
  readonly #log: Log
  readonly #noted = lru<string, true>(NOTED_MAX)

  constructor({
    keys,
    config,
    now,
    log,
  }: {
    readonly keys: Pick<Keys, 'plans'>
    readonly config: Pick<Config, 'keyTypes'>
    readonly now: () => number
    readonly log: Log
  }) {
    this.#keys = keys
    this.#keyTypes = config.keyTypes
    this.#now = now
    this.#log = log
  }

  /** Notes what a hold shows of the plan of its balance. The request does not wait for it. */
  note({ account, standing, request }: NotedHold): void {
    const plan = request.bounds?.plan
    if (!plan) return
    if (!isValid(plan, this.#now())) {
      this.#once(`${account} ${plan.until}`, () => this.#keys.plans.lapsed(account, plan))
      return
    }
    const { widest } = plan
    if (widest === undefined || !standing?.renewed.includes(widest)) return
    const { from = 0 } = statesIn(standing.windows).byPlace.get(widest) ?? {}
    // An operator has reset it, which is noted already.
    if (from === plan.resets?.[widest]) return
    const terms = plan.type === undefined ? undefined : this.#keyTypes.get(plan.type)?.plan
    this.#inTheBackground(this.#keys.plans.renewed(account, plan, { from, terms }))
  }

  /** Notes which windows of a plan are nearly used up when a request has ended. It is told once for each window. */
  ended(
    { account, standing, claims, request }: NotedHold,
    used: { readonly charge: bigint; readonly tokens: number },
  ): void {
    const plan = request.bounds?.plan
    const claimed = plan && standing ? placesIn(claims) : []
    if (!plan || claimed.length === 0) return
    const own = { credits: used.charge, requests: 1n, tokens: BigInt(used.tokens) }
    for (const view of windowViews(plan, standing?.windows, this.#now())) {
      const isLow = (view.used + own[view.window.unit]) * 100n >= view.limit * LOW_PERCENT
      if (!isLow || !claimed.includes(view.place)) continue
      const event = { event: 'low', account, plan, window: view } as const
      this.#once(`${account} ${nameOf(plan, view, this.#now())}`, () => this.#keys.plans.low(event))
    }
  }

  #once(name: string, note: () => Promise<unknown>): void {
    if (this.#noted.has(name)) return
    this.#noted.set(name, true)
    this.#inTheBackground(note())
  }

  #inTheBackground(work: Promise<unknown>): void {
    work.catch((cause: unknown) => this.#log.warn({ err: cause }, 'a change of a plan cannot be noted at the moment'))
  }
}

/** Returns the windows that a hold has taken something of. */
function placesIn(claims: string): readonly number[] {
  return [...claims.matchAll(/(?:^|\/)w(\d+)/g)].map(([, place]) => Number(place))
}
