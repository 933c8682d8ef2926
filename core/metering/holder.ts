/** The holds of a request: on its key's account, and on the quotas of the upstream account that it asks. */
import type { Quota, Upstream } from '../config/config.ts'
import { type AccountState, afterWait, GatewayError, KeyChanged } from '../errors.ts'
import type { BuiltInExchange, BuiltInWith } from '../exchange/built-in.ts'
import { type HoldEnd, type Hold, type HoldAnswer, type HoldRequest, scaled } from '../ledger/hold.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { quotaAccount } from '../ledger/quotas.ts'
import { isoTime } from '../lib/iso-time.ts'
import type { KeyLimits } from '../plans/limits.ts'
import { refusal } from './refusals.ts'
import { chargeAll, greatestFactor } from '../money/price.ts'
import type { Notes } from '../records/entry.ts'
import type { Bill } from './bill.ts'
import type { MeterState } from './meter-state.ts'

type Known = BuiltInExchange & BuiltInWith<'key' | 'model' | 'route'>

/** What the holder needs of a gateway. */
interface Host {
  readonly ledger: Ledger
  readonly meter: Pick<MeterState, 'lines'>
  readonly now: () => number
  readonly pool: { states(upstreams: readonly Upstream[], model: string): readonly AccountState[] }
  readonly config: { readonly contact: string; readonly limits: { readonly stageMs: number } }
}

/**
 * The holds on the quotas of an account. `used up`: `resetsAt` is when all of its windows that are used up have begun
 * anew, and `ofShare` tells that only the key's share is. `busy`: the request fits once running requests have ended.
 */
export type QuotaHolds =
  | { readonly kind: 'held'; readonly holds: readonly Hold[] }
  | { readonly kind: 'used up'; readonly resetsAt: number; readonly ofShare: boolean }
  | { readonly kind: 'busy' }

/** The answer for the key's account, with the one for the quotas of the first account if it is held. */
type Answer =
  { readonly kind: 'held'; readonly hold: Hold; readonly quotas: QuotaHolds } | Exclude<HoldAnswer, { kind: 'held' }>

const NO_QUOTAS: QuotaHolds = { kind: 'held', holds: [] }

/** Requests and ends the holds of requests. */
export class Holder {
  readonly #host: Host

  constructor(host: Host) {
    this.#host = host
  }

  /**
   * Holds on the key's account, and on the quotas of the first upstream account that has something left in each. A request of a
   * key that has too many running ones waits in line, without holding anything.
   * @throws GatewayError if the key may not hold, or if no account has anything left; KeyChanged
   */
  async hold(own: HoldRequest, x: Known, limits: KeyLimits): Promise<readonly [key: Hold, quotas: readonly Hold[]]> {
    const { meter, now, config, pool } = this.#host
    const { concurrency = 0, queueMs = 0 } = limits
    // The stage has a time limit of its own.
    const waitMs = Math.min(queueMs, config.limits.stageMs / 2)
    const answer = await meter.lines.ask<Answer>(
      x.key.id,
      { most: concurrency, waitMs, signal: () => x.signal },
      () => this.#holdAtOnce(own, x),
      waitedMs => this.#holdInTurn({ ...own, waitedMs }, x),
    )
    if (answer.kind === 'stale') throw new KeyChanged()
    // The store refuses by the latest record only.
    x.keyIsCurrent = true
    if (answer.kind !== 'held')
      throw refusal(answer, own, {
        limits,
        format: x.format,
        contact: config.contact,
        now: now(),
        expiresAt: x.key.expiresAt,
      })
    let { quotas } = answer
    try {
      let resetsAt = Infinity
      let ofShare = false
      let isBusy = false
      const accounts: AccountState[] = []
      while (quotas.kind !== 'held') {
        const { account } = x.route
        if (quotas.kind === 'busy') {
          isBusy = true
          accounts.push({ account: account.name, state: 'running requests hold what is left of its quota' })
        } else {
          resetsAt = Math.min(resetsAt, quotas.resetsAt)
          ofShare ||= quotas.ofShare
          const whose = quotas.ofShare ? 'the share of this key in its quota' : 'its quota'
          accounts.push({ account: account.name, state: `${whose} is used up until ${isoTime(quotas.resetsAt)}` })
        }
        if (!(await x.route.next())) {
          const { upstreams, sends } = x.model.entry
          const named = new Set(accounts.map(each => each.account))
          accounts.push(...pool.states(upstreams, sends).filter(each => !named.has(each.account)))
          throw isBusy ? quotaBusy(accounts) : usedUp(resetsAt, ofShare, now(), accounts)
        }
        quotas = await this.holdQuotas(own, x)
      }
      return [answer.hold, quotas.holds]
    } catch (thrown) {
      this.#giveBack([answer.hold], GatewayError.from(thrown))
      throw thrown
    }
  }

  /** Asks for all holds in one call to the store. */
  async #holdAtOnce(own: HoldRequest, x: Known): Promise<Answer> {
    const [key, quotas] = await Promise.allSettled([this.#host.ledger.hold(own), this.holdQuotas(own, x)])
    if (key.status === 'fulfilled' && quotas.status === 'fulfilled' && key.value.kind === 'held')
      return { ...key.value, quotas: quotas.value }
    if (quotas.status === 'fulfilled' && quotas.value.kind === 'held')
      this.#giveBack(quotas.value.holds, new GatewayError('rate_limited'))
    if (key.status === 'rejected') throw key.reason
    if (key.value.kind !== 'held') return key.value
    this.#giveBack([key.value.hold], new GatewayError('unavailable'))
    throw (quotas as PromiseRejectedResult).reason
  }

  /** Asks for the key's hold first: while a request waits, others use the quotas. */
  async #holdInTurn(own: HoldRequest, x: Known): Promise<Answer> {
    const key = await this.#host.ledger.hold(own)
    if (key.kind !== 'held') return key
    try {
      return { ...key, quotas: await this.holdQuotas(own, x) }
    } catch (thrown) {
      this.#giveBack([key.hold], GatewayError.from(thrown))
      throw thrown
    }
  }

  /**
   * Requests holds on all quotas of the account that is asked. If one of them is used up, the others are given back.
   * @param own the request for the hold on the key's account, which says how much
   * @throws GatewayError unavailable
   */
  async holdQuotas(own: HoldRequest, x: Pick<Known, 'key' | 'model' | 'route'>): Promise<QuotaHolds> {
    const { account } = x.route
    if (account.quotas.length === 0) return NO_QUOTAS
    const requests = account.quotas.map(quota => quotaRequest(own, quota, x))
    const answers = await Promise.allSettled(requests.map(request => this.#host.ledger.hold(request)))
    const given = answers.flatMap(answer => (answer.status === 'fulfilled' ? [answer.value] : []))
    const holds = given.flatMap(answer => (answer.kind === 'held' ? [answer.hold] : []))
    if (holds.length === requests.length) return { kind: 'held', holds }
    this.#giveBack(holds, new GatewayError('quota_exhausted'))
    const failed = answers.find(answer => answer.status === 'rejected')
    if (failed) throw failed.reason
    // All of them must have something left.
    const refusals = given.flatMap(answer => (answer.kind === 'insufficient' ? [answer] : []))
    if (refusals.length === 0) return { kind: 'busy' }
    return {
      kind: 'used up',
      resetsAt: Math.max(...refusals.map(({ resetsAt }) => resetsAt)),
      ofShare: refusals.every(({ ofShare }) => ofShare),
    }
  }

  /**
   * Ends the holds on the quotas of an account.
   * @param used what its attempt has used
   * @param cost what that costs the operator, in nano-credits, if known
   * @param notes those of a failed attempt if left out
   */
  endQuotas(holds: readonly Hold[], used: Bill['parts'], cost: bigint | undefined, notes?: Notes): void {
    const price = chargeAll(used)
    for (const hold of holds) {
      const { rate } = hold.request
      const charge = rate === undefined ? price : (cost ?? scaled(price, rate))
      const kind = charge === 0n ? 'void' : 'settle'
      this.#host.ledger.settle(hold, { charge, kind, notes: notes ?? { ...hold.request.notes, status: 'failed' } })
    }
  }

  /**
   * Ends a hold. If it is one on a key's account, the next request that waits for its slot is called.
   * @returns what `Ledger.dispatch` returns
   */
  end(hold: Hold, end: HoldEnd): Promise<void> {
    const onItsWay = this.#host.ledger.dispatch(hold, end)
    // The store settles first and answers the next question after that.
    this.#host.meter.lines.ended(hold.key ?? hold.account)
    return onItsWay
  }

  /** Voids the holds of a request that is not sent. */
  #giveBack(holds: readonly Hold[], error: GatewayError): void {
    for (const hold of holds) {
      const notes: Notes = { ...hold.request.notes, status: 'failed', httpStatus: error.status, errorCode: error.code }
      void this.end(hold, { charge: 0n, kind: 'void', notes })
    }
  }
}

/** Returns the request for a hold on a quota. @param own the one on the key's account, at its prices */
function quotaRequest(
  own: HoldRequest,
  quota: Quota,
  { key, model, route }: Pick<Known, 'key' | 'model' | 'route'>,
): HoldRequest {
  const { id, amount, least, notes, floor } = own
  const request = {
    id,
    notes,
    account: quotaAccount(route.account.name, quota),
    version: '',
    quota,
    sharer: quota.fairShare ? key.id : undefined,
  }
  if (quota.unit === 'credits') return { ...request, amount, least, floor }
  const { sends, price } = model.entry
  // The file has a cost for each model of an account with such a quota.
  const cost = route.upstream.cost.get(sends) ?? route.upstream.cost.get('*') ?? price
  const rate = greatestFactor(cost, price)
  return {
    ...request,
    rate,
    amount: scaled(amount, rate),
    least: scaled(least, rate),
    floor: () => {
      const { charge, notes } = floor()
      return { charge: scaled(charge, rate), notes }
    },
  }
}

/** The error for quotas that running requests hold. */
function quotaBusy(accounts: readonly AccountState[]): GatewayError {
  return new GatewayError('rate_limited', {
    message: 'Running requests hold what is left of the quota of this model. Try again in a moment.',
    retryAfterMs: 1000,
    accounts,
  })
}

/**
 * The error for quotas that are used up.
 * @param resetsAt when the first of them begins anew
 * @param ofShare whether one of them has something left for other keys
 */
function usedUp(resetsAt: number, ofShare: boolean, now: number, accounts: readonly AccountState[]): GatewayError {
  const wait = resetsAt - now
  const at = new Date(resetsAt).toISOString()
  return new GatewayError('quota_exhausted', {
    message: ofShare
      ? `This key has used up its share of the quota of this model. The quota renews at ${at}; the key may be served earlier.`
      : `The quota of this model is used up until ${at}.`,
    ...afterWait(Math.max(wait, 1000)),
    accounts,
  })
}
