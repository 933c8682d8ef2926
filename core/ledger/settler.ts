/**
 * Settles and extends holds. If the store no longer has a hold, and may have forgotten how its exchange ended, the
 * records are asked first.
 */
import { isForGood, type HistoryEntry } from '../records/entry.ts'
import { isOld, startOf } from './script/buckets.ts'
import type { Continuity } from './recovery/continuity.ts'
import type { Hold, HoldName } from './hold.ts'
import { extendOperation, settleOperation, type SettlementLimits, type Verdict, verdictOf } from './operations.ts'
import { OF_QUOTAS } from './script/store-keys.ts'
import { CLOSED_STORE } from './recovery/refusals.ts'
import type { Scripts } from './script/scripts.ts'
import { unavailable } from '../records/unavailable.ts'
import type { Settlement } from './settlement.ts'

/** How often the next window is tried, and how much later each time, in milliseconds. */
const WINDOW_TRIES = 5
const WINDOW_STEP_MS = 1000

/**
 * Runs an operation that asks for windows. The clock of this process may be a little behind the end of one.
 * @param now by the store's clock
 * @throws GatewayError unavailable
 */
export async function inTime(
  now: number,
  run: (now: number) => Promise<readonly string[]>,
): Promise<readonly string[]> {
  for (let tries = 0; tries <= WINDOW_TRIES; tries++) {
    const answer = await run(now + tries * WINDOW_STEP_MS)
    if (answer[0] !== 'window') return answer
  }
  throw unavailable(new Error('a window is unclear'))
}

/** Sends what needs to know how an exchange ended. */
export class Settler {
  readonly #scripts: Scripts
  readonly #continuity: Pick<Continuity, 'mayLackOutcomes' | 'now' | 'open'>
  readonly #limits: SettlementLimits & { readonly leaseMs: number }
  readonly #entry: (id: string, account: string) => Promise<HistoryEntry | undefined>
  readonly #recorded: (id: string) => Promise<HistoryEntry | undefined>

  /** @param known returns what is known of an exchange, in the store or in the records */
  constructor(
    scripts: Scripts,
    continuity: Pick<Continuity, 'mayLackOutcomes' | 'now' | 'open'>,
    limits: SettlementLimits & { readonly leaseMs: number },
    known: { entry(id: string, account?: string): Promise<HistoryEntry | undefined> },
  ) {
    this.#scripts = scripts
    this.#continuity = continuity
    this.#limits = limits
    this.#entry = (id, account) => known.entry(id, account)
    this.#recorded = id => known.entry(id)
  }

  /** Sends a settlement. Sending it again changes nothing, however late. @throws GatewayError unavailable */
  async send(settlement: Settlement): Promise<void> {
    if (!this.#continuity.open) throw unavailable(new Error(CLOSED_STORE))
    await this.#asking(settlement, settlement.bucket, verdict => this.#settle(settlement, verdict))
  }

  /** Cancels a hold that the store may have. @throws GatewayError unavailable */
  async cancel(settlement: Settlement): Promise<void> {
    await this.#settle(settlement, '')
  }

  /**
   * Restores the hold of a running request in a store that has been restored from the records. It may have been reaped.
   * @returns the words of the answer
   * @throws GatewayError unavailable
   */
  async restore(hold: Hold): Promise<readonly string[]> {
    const { amount } = hold
    const { leaseMs } = this.#limits
    const known = await this.#recorded(hold.id)
    const verdict = verdictOf(known)
    return this.#extended(hold, { amount, leaseMs, verdict, countsDay: false })
  }

  /** Runs an extension. The clock of this process may be a little behind the end of a window. */
  async #extended(
    hold: Hold,
    extension: Omit<Parameters<typeof extendOperation>[1], 'now'>,
  ): Promise<readonly string[]> {
    return inTime(this.#continuity.now(), now =>
      this.#scripts.run(extendOperation(hold, { ...extension, now }, this.#scripts.keys)),
    )
  }

  /**
   * Extends a hold to an amount.
   * @param countsDay whether it needs room in the day of its key
   * @returns the words of the answer; `gone` if the exchange has ended
   * @throws GatewayError unavailable
   */
  async extend(hold: Hold, amount: bigint, countsDay = true): Promise<readonly string[]> {
    const { leaseMs } = this.#limits
    return this.#asking(hold, hold.bucket, verdict => this.#extended(hold, { amount, leaseMs, verdict, countsDay }))
  }

  #settle(settlement: Settlement, verdict: Verdict): Promise<readonly string[]> {
    return this.#scripts.run(settleOperation(settlement, verdict, this.#scripts.keys, this.#limits))
  }

  /** Runs an operation. If the store does not know how the exchange ended, runs it with what the records know. */
  async #asking(
    { account, id }: HoldName,
    bucket: string,
    run: (verdict: Verdict) => Promise<readonly string[]>,
  ): Promise<readonly string[]> {
    const old = isOld(bucket, this.#continuity.now())
    const mayBeForgotten = old || this.#continuity.mayLackOutcomes(startOf(bucket))
    const answer = await run(mayBeForgotten ? '?' : '')
    if (answer[0] !== 'unknown') return answer
    // Nothing is recorded of quotas, and what was used before hardly matters to them.
    if (account.startsWith(OF_QUOTAS)) return ['gone']
    // A store that has an entry in a stream has its outcome too, unless that is so old that it may have expired.
    const known = await (old ? this.#entry(id, account) : this.#recorded(id))
    if (known && isForGood(known.kind)) return ['gone']
    if (!this.#continuity.open) throw unavailable(new Error(CLOSED_STORE))
    const told = await run(verdictOf(known))
    if (told[0] === 'unknown') throw unavailable(new Error('the store lacks what is recorded'))
    return told
  }
}
