/** Notes what happens to plans as they are used: that one renews, and that one ends. */
import type { Config } from '../config/config.ts'
import type { Key, Keys } from '../keys/keys.ts'
import type { Hold } from '../ledger/hold.ts'
import type { Log } from '../lib/log.ts'
import { lru } from '../lib/lru.ts'
import { isValid } from '../plans/plan.ts'
import { statesIn } from '../plans/state.ts'

/** Ends that this process has noted. Others may note them too, which changes nothing. */
const NOTED_MAX = 10_000

/** Notes the renewals and the ends of plans. */
export class PlanEvents {
  readonly #keys: Pick<Keys, 'plans'>
  readonly #keyTypes: Config['keyTypes']
  readonly #now: () => number
  readonly #log: Log
  readonly #ended = lru<string, true>(NOTED_MAX)

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
  note({ plan, account }: Pick<Key, 'plan' | 'account'>, { standing }: Pick<Hold, 'standing'>): void {
    if (!plan) return
    if (!isValid(plan, this.#now())) {
      const name = `${account} ${plan.until}`
      if (this.#ended.has(name)) return
      this.#ended.set(name, true)
      this.#inTheBackground(this.#keys.plans.lapsed(account, plan))
      return
    }
    const { widest } = plan
    if (widest === undefined || !standing?.renewed.includes(widest)) return
    const { from = 0 } = statesIn(standing.windows).byPlace.get(widest) ?? {}
    const terms = plan.type === undefined ? undefined : this.#keyTypes.get(plan.type)?.plan
    this.#inTheBackground(this.#keys.plans.renewed(account, plan, { from, terms }))
  }

  #inTheBackground(work: Promise<unknown>): void {
    work.catch((cause: unknown) => this.#log.warn({ err: cause }, 'a change of a plan cannot be noted at the moment'))
  }
}
