/**
 * The ledger: what each key was granted, what is held, and what was settled. Each change is one atomic script with an
 * id from the caller, so repeating a change has no effect. Amounts are integers in nano-credits.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Config, LedgerConfig } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { timeOfId } from '../lib/ids.ts'
import type { Log } from '../lib/log.ts'
import { SwapList } from '../lib/swap-list.ts'
import { assertMoney } from '../money/assertions.ts'
import type { HistoryEntry } from '../records/entry.ts'
import { moneyLine } from '../records/money-line.ts'
import type { Records } from '../records/records.ts'
import type { Store } from '../store/store.ts'
import { Accounts, type Given } from './accounts.ts'
import { Background } from './background.ts'
import { Buckets } from './script/buckets.ts'
import { Claims } from './claims.ts'
import { Continuity } from './recovery/continuity.ts'
import {
  type HoldEnd,
  type EndReason,
  Hold,
  type HoldAnswer,
  type HoldName,
  type HoldRequest,
  NO_CLAIMS,
} from './hold.ts'
import { Deliveries } from './deliveries.ts'
import { UncertainHolds } from './uncertain-holds.ts'
import { KeptItems } from './kept-items.ts'
import { DayUnknown, TRIES, TRIES_OF_STREAM } from './key-day.ts'
import { limitedFrom, standingFrom } from './hold-answers.ts'
import { holdOperation } from './operations.ts'
import { PriceBook } from './price-book.ts'
import { Reads } from './reads.ts'
import { Renewals } from './renewals.ts'
import { restoreHolds } from './restored-holds.ts'
import { CLOSED_STORE } from './recovery/refusals.ts'
import { Restorer } from './recovery/restore.ts'
import { operation } from './script/names.ts'
import { Scripts } from './script/scripts.ts'
import { orUnavailable, unavailable } from '../records/unavailable.ts'
import { type Settlement, settlementOf } from './settlement.ts'
import { inTime, Settler } from './settler.ts'
import { StoredObjects } from './stored-objects.ts'

/** Balances are below this amount in nano-credits, so that the script calculates exactly. */
const EXACT_MAX = 2n ** 53n

/** Interval at which recorded settlements are dropped, in milliseconds. */
const DROP_EVERY_MS = 1000

/** What a ledger is made of. */
export interface LedgerNeeds {
  readonly store: Store
  readonly records: Records
  readonly config: Pick<Config, 'store' | 'ledger'>
  readonly environment: Pick<Environment, 'log' | 'newId' | 'now'>
  /** Where settlements wait while the store is unavailable. A process that settles nothing needs none. */
  readonly outboxFolder?: string
}

/** The ledger of one process. */
export class Ledger {
  readonly scripts: Scripts
  readonly records: Records
  readonly reads: Reads
  readonly accounts: Accounts
  readonly claims: Claims
  readonly storedObjects: StoredObjects
  /** Items of replies that later requests may refer to. */
  readonly kept: KeptItems
  readonly prices: PriceBook
  readonly restorer: Restorer
  readonly continuity: Continuity
  readonly background: Background
  /** Milliseconds for which entries are kept. */
  readonly historyMs: number
  readonly #config: LedgerConfig
  readonly #log: Log
  readonly #buckets = new Buckets()
  readonly #live = new SwapList<Hold>()
  readonly #renewals: Renewals
  /** Live holds whose clients have left. */
  readonly #abandoned = new Map<string, Hold>()
  #timers: readonly NodeJS.Timeout[] = []
  /** Whether no other process can use the store. */
  #alone = false
  /** Accounts whose sums did not agree at the last check. */
  drifted = 0
  readonly #deliveries: Deliveries
  readonly #settler: Settler
  readonly #uncertain: UncertainHolds

  constructor({ store, records, config, environment, outboxFolder }: LedgerNeeds) {
    const { log, newId, now } = environment
    const { leaseMs, storedMs } = config.ledger
    const scripts = new Scripts(store, config.store.prefix)
    const restorer = new Restorer(scripts, records)
    const continuity = new Continuity({ scripts, records, restorer, store, environment })
    continuity.beforeReopening = () => this.#restoreHolds()
    continuity.onReopened = () => this.#deliveries.repeat()
    const storeNow = (): number => continuity.now()
    this.#config = config.ledger
    this.#log = log
    this.historyMs = config.ledger.historyMs
    this.scripts = scripts
    this.records = records
    this.restorer = restorer
    this.continuity = continuity
    this.reads = new Reads(scripts, records)
    this.accounts = new Accounts({ scripts, records, reads: this.reads, restorer, storeNow })
    this.claims = new Claims(scripts, leaseMs)
    this.storedObjects = new StoredObjects(scripts, this.reads, storedMs)
    this.kept = new KeptItems(scripts, now)
    this.prices = new PriceBook(records)
    this.background = new Background({ scripts, records, restorer, continuity, config: config.ledger, environment })
    this.#settler = new Settler(scripts, continuity, config.ledger, this.reads)
    this.#renewals = new Renewals({
      live: this.#live,
      scripts,
      leaseMs,
      isOpen: () => continuity.open,
      restore: hold => void this.#restore([hold]).catch(() => {}),
    })
    this.#uncertain = new UncertainHolds(settlement => this.#settler.cancel(settlement))
    const send = (settlement: Settlement): Promise<void> => this.#send(settlement)
    this.#deliveries = new Deliveries({ log, newId, now, folder: outboxFolder, send, storeNow })
  }

  /** Settlements that wait for the store. */
  get waiting(): number {
    return this.#deliveries.waiting
  }

  /**
   * Checks the store, sends what earlier processes left in the outbox, then starts to renew this process's holds and to
   * work in the background.
   * @param mayRebuild whether an empty store is filled from the records
   * @param alone whether no other process can use the store at this moment
   * @throws Error for the operator
   */
  async start({ mayRebuild, alone }: { mayRebuild: boolean; alone: boolean }): Promise<void> {
    this.#alone = alone
    await this.continuity.start(mayRebuild)
    await this.#deliveries.adopt()
    await this.background.start(alone)
    this.#renewals.start()
    this.#timers = [
      setInterval(() => this.claims.renew(), this.#config.leaseMs / 3),
      setInterval(() => void this.prices.keep().catch(() => {}), this.#config.reapEveryMs),
      setInterval(() => this.#dropRecorded(), DROP_EVERY_MS),
      setInterval(() => this.continuity.open && this.#uncertain.cancel(), DROP_EVERY_MS),
    ]
    for (const timer of this.#timers) timer.unref()
  }

  /**
   * Waits until every running settlement is in the store or on disk, then stops.
   * @param untilMs how long both are tried if neither takes a settlement, by `performance.now()`
   */
  async close(untilMs?: number): Promise<void> {
    this.#renewals.stop()
    for (const timer of this.#timers) clearInterval(timer)
    this.scripts.flush()
    await this.#deliveries.close(untilMs)
    await this.background.stop()
    this.continuity.close()
  }

  /** Settlements that are in the memory of this process only: the store and the disk have refused them. */
  get unwritten(): readonly Settlement[] {
    return this.#deliveries.unwritten
  }

  /** Number of holds that this process renews. */
  get live(): number {
    return this.#live.size
  }

  /** The age of the oldest hold that this process renews, in milliseconds; 0 if it renews none. */
  get oldestHoldMs(): number {
    const now = this.continuity.now()
    return this.#live.all().reduce((oldest, { id }) => Math.max(oldest, now - timeOfId(id)), 0)
  }

  /**
   * Requests a hold.
   * @throws GatewayError unavailable; the hold is then cancelled at once, or expires without a charge
   */
  async hold(request: HoldRequest): Promise<HoldAnswer> {
    const { account, key, id } = request
    if (!this.continuity.open && !(await this.continuity.whenOpen())) throw unavailable(new Error(CLOSED_STORE))
    if (!this.#alone && this.continuity.restoringMs > 0) {
      await sleep(this.continuity.restoringMs)
      return this.hold(request)
    }
    const { behind } = this.background
    if (behind !== undefined) throw unavailable(new Error(behind))
    this.background.noteHold(account)
    const bucket = this.#buckets.choose(account, this.continuity.now())
    let answer: readonly string[]
    try {
      answer = await this.reads.days.filled(request, TRIES, this.continuity, () => this.#requested(request, bucket))
    } catch (thrown) {
      const end: HoldEnd = { charge: 0n, kind: 'void', notes: request.notes }
      this.#uncertain.add(settlementOf({ account, key, id, bucket }, end, this.continuity.now()))
      throw thrown
    }
    const [kind, sum = '0', other = '0', which = '', claims, ...standing] = answer
    if (kind === 'held') {
      if (which === 'begun') void this.background.noteFirstUse(request.key ?? account)
      const hold = new Hold(request, bucket, BigInt(sum), BigInt(other))
      hold.claims = claims ?? NO_CLAIMS
      hold.standing = standingFrom(standing)
      const facts = (): object => ({ account, id, asked: request.amount, held: hold.amount, balance: hold.balance })
      assertMoney(hold.amount <= request.amount, 'a hold is at most what was asked for', facts)
      assertMoney(hold.balance < EXACT_MAX, 'a balance is below 2^53', facts)
      this.#live.add(hold)
      return { kind, hold }
    }
    if (kind === 'insufficient')
      return { kind, balance: BigInt(sum), resetsAt: Number(other), ofShare: which === 'share' }
    if (kind === 'capped') return { kind, left: BigInt(sum) }
    return limitedFrom(answer) ?? { kind: kind as 'busy' }
  }

  /** Extends a hold. What is held counts in the day of its key, if that can be known. A stream must not go on without a hold. */
  async #extended(hold: Hold, amount: bigint): Promise<readonly string[]> {
    const extend = async (countsDay = true): Promise<readonly string[]> =>
      hold.over ? ['gone'] : this.#settler.extend(hold, amount, countsDay)
    try {
      return await this.reads.days.filled(hold, TRIES_OF_STREAM, this.continuity, extend)
    } catch (thrown) {
      if (!(thrown instanceof DayUnknown)) throw thrown
      this.#log.warn({ exchange: hold.id, err: thrown }, 'a hold grows without the day of its key')
      return extend(false)
    }
  }

  /** Asks the store for a hold. */
  #requested(request: HoldRequest, bucket: string): Promise<readonly string[]> {
    const { leaseMs } = this.#config
    return inTime(this.continuity.now(), now =>
      this.scripts.run(holdOperation(request, bucket, { leaseMs, now }, this.scripts.keys)),
    )
  }

  /**
   * Extends a running hold to an amount, or as far as its purse allows. A hold that was lost in between is restored.
   * @param tokens what the amount is for, if windows count them
   * @returns `over` if it has been settled, `off` if its key is disabled and gets nothing more
   * @throws GatewayError unavailable
   */
  async extend(hold: Hold, amount: bigint, tokens = 0): Promise<'held' | 'over' | 'off'> {
    if (hold.over) return 'over'
    hold.tokens = tokens
    const [kind, held = '0', balance = '0', claims] = await this.#extended(hold, amount)
    if (kind === 'off') {
      hold.request.endExchange?.(held as EndReason)
      return 'off'
    }
    if (kind !== 'held') return 'over'
    hold.amount = BigInt(held)
    hold.balance = BigInt(balance)
    if (claims !== undefined) hold.claims = claims
    const facts = (): object => ({
      account: hold.account,
      id: hold.id,
      amount,
      held: hold.amount,
      balance: hold.balance,
    })
    assertMoney(hold.amount >= 0n && hold.balance < EXACT_MAX, 'an extended hold and its balance are amounts', facts)
    // This answer may arrive after the hold's end.
    if (!hold.over && !this.#live.has(hold)) this.#live.add(hold)
    return 'held'
  }

  /**
   * Marks a hold whose client has left while its reply is still read. It then occupies one of the key's slots
   * for such replies instead of one of its concurrency. If there are too many, the one that was abandoned first must end.
   * @param most number of these slots of one key
   * @param whole whether the reply is read to its end in any case, so that it is never chosen to end
   */
  async abandon(hold: Hold, most: number, whole: boolean): Promise<void> {
    const { account, id } = hold
    this.#abandoned.set(holdKey(hold), hold)
    const { keys } = this.scripts
    const names = { hold: keys.hold(account, id), slots: keys.slots(hold) }
    const [kind, first] = await this.scripts.run(operation('abandon', account, names, { id, most, readToEnd: whole }))
    // A reply without such a slot still counts towards the concurrency.
    if (kind === 'ok') hold.abandoned = true
    else if (kind === 'full' && !whole) hold.request.endExchange?.('crowded')
    // If the hold belongs to another process, that process learns of it at its next renewal.
    if (first !== undefined) this.#abandoned.get(holdKey({ account, id: first }))?.request.endExchange?.('crowded')
  }

  /** Ends the abandonment of a hold: a client receives its reply again. */
  async rejoin(hold: Hold): Promise<void> {
    const { account, id } = hold
    hold.abandoned = false
    this.#abandoned.delete(holdKey(hold))
    await this.scripts.run(operation('rejoin', account, { slots: this.scripts.keys.slots(hold) }, { id }))
  }

  /** Ends a hold with its charge. Returns at once. While the store is unavailable, the settlement waits on disk. */
  settle(hold: HoldName, end: HoldEnd): void {
    void this.dispatch(hold, end)
  }

  /** Like `settle`. Resolves when the settlement is on its way: handed to the store's connection, or on disk. */
  dispatch(hold: HoldName, end: HoldEnd): Promise<void> {
    if (hold instanceof Hold) {
      hold.over = true
      this.#live.delete(hold)
      if (this.#abandoned.size > 0) this.#abandoned.delete(holdKey(hold))
    }
    const delivered = this.#deliveries.deliver(settlementOf(hold, end, this.continuity.now()))
    // While the store is compared, what others ask for is written, and this is not.
    const written = this.continuity.open ? this.scripts.written() : undefined
    return written ? Promise.race([written, delivered]) : delivered
  }

  /**
   * Refunds a history entry. An exchange whose hold expired ends for good by that: its settlement, should
   * it still come, changes nothing.
   * @param asCredits gives back as credits what a plan has paid
   * @throws GatewayError unavailable; RangeError if the entry charged nothing, or if its exchange still runs; WindowsClosed
   */
  async credit(account: string, entry: HistoryEntry, reason: string, asCredits = false): Promise<Given> {
    const endForGood = entry.kind === 'reaped' ? () => this.#endForGood(account, entry) : undefined
    const given = await this.accounts.credit(account, entry, reason, { asCredits, endForGood })
    this.#announce(account)
    return given
  }

  /** Ends an exchange whose hold expired, with what it was charged then. @returns its entry */
  async #endForGood(account: string, entry: HistoryEntry): Promise<HistoryEntry> {
    const { id, key, bucket, plan } = entry
    if ((await orUnavailable(this.scripts.redis.exists(this.scripts.keys.hold(account, id)))) > 0)
      throw new RangeError(`the request ${id} still runs; refund it when it has ended`)
    const notes = { endpoint: '', model: '', stream: false, ...entry.notes }
    const end = { charge: moneyLine(entry).paid, tokens: plan?.tokens, kind: 'settle', notes } as const
    await this.#deliveries.send(settlementOf({ account, key, id, bucket, claims: plan?.claims }, end, entry.at))
    return (await this.reads.entry(id, account)) ?? entry
  }

  /** Notes that the stream of these holds has begun: the store learns soon what its customer has received. */
  begun(holds: readonly Hold[]): void {
    this.#renewals.begun(holds)
  }

  async #send(settlement: Settlement): Promise<void> {
    await this.#settler.send(settlement)
    this.#announce(settlement.account)
  }

  /** Announces that something of an account is to be recorded. */
  #announce(account: string): void {
    this.background.archiver.announce(this.scripts.keys.of(account).shard)
  }

  #dropRecorded(): void {
    // What a store has lost is repeated first.
    if (!this.continuity.open) return
    this.#deliveries.dropUntil(this.background.state.recordedUntil)
  }

  /** Holds again in a restored store what running requests need. @throws GatewayError unavailable */
  #restoreHolds(): Promise<void> {
    this.background.forgetHolds()
    return this.#restore(this.#live.all())
  }

  #restore(holds: readonly Hold[]): Promise<void> {
    const hold = (request: HoldRequest, bucket: string) => this.#requested(request, bucket)
    return restoreHolds(holds, this.#settler, hold, account => this.background.noteHold(account))
  }
}

function holdKey({ account, id }: HoldName): string {
  return `${account} ${id}`
}
