/** Notes what happens to plans as they are used: that one renews, that one ends, and that a window is nearly used up. */
import type { Config } from '../config/config.ts'
import type { Keys } from '../keys/keys.ts'
import type { Hold } from '../ledger/hold.ts'
import type { Log } from '../lib/log.ts'
import { lru } from '../lib/lru.ts'
import { after } from '../plans/calendar.ts'
import { claimsIn } from '../plans/claims.ts'
import { isValid, type Plan } from '../plans/plan.ts'
import { nameOf, statesIn, windowViews } from '../plans/state.ts'
import type { PlanWindow } from '../plans/terms.ts'

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
    if (!isValid(plan, this.#now())) return this.#keys.plans.noteLapse(account, plan)
    const { widest } = plan
    const from = widest === undefined ? undefined : statesIn(standing?.windows).byPlace.get(widest)?.from
    if (widest === undefined || from === undefined || !isRenewal(plan, widest, from)) return
    const terms = plan.type === undefined ? undefined : this.#keyTypes.get(plan.type)?.plan
    this.#once(`${account} renewed ${from}`, () => this.#keys.plans.renewed(account, plan, { from, terms }))
  }

  /** Notes which windows of a plan are nearly used up when a request has ended. It is told once for each window. */
  ended(
    { account, standing, claims, request }: NotedHold,
    used: { readonly charge: bigint; readonly tokens: number },
  ): void {
    const plan = request.bounds?.plan
    if (!plan || !standing) return
    const ofPlan = claimsIn(claims).windows.filter(({ isOfPlan }) => isOfPlan)
    const claimed = new Map(ofPlan.map(({ place, taken }) => [place, taken]))
    if (claimed.size === 0) return
    const own = { credits: used.charge, requests: 1n, tokens: BigInt(used.tokens) }
    for (const view of windowViews(plan, standing.windows, this.#now())) {
      const isLow = (view.used + own[view.window.unit]) * 100n >= view.limit * LOW_PERCENT
      if (!isLow || !claimed.has(view.place)) continue
      const taken = claimed.get(view.place) ?? 0n
      const window = {
        ...view,
        used: view.used + own[view.window.unit],
        held: view.held > taken ? view.held - taken : 0n,
      }
      const left = view.limit - window.used - window.held
      const shown = { ...window, left: left > 0n ? left : 0n }
      const event = { event: 'low', account, plan, window: shown } as const
      this.#once(`${account} ${nameOf(plan, view, this.#now())}`, () => this.#keys.plans.low(event))
    }
  }

  #once(name: string, note: () => Promise<unknown>): void {
    if (this.#noted.has(name)) return
    this.#noted.set(name, true)
    note().catch((cause: unknown) => {
      // A later request tries again.
      this.#noted.delete(name)
      this.#log.warn({ err: cause }, 'a change of a plan cannot be noted at the moment')
    })
  }
}

/**
 * Whether the widest window has begun anew since the last time that was recorded. Its first one, and one that an operator has reset,
 * are no renewals.
 */
function isRenewal(plan: Plan, widest: number, from: number): boolean {
  const last = plan.renewedAt ?? plan.at
  if (from <= last || from === plan.resets?.[widest]) return false
  const { timing } = plan.windows[widest] as PlanWindow
  // Windows of other terms begin at once, too.
  return timing.kind !== 'first use' || from >= after(last, timing.period, 1)
}
