/** Keeps the hold of a running reply ahead of what the reply may cost. */
import { type Bill, billFor } from './bill.ts'
import { outputRateOf, runningCharge, runningTokens } from './charge.ts'
import { beyond, type Billable, cancelUsage, growsByClock, outputLimit } from './estimate.ts'
import type { Attempt } from '../exchange/exchange.ts'
import { type Hold, scaled } from '../ledger/hold.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { claimsIn } from '../plans/claims.ts'
import type { Indexed } from '../lib/swap-list.ts'
import type { Usage } from '../money/usage.ts'
import { tokensFor } from '../money/price.ts'
import type { Notes } from '../records/entry.ts'
import type { TermsPair } from './terms.ts'
import { hasRounds } from './tool-rounds.ts'

declare module '../exchange/built-in.ts' {
  interface BuiltInFacts {
    runningHold: RunningHold
  }
}

/** A reply whose holds grow with it. */
export interface HeldReply extends Billable {
  readonly gone: boolean
  stop(reason: 'budget', usage: Usage): void
  giveUp(): void
}

/** The holds of one running reply. */
export class RunningHold implements Indexed {
  index = -1
  /** The reply, if it may cost something while it delivers nothing. */
  silent: HeldReply | undefined
  /** The hold on the customer's account. */
  readonly keyHold: Hold
  /** The holds on the quotas of the upstream account that is asked now. */
  quotaHolds: readonly Hold[]
  terms: TermsPair
  /** Whether the output limit of the request was lowered to what is held. */
  isOutputLowered = false
  /** What the reply is charged, once that is decided. */
  bill: Pick<Bill, 'charge' | 'usage' | 'served'> | undefined
  /** Whether a stream of its upstream has begun. */
  isStreaming = false
  /** Whether the charge was decided, so that nothing more is held. */
  concluded = false
  /** The failed attempt that was accounted for last. */
  accountedFor: Attempt | undefined
  /** What attempts at other accounts cost the operator, in nano-credits. */
  failedCost = 0n
  readonly #ledger: Ledger
  /** Output tokens by which the hold stays ahead. */
  readonly #aheadTokens: number
  /** Delivered bytes at which the next check is due. */
  #checkAtBytes = 0
  #extending: Promise<void> | undefined
  #outputRate: bigint | undefined
  /** Whether the balance or a quota covered less than requested. The hold must be used up before the balance is asked again. */
  #underfunded: boolean

  /** @param aheadTokens output tokens by which the hold stays ahead */
  constructor(
    ledger: Ledger,
    { keyHold, quotaHolds }: { readonly keyHold: Hold; readonly quotaHolds: readonly Hold[] },
    terms: TermsPair,
    aheadTokens: number,
  ) {
    this.keyHold = keyHold
    this.quotaHolds = quotaHolds
    this.terms = terms
    this.#ledger = ledger
    this.#aheadTokens = aheadTokens
    this.#underfunded = this.#holdsLess()
  }

  /** Where the held amount comes from. A plan pays as far as it can; the store decides when the reply is settled. */
  get heldFrom(): 'credits' | 'plan' | 'both' {
    const { amount, claims } = this.keyHold
    const { ofPlan } = claimsIn(claims)
    if (ofPlan === 0n) return 'credits'
    return amount > ofPlan ? 'both' : 'plan'
  }

  /** Goes on with the holds on the quotas of another account, and the terms there. */
  goOn(quotaHolds: readonly Hold[], terms: TermsPair): void {
    this.quotaHolds = quotaHolds
    this.terms = terms
    this.#underfunded = this.#holdsLess()
    this.#outputRate = undefined
    this.#checkAtBytes = 0
  }

  #holdsLess(): boolean {
    return this.holds.some(({ amount, request }) => amount < request.amount)
  }

  /** Whether less is held than was requested. */
  get underfunded(): boolean {
    return this.#underfunded
  }

  get holds(): readonly Hold[] {
    return this.quotaHolds.length > 0 ? [this.keyHold, ...this.quotaHolds] : [this.keyHold]
  }

  /** The notes from the beginning of the exchange. */
  get notes(): Notes {
    return this.keyHold.request.notes
  }

  /** Held nano-credits, at the key's prices. */
  get amount(): bigint {
    let least = this.keyHold.amount
    for (const { covers } of this.quotaHolds) if (covers < least) least = covers
    return least
  }

  /** Returns the reply's cost so far, and the customer's balance after settlement, in nano-credits. */
  receipt(x: Billable): { charge: bigint; balance: bigint } {
    // A complete reply is billed as reported. One that is ended early is billed as observed.
    const charge = x.complete
      ? billFor(x, { kind: 'relayed', status: 200, attempts: [] }, this.terms.charged).charge
      : runningCharge(x, this.terms.charged)
    const { balance, amount, ofCredits } = this.keyHold
    const ofPlan = amount - ofCredits
    return { charge, balance: balance + ofCredits - (charge > ofPlan ? charge - ofPlan : 0n) }
  }

  /** The usage has changed: checks again with the next bytes. */
  recheck(): void {
    this.#checkAtBytes = 0
  }

  /**
   * Called after each delivery. Extends the holds in time, and ends the stream when its hold is used up.
   * @returns what the stream must wait for, if it used up its hold before the store answered
   */
  progress(x: HeldReply): Promise<void> | undefined {
    if ((x.delivered < this.#checkAtBytes && !x.gone) || x.complete) return undefined
    if (!this.#extending) this.#check(x)
    return this.#isUsedUp(x) ? this.#extended(x) : undefined
  }

  /** Whether a stream that asks for more has used up its hold. */
  #isUsedUp(x: HeldReply): boolean {
    return this.#extending !== undefined && this.amount <= runningCharge(x, this.terms.held)
  }

  /**
   * Waits for what is asked for. After a part of it, the rest is asked for at once: a stream that goes on between the two
   * delivers what has gathered meanwhile.
   */
  async #extended(x: HeldReply): Promise<void> {
    do await this.#extending
    while (this.#underfunded && this.#isUsedUp(x))
  }

  /** Called about once per second. Checks a silent reply like `progress`. */
  tick(): void {
    const x = this.silent
    if (x && !x.complete && !this.#extending && growsByClock(x, this.terms.held)) this.#check(x)
  }

  #check(x: HeldReply): void {
    const running = runningCharge(x, this.terms.held)
    if (x.gone) {
      // A reply without a listener is read only as far as its hold goes, which may be its whole limit.
      if (running > this.amount) x.giveUp()
      return
    }
    const limit = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
    if (limit !== Infinity && runningCharge(x, this.terms.held, limit, true) <= this.amount) {
      this.#checkAtBytes = beyond(limit)
      return
    }
    const wanted = runningCharge(x, this.terms.held, this.#aheadTokens, true)
    const call = hasRounds(this.terms.held.extras) ? wanted - runningCharge(x, this.terms.held, this.#aheadTokens) : 0n
    const spare = this.amount - running
    // A call is held for completely until it begins.
    const reserve = this.#underfunded ? 0n : call + (wanted - call - running) / 2n
    const free = wanted === running && spare >= 0n
    if (spare > reserve || free) this.#checkAtBytes = x.delivered + this.#bytesFor(x, spare - reserve)
    else this.#extending = this.#extend(x, wanted)
  }

  async #extend(x: HeldReply, wanted: bigint): Promise<void> {
    const before = this.amount
    const { bounds } = this.keyHold.request
    const tokens = bounds ? runningTokens(x, this.terms.held, this.#aheadTokens) : 0
    const alive = await Promise.all(
      this.holds.map(hold =>
        this.#ledger.extend(hold, scaled(wanted, hold.request.rate), hold === this.keyHold ? tokens : 0),
      ),
    ).catch(() => undefined)
    this.#extending = undefined
    // While the store is unavailable, a stream continues. Its cost will be settled.
    if (!alive) this.#checkAtBytes = x.delivered + (this.#aheadTokens * SAFE_BYTES_PER_TOKEN) / 4
    else if (alive.includes('over')) this.#checkAtBytes = Infinity
    else this.#goOnWith(x, wanted, before)
  }

  #goOnWith(x: HeldReply, wanted: bigint, before: bigint): void {
    this.#underfunded = this.amount < wanted
    const usedUp = this.#underfunded && this.amount === before && this.amount <= runningCharge(x, this.terms.held)
    // More may have been delivered in the meantime. A reply that is complete is not ended again.
    if (!usedUp) this.#check(x)
    else if (!x.complete) x.stop('budget', cancelUsage(x, this.terms.charged))
  }

  #bytesFor(x: HeldReply, nano: bigint): number {
    return Math.max(1, tokensFor(nano, (this.#outputRate ??= outputRateOf(x, this.terms.held))) * SAFE_BYTES_PER_TOKEN)
  }
}
