/**
 * Delivers settlements: to the store, or to the outbox while the store does not take them. What the store has taken and
 * the records may not have is kept, in case the store loses it.
 */
import type { Environment } from '../lib/environment.ts'
import { deadline } from '../lib/deadline.ts'
import type { Log } from '../lib/log.ts'
import { reasonOf } from '../lib/reason.ts'
import { Outbox } from './outbox.ts'
import { Recent } from './recent.ts'
import { causeOf } from '../records/unavailable.ts'
import type { Settlement } from './settlement.ts'

/** A settlement that the store has not answered for so long goes to the outbox as well, in milliseconds. */
const UNANSWERED_MS = 50

/** What the deliveries of a process need. */
export interface DeliveriesOptions extends Pick<Environment, 'log' | 'newId' | 'now'> {
  /** The outbox's folder; undefined for a process that settles nothing. */
  readonly folder: string | undefined
  /** Sends a settlement to the store. Rejects if the store did not take it. */
  send(settlement: Settlement): Promise<void>
  /** The time by the store's clock, in milliseconds since the epoch. */
  storeNow(): number
}

/** The deliveries of one process. */
export class Deliveries {
  readonly #host: DeliveriesOptions
  readonly #log: Log
  readonly #outbox: Outbox | undefined
  /** Settlements that the store has taken and the records may not have. */
  readonly #recent = new Recent()
  /** The number of running deliveries, and a callback for when the last one finishes. */
  #running = 0
  #finished: (() => void) | undefined

  constructor(host: DeliveriesOptions) {
    this.#host = host
    this.#log = host.log
    const { folder } = host
    if (folder !== undefined) this.#outbox = new Outbox({ ...host, folder, send: each => this.send(each) })
  }

  /** Settlements that wait for the store. */
  get waiting(): number {
    return this.#outbox?.size ?? 0
  }

  /** Settlements that are in the memory of this process only: the store and the disk have refused them. */
  get unwritten(): readonly Settlement[] {
    return this.#outbox?.unwritten ?? []
  }

  /** Takes over what earlier processes left in the outbox. */
  async adopt(): Promise<void> {
    await this.#outbox?.adopt()
  }

  /**
   * Delivers a settlement. Resolves as soon as the store or the disk has it; if neither takes it, it stays in memory.
   * @param mustBeSafe whether it goes to the disk if the store is late; not for one that the store has taken before
   */
  deliver(settlement: Settlement, mustBeSafe = true): Promise<void> {
    const safe = Promise.withResolvers<void>()
    void this.#deliver(settlement, mustBeSafe, safe.resolve)
    return safe.promise
  }

  async #deliver(settlement: Settlement, mustBeSafe: boolean, isSafe: () => void): Promise<void> {
    const { account, id } = settlement
    this.#running++
    let onDisk: Promise<unknown> | undefined
    const put = async (): Promise<void> => {
      onDisk ??= this.#outbox?.put(settlement)
      await onDisk
      isSafe()
    }
    // What the store gets twice counts once.
    const late = mustBeSafe ? deadline(UNANSWERED_MS, () => void put()) : undefined
    try {
      await this.send(settlement)
      isSafe()
    } catch (cause) {
      this.#log.warn({ exchange: id, account, reason: reasonOf(causeOf(cause)) }, 'a settlement waits for the store')
      await put()
    } finally {
      late?.clear()
      await onDisk
      if (--this.#running === 0) this.#finished?.()
    }
  }

  /** Sends a settlement to the store, and keeps it until it is recorded. @throws GatewayError unavailable */
  async send(settlement: Settlement): Promise<void> {
    await this.#host.send(settlement)
    const displaced = this.#recent.add(settlement, this.#host.storeNow())
    if (displaced) await this.#outbox?.keep(displaced.settlement, displaced.at)
  }

  /** Drops what is recorded. @param untilMs everything that the store took before is, by its clock */
  dropUntil(untilMs: number): void {
    this.#recent.dropUntil(untilMs)
    this.#outbox?.dropUntil(untilMs)
  }

  /** Repeats settlements that are not recorded, since the store may have lost them. Known ones have no effect. */
  repeat(): void {
    const recent = this.#recent.all()
    if (recent.length > 0)
      this.#log.info({ settlements: recent.length }, 'sending recent settlements again, since the store may lack them')
    for (const settlement of recent) void this.deliver(settlement, false)
    this.#outbox?.sendAgain()
  }

  /**
   * Waits until every running delivery has reached the store or the disk.
   * @param untilMs how long both are tried if neither takes a settlement, by `performance.now()`
   */
  async close(untilMs?: number): Promise<void> {
    if (this.#running > 0) await new Promise<void>(resolve => (this.#finished = resolve))
    await this.#outbox?.close(untilMs)
  }
}
