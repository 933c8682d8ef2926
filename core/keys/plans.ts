/**
 * Changes the plans of balances: sets, extends and ends them, and adds to a window or resets it by hand. Each change is a grant
 * of no credits, so that it is recorded once by its id, goes to the records first and then to the store, and is a line of the
 * statement.
 */
import type { Ledger } from '../ledger/ledger.ts'
import { after } from '../plans/calendar.ts'
import { digestOf, newPlan, periodOf, type Plan, planFrom, spanOf, type StoredPlan } from '../plans/plan.ts'
import { durationMs, type PlanTerms, type PlanWindow } from '../plans/terms.ts'
import { type Also, Impossible, type Sql } from '../records/database.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** What is changed of a plan. */
export type PlanChange = 'set' | 'extended' | 'ended' | 'extra' | 'reset' | 'renewed' | 'lapsed'

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

/** Changes the plans of the balances of a ledger. */
export class Plans {
  readonly #ledger: Ledger

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
    return this.#change(wish, 'set', (plan, now) => ({
      ...newPlan(terms, now, type),
      version: (plan?.version ?? 0) + 1,
    }))
  }

  /**
   * Extends a plan by one period: by its `until`, or else by its widest window. One that has ended begins again now. Terms of a
   * key type are those of today from then on.
   * @param termsOf returns the terms of a key type
   * @throws as `set`; RangeError if the balance has no plan that ends
   */
  extend(wish: PlanWish, termsOf: (type: string) => PlanTerms | undefined): Promise<boolean> {
    return this.#change(wish, 'extended', (plan, now) => {
      const before = needed(plan)
      if (before.until === undefined) throw new Impossible('the plan of this balance does not end')
      const terms = (before.type === undefined ? undefined : termsOf(before.type)) ?? before.terms
      const ms = durationMs(terms.until ?? before.terms.until ?? '')
      if (ms === undefined) throw new Impossible('the plan of this balance has no period')
      if (before.until <= now)
        return { ...newPlan(terms, now, before.type), version: before.version + 1, until: now + ms }
      return { ...changed(before), ...withTerms(before, terms), until: before.until + ms }
    })
  }

  /** Ends a plan now. @throws as `set`; RangeError if the balance has no plan */
  end(wish: PlanWish): Promise<boolean> {
    return this.#change(wish, 'ended', (plan, now) => ({ ...changed(needed(plan)), until: now }))
  }

  /** Lets a window begin anew now, with nothing used. @throws as `end`; RangeError if it has no such window */
  reset(wish: PlanWish, place: number): Promise<boolean> {
    return this.#change(wish, 'reset', (plan, now) => {
      const before = needed(plan)
      windowAt(before, place)
      return { ...changed(before), resets: { ...before.resets, [place]: now } }
    })
  }

  /**
   * Adds to what may be used in a window, until that begins anew. Of the last hours, for their length.
   * @param amount in the window's unit
   * @throws as `reset`
   */
  add(wish: PlanWish, place: number, amount: bigint): Promise<boolean> {
    return this.#change(wish, 'extra', (plan, now) => {
      const before = needed(plan)
      const window = windowAt(before, place)
      const until = spanOf(before, place, now)?.until ?? after(now, periodOf(window), 1)
      const known = before.extras?.[place]
      const all = amount + (known && known.until > now ? BigInt(known.amount) : 0n)
      return { ...changed(before), extras: { ...before.extras, [place]: { amount: String(all), until } } }
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
    also?: Also,
  ): Promise<boolean> {
    const id = `plan:${plan.at}:renewed:${from}`
    return this.#change({ account, id, also }, 'renewed', before =>
      terms && before?.at === plan.at && digestOf(terms) !== before.of
        ? { ...changed(before), ...withTerms(before, terms) }
        : before,
    )
  }

  /** Notes that a plan has ended by itself. @throws as `set` */
  lapsed(account: string, plan: Plan, also?: Also): Promise<boolean> {
    return this.#change({ account, id: `plan:${plan.at}:lapsed:${plan.until}`, also }, 'lapsed', before => before)
  }

  async #change(
    { account, id, note, also }: PlanWish,
    change: PlanChange,
    next: (plan: Plan | undefined, now: number) => StoredPlan | undefined,
  ): Promise<boolean> {
    const now = this.#ledger.continuity.now()
    const notes = { reason: 'plan', change, ...(note !== undefined && { note }) }
    return this.#ledger.accounts.grant(account, { id, amount: 0n, notes }, async sql => {
      const before = await planIn(sql, account)
      const plan = next(before, now)
      if (plan && plan !== before) {
        const text = JSON.stringify(stored(plan))
        await sql.all('UPDATE accounts SET plan = ? WHERE id = ?', [text, account])
      }
      await also?.(sql)
    })
  }
}

async function planIn(sql: Sql, account: string): Promise<Plan | undefined> {
  const [row] = await sql.all('SELECT plan FROM accounts WHERE id = ?', [account])
  const text = row?.['plan']
  return typeof text === 'string' ? planFrom(text) : undefined
}

function needed(plan: Plan | undefined): Plan {
  if (!plan) throw new Impossible('this balance has no plan')
  return plan
}

function windowAt(plan: Plan, place: number): PlanWindow {
  const window = plan.windows[place]
  if (!window) throw new Impossible(`the plan of this balance has ${plan.windows.length} windows`)
  return window
}

/** The next version of a plan. */
function changed(plan: Plan): Plan {
  return { ...plan, version: plan.version + 1 }
}

function withTerms({ type }: Plan, terms: PlanTerms): Partial<StoredPlan> {
  return { terms, ...(type !== undefined && { of: digestOf(terms) }) }
}

/** Returns what is stored of a plan. */
function stored({ version, terms, at, until, type, of, resets, extras }: StoredPlan): StoredPlan {
  return {
    version,
    terms,
    at,
    ...(until !== undefined && { until }),
    ...(type !== undefined && { type }),
    ...(of !== undefined && { of }),
    ...(resets && { resets }),
    ...(extras && { extras }),
  }
}
