/**
 * Changes the plans of balances: sets, extends and ends them, and adds to a window or resets it by hand. Each change is a grant
 * of no credits, so that it is recorded once by its id, goes to the records first and then to the store, and is a line of the
 * statement.
 */
import type { Ledger } from '../ledger/ledger.ts'
import { lru } from '../lib/lru.ts'
import { after } from '../plans/calendar.ts'
import {
  countedBy,
  digestOf,
  endOf,
  extendedEnd,
  extraIn,
  isValid,
  newPlan,
  periodOf,
  type Plan,
  planFrom,
  spanOf,
  type StoredPlan,
} from '../plans/plan.ts'
import { MAX_AMOUNT, parseDecimal } from '../money/credits.ts'
import { statesIn } from '../plans/state.ts'
import type { PlanTerms, PlanWindow } from '../plans/terms.ts'
import { planIn, writePlan } from '../records/account-rows.ts'
import { type Also, Impossible } from '../records/database.ts'
import { addNotices, type Notice } from '../records/notices.ts'
import type { PlanEvent } from '../records/watcher.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** What is changed of a plan. */
export type PlanChange = 'set' | 'bought' | 'extended' | 'ended' | 'extra' | 'reset' | 'renewed' | 'lapsed'

/** A change as it is asked for. */
export interface PlanWish {
  readonly account: string
  /** Repeating an id changes nothing. */
  readonly id: string
  /** What an operator says of it. */
  readonly note?: string | undefined
  /** Written in the same transaction. */
  readonly also?: Also | undefined
}

/** Ends of plans that this process has noted. Others may note them too, which changes nothing. */
const NOTED_MAX = 10_000

/** Changes the plans of the balances of a ledger. */
export class Plans {
  readonly #ledger: Ledger
  readonly #lapsed = lru<string, true>(NOTED_MAX)

  constructor(ledger: Ledger) {
    this.#ledger = ledger
  }

  /** Returns the plan of a balance. Undefined for none. @throws GatewayError unavailable */
  async of(account: string): Promise<Plan | undefined> {
    const recorded = await orUnavailable(this.#ledger.records.accounts.get(account))
    return recorded?.plan === undefined ? undefined : planFrom(recorded.plan)
  }

  /**
   * Gives a balance a plan, in the place of the one that it has.
   * @param type the key type that the terms are of, if they are
   * @returns whether this call changed anything
   * @throws GatewayError unavailable; RangeError if there is no such balance, or the id was used for credits
   */
  set(wish: PlanWish, terms: PlanTerms, type?: string): Promise<boolean> {
    return this.#change(withWords(wish, type ?? 'terms of its own'), 'set', (plan, now) => ({
      ...newPlan(terms, now, type),
      version: (plan?.version ?? 0) + 1,
    }))
  }

  /**
   * Extends a plan by one period: by its `until`. One that has ended begins again now,
   * with the terms of its key type as they are today.
   * @param termsOf returns the terms of a key type
   * @throws as `set`; RangeError if the balance has no plan that ends
   */
  extend(wish: PlanWish, termsOf: (type: string) => PlanTerms | undefined): Promise<boolean> {
    return this.#change(wish, 'extended', (plan, now) => {
      const before = needed(plan)
      return extended(before, now, before.type === undefined ? undefined : termsOf(before.type))
    })
  }

  /**
   * Gives a balance the plan of a key type for one period: extends it if it has that plan, and otherwise sets it.
   * @throws as `extend`; RangeError if another plan is valid
   */
  buy(wish: PlanWish, terms: PlanTerms, type: string): Promise<boolean> {
    return this.#change(withWords(wish, type), 'bought', (plan, now) => {
      if (plan?.type === type) return extended(plan, now, terms)
      if (plan && isValid(plan, now))
        throw new Impossible('the balance of this key has another plan, which is still valid')
      return { ...newPlan(terms, now, type), version: (plan?.version ?? 0) + 1 }
    })
  }

  /** Ends a plan now. @throws as `set`; RangeError if the balance has no plan */
  end(wish: PlanWish): Promise<boolean> {
    return this.#change(wish, 'ended', (plan, now) => ({ ...changed(valid(plan, now)), until: now }))
  }

  /** Lets a window begin anew now, with nothing used. What was added stays. @throws as `end`; RangeError if it has no such window */
  reset(wish: PlanWish, place: number): Promise<boolean> {
    return this.#change(withWords(wish, `window ${place + 1}`), 'reset', (plan, now) => {
      const before = valid(plan, now)
      windowAt(before, place)
      const { before: _, ...extra } = extraIn(before, place, now)
      return {
        ...changed(before),
        extras: { ...before.extras, [place]: extra },
        resets: { ...before.resets, [place]: now },
      }
    })
  }

  /**
   * Adds to what may be used in a window, until that begins anew. Of the last hours, for their length.
   * @param amount a plain decimal, in the window's unit
   * @throws as `reset`; RangeError for a window that begins with its next use
   */
  async add(wish: PlanWish, place: number, amount: string): Promise<boolean> {
    const inStore = await this.#ledger.reads.knownBalance(wish.account)
    const state = statesIn(inStore?.windows)
    return this.#change(withWords(wish, `${amount} in window ${place + 1}`), 'extra', (plan, now) => {
      const before = valid(plan, now)
      const window = windowAt(before, place)
      const { from = 0, ends = 0 } = (state.shape === before.shape && state.byPlace.get(place)) || {}
      // One that has begun with a use ends when the store says.
      const isRunning = window.timing.kind === 'first use' && ends > now && from >= (before.resets?.[place] ?? 0)
      if (window.timing.kind === 'first use' && !isRunning)
        throw new Impossible(`window ${place + 1} begins with its next use; add to it when it has begun`)
      const until = isRunning ? ends : (spanOf(before, place, now)?.until ?? after(now, periodOf(window), 1))
      const known = extraIn(before, place, now)
      const all = String(amountIn(window, amount) + BigInt(known.amount))
      return { ...changed(before), extras: { ...before.extras, [place]: { ...known, amount: all, until } } }
    })
  }

  /**
   * Notes that a plan has renewed: its widest window began anew. The terms of a key type are those of today from then on.
   * @param renewal when the window began, and the terms of the key type
   * @throws as `set`
   */
  renewed(
    account: string,
    plan: Plan,
    { from, terms }: { readonly from: number; readonly terms: PlanTerms | undefined },
  ): Promise<boolean> {
    const id = `plan:${plan.at}:renewed:${from}`
    const also: Also = async sql => {
      const text = await planIn(sql, account)
      if (text !== undefined)
        addNotices(sql, await this.#noticesOf({ event: 'renewed', account, plan: planFrom(text) }))
    }
    return this.#change({ account, id, also }, 'renewed', (before, now) => {
      if (before?.at !== plan.at) throw new Impossible('the plan was replaced meanwhile')
      const isEdited = terms !== undefined && digestOf(terms) !== before.of
      return { ...changed(before), ...(isEdited && withTerms(before, terms)), renewedAt: now }
    })
  }

  /** Notes in the background, once in each process, that a plan has ended by itself. */
  noteLapse(account: string, plan: Plan): void {
    const name = `${account} ${plan.until}`
    if (this.#lapsed.has(name)) return
    this.#lapsed.set(name, true)
    this.lapsed(account, plan).catch(() => this.#lapsed.delete(name))
  }

  /** Notes that a plan has ended by itself. @throws as `set` */
  lapsed(account: string, plan: Plan): Promise<boolean> {
    return this.#change({ account, id: `plan:${plan.at}:lapsed:${plan.until}` }, 'lapsed', (before, now) => {
      if (before?.until === plan.until && !isValid(plan, now)) return before
      throw new Impossible('the plan was changed meanwhile')
    })
  }

  /** Tells who watches plans that a window is nearly used up. @throws GatewayError unavailable */
  async low(event: PlanEvent): Promise<void> {
    const { balance } = await this.#ledger.reads.balance(event.account)
    const notices = await this.#noticesOf({ ...event, balance })
    if (notices.length > 0) await orUnavailable(this.#ledger.records.notices.add(...notices))
  }

  async #noticesOf(event: PlanEvent): Promise<readonly Notice[]> {
    const { watcher } = this.#ledger.records.recorder
    return (await watcher?.({ entries: [], spending: [], plans: [event] }).catch(() => [])) ?? []
  }

  async #change(
    { account, id, note, also }: PlanWish,
    change: PlanChange,
    next: (plan: Plan | undefined, now: number) => StoredPlan | undefined,
  ): Promise<boolean> {
    const now = this.#ledger.continuity.now()
    const notes = { reason: 'plan', change, ...(note !== undefined && { note }) }
    return this.#ledger.accounts.grant(account, { id, amount: 0n, notes }, async sql => {
      const recorded = await planIn(sql, account)
      const before = recorded === undefined ? undefined : planFrom(recorded)
      const plan = next(before, now)
      if (plan && plan !== before) await writePlan(sql, account, JSON.stringify(stored(plan)))
      await also?.(sql)
    })
  }
}

/** Says what was changed before what an operator says of it. */
function withWords(wish: PlanWish, words: string): PlanWish {
  return { ...wish, note: wish.note === undefined ? words : `${words}, ${wish.note}` }
}

function needed(plan: Plan | undefined): Plan {
  if (!plan) throw new Impossible('this balance has no plan')
  return plan
}

function valid(plan: Plan | undefined, now: number): Plan {
  if (!isValid(needed(plan), now)) throw new Impossible('the plan of this balance has ended')
  return needed(plan)
}

function windowAt(plan: Plan, place: number): PlanWindow {
  const window = plan.windows[place]
  if (window) return window
  throw new Impossible(`there is no window ${place + 1}: the last one of this plan is ${plan.windows.length}`)
}

/** Reads an amount of a window's unit. */
function amountIn({ unit }: PlanWindow, text: string): bigint {
  const whole = /^\d{1,12}$/.test(text) ? BigInt(text) : undefined
  const amount = unit === 'credits' ? parseDecimal(text) : whole
  if (amount === undefined || amount === 0n || amount > MAX_AMOUNT)
    throw new Impossible(`"${text}" is no number of ${unit} that can be added`)
  return amount
}

/** Returns a plan that is extended by one period. @param today the terms of its key type. A valid plan takes them when it renews */
function extended(plan: Plan, now: number, today: PlanTerms | undefined): StoredPlan {
  if (plan.until === undefined)
    throw new Impossible('the plan of this balance does not end, so that it cannot be extended; set one with "until"')
  const withPeriod = today?.until === undefined ? plan.terms : today
  const until = plan.until > now ? extendedEnd(plan, withPeriod) : endOf(withPeriod, now)
  if (until === undefined) throw new Impossible('the plan of this balance has no period')
  // A plan without a window that begins anew does not renew.
  const terms = today && plan.widest === undefined ? withTerms(plan, today) : undefined
  if (plan.until > now) return { ...changed(plan), ...terms, until }
  return { ...newPlan(today ?? plan.terms, now, plan.type), version: plan.version + 1, until }
}

/** The next version of a plan. */
function changed(plan: Plan): Plan {
  return { ...plan, version: plan.version + 1 }
}

/** Returns other terms for a plan. What was changed by hand stays for windows that count the same as before. */
function withTerms({ type, terms: before, resets, extras }: Plan, terms: PlanTerms): Partial<StoredPlan> {
  const isSame = (place: string): boolean => {
    const [one, other] = [before.windows[Number(place)], terms.windows[Number(place)]]
    return one !== undefined && other !== undefined && countedBy(one) === countedBy(other)
  }
  const kept = <T>(changes: Readonly<Record<string, T>> | undefined): Record<string, T> | undefined =>
    changes && Object.fromEntries(Object.entries(changes).filter(([place]) => isSame(place)))
  return { terms, ...(type !== undefined && { of: digestOf(terms) }), resets: kept(resets), extras: kept(extras) }
}

/** Returns what is stored of a plan. */
function stored({ version, terms, at, until, type, of, renewedAt, resets, extras }: StoredPlan): StoredPlan {
  return {
    version,
    terms,
    at,
    ...(until !== undefined && { until }),
    ...(type !== undefined && { type }),
    ...(of !== undefined && { of }),
    ...(renewedAt !== undefined && { renewedAt }),
    ...(resets && { resets }),
    ...(extras && { extras }),
  }
}
