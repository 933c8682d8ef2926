/** Keeps what is held for a running reply ahead of what it may cost. */
import { billFor, outputRateOf, runningCharge } from './charge.ts'
import { beyond, type Billable, cutUsage, growsByClock, outputLimit, type Terms } from './estimate.ts'
import type { Hold } from '../ledger/hold.ts'
import { SAFE_BYTES_PER_TOKEN } from './documents.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Indexed } from '../lib/swap-list.ts'
import type { Usage } from '../money/usage.ts'
import { tokensFor } from '../money/price.ts'
import type { Notes } from '../ledger/records.ts'

/** A reply whose holds are to grow with it. */
export interface HeldReply extends Billable {
  readonly gone: boolean
  stop(reason: 'budget', usage: Usage): void
  giveUp(): void
}

export class RunningHold implements Indexed {
  index = -1
  /** The reply, where it may cost while nothing of it comes. */
  silent: HeldReply | undefined
  /** On the customer's account, and on the upstream account's quota where it has one. */
  readonly holds: readonly Hold[]
  readonly terms: Terms
  readonly #ledger: Ledger
  /** Output tokens that are held for at a time. */
  readonly #aheadTokens: number
  /** Bytes delivered at which to look again. */
  #checkAtBytes = 0
  #extending: Promise<void> | undefined
  #outputRate: bigint | undefined
  /** The balance did not go as far as was wanted: what is held must be used up before it is asked again. */
  #underfunded: boolean

  constructor(holds: readonly Hold[], ledger: Ledger, terms: Terms, ahead: number) {
    this.holds = holds
    this.terms = terms
    this.#ledger = ledger
    this.#aheadTokens = ahead
    this.#underfunded = holds.some(({ amount, request }) => amount < request.amount)
  }

  /** Less is held than was wanted. */
  get underfunded(): boolean {
    return this.#underfunded
  }

  /** The customer's own hold. */
  get keyHold(): Hold {
    return this.holds[0] as Hold
  }

  /** What was noted when it began. */
  get notes(): Notes {
    return this.keyHold.request.notes
  }

  /** What is held, in nano-credits. */
  get amount(): bigint {
    return this.holds.reduce((least, { amount }) => (amount < least ? amount : least), this.keyHold.amount)
  }

  /** What the reply has cost by now, and what is left of the customer's balance when it is settled, in nano-credits. */
  receipt(x: Billable): { charge: bigint; balance: bigint } {
    // What a reply says at its end is its bill; one that is ended before has cost what was observed.
    const charge = x.complete
      ? billFor(x, { kind: 'relayed', status: 200, attempts: [] }, this.terms).charge
      : runningCharge(x, this.terms)
    return { charge, balance: this.keyHold.balance + this.keyHold.amount - charge }
  }

  /** Something new is known of the usage: look again with the next bytes. */
  recheck(): void {
    this.#checkAtBytes = 0
  }

  /**
   * More was delivered: extends the holds in time, and ends the stream when what it may cost is used up.
   * @returns what the stream has to wait for, when it has used up what is held before the answer came
   */
  progress(x: HeldReply): Promise<void> | undefined {
    if ((x.delivered < this.#checkAtBytes && !x.gone) || x.complete) return undefined
    if (!this.#extending) this.#check(x)
    return this.#extending && this.amount <= runningCharge(x, this.terms) ? this.#extending : undefined
  }

  /** Time has passed: as `progress`, for the silent reply. To be called about once a second. */
  tick(): void {
    const x = this.silent
    if (x && !x.complete && !this.#extending && growsByClock(x, this.terms)) this.#check(x)
  }

  #check(x: HeldReply): void {
    const running = runningCharge(x, this.terms)
    if (x.gone) {
      // What nobody listens to is read on as far as its hold goes, and no further.
      if (running >= this.amount) x.giveUp()
      return
    }
    const limit = x.model.entry.reasoningInLimit ? outputLimit(x) : Infinity
    if (limit !== Infinity && runningCharge(x, this.terms, limit) <= this.amount) {
      this.#checkAtBytes = beyond(limit)
      return
    }
    const wanted = runningCharge(x, this.terms, this.#aheadTokens)
    const spare = this.amount - running
    const reserve = this.#underfunded ? 0n : (wanted - running) / 2n
    const free = wanted === running && spare >= 0n
    if (spare > reserve || free) this.#checkAtBytes = x.delivered + this.#bytesFor(x, spare - reserve)
    else this.#extending = this.#extend(x, wanted)
  }

  async #extend(x: HeldReply, wanted: bigint): Promise<void> {
    const before = this.amount
    const alive = await Promise.all(this.holds.map(hold => this.#ledger.extend(hold, wanted))).catch(() => undefined)
    this.#extending = undefined
    // While the store is away a stream goes on; what it costs will be settled.
    if (!alive) this.#checkAtBytes = x.delivered + (this.#aheadTokens * SAFE_BYTES_PER_TOKEN) / 4
    else if (alive.includes('over')) this.#checkAtBytes = Infinity
    else this.#extended(x, wanted, before)
  }

  #extended(x: HeldReply, wanted: bigint, before: bigint): void {
    this.#underfunded = this.amount < wanted
    const usedUp = this.#underfunded && this.amount === before && this.amount <= runningCharge(x, this.terms)
    // More may have been delivered meanwhile. A reply that has said its last is not ended again.
    if (!usedUp) this.#check(x)
    else if (!x.complete) x.stop('budget', cutUsage(x, this.terms))
  }

  #bytesFor(x: HeldReply, nano: bigint): number {
    return Math.max(1, tokensFor(nano, (this.#outputRate ??= outputRateOf(x, this.terms))) * SAFE_BYTES_PER_TOKEN)
  }
}
