/**
 * The ledger: what each key was granted, what is held, and what was settled. Each change is one atomic script with an
 * id from the caller, so repeating a change has no effect. Amounts are integers in nano-credits.
 */
import type { Config, LedgerConfig } from '../config/config.ts'
import { GatewayError } from '../errors.ts'
import { reasonOf } from '../lib/log.ts'
import { SwapList } from '../lib/swap-list.ts'
import { onTakeover } from '../store/connect.ts'
import { type Store } from '../store/store.ts'
import { inputTokens } from '../money/usage.ts'
import { Outbox, type Settlement } from './outbox.ts'
import { REBUILD_INTERRUPTED, WINDOW_MS } from './reads.ts'
import { type End, type EndReason, Hold, type HoldAnswer, type HoldName, type HoldRequest } from './hold.ts'
import { Recent } from './recent.ts'
import type { Environment } from '../lib/environment.ts'
import { Maintenance } from './maintenance.ts'

type Settings = Pick<Config, 'store' | 'ledger'>

/** Milliseconds between the sign of a failover and the repetition of recent settlements. */
const REPEAT_AFTER_MS = 500

const TRIM_EVERY_MS = 3_600_000

/** The ledger of one process. */
export class Ledger extends Maintenance {
  readonly #config: LedgerConfig
  readonly #live = new SwapList<Hold>()
  /** Live holds whose clients have left. */
  readonly #abandoned = new Map<string, Hold>()
  /** The number of running settlements, and a callback for when the last one finishes. */
  #settling = 0
  #settled: (() => void) | undefined
  #timers: readonly NodeJS.Timeout[] = []
  readonly #outbox: Outbox | undefined
  /** Recent settlements, if another server may take over without them. */
  #recent: Recent | undefined
  #repeating: NodeJS.Timeout | undefined

  /**
   * @param outboxFolder where settlements wait while the store is unavailable; not needed by a process that settles
   * nothing
   */
  constructor(
    store: Store,
    { store: place, ledger: config }: Settings,
    environment: Pick<Environment, 'isAlive' | 'log' | 'now' | 'pid'>,
    outboxFolder?: string,
  ) {
    const { log } = environment
    super(store, place, config, environment)
    this.#config = config
    const send = async (settlement: Settlement): Promise<void> => {
      await this.#send(settlement)
      this.#recent?.add(settlement)
    }
    if (store.replicated && outboxFolder !== undefined) {
      this.#recent = new Recent(this.now)
      // One failover is reported several times.
      onTakeover(store.redis, () => (this.#repeating ??= setTimeout(() => this.#repeat(), REPEAT_AFTER_MS)))
    }
    if (outboxFolder !== undefined) {
      const { isAlive, now, pid } = environment
      this.#outbox = new Outbox({ folder: outboxFolder, isAlive, log, now, pid, rememberMs: config.rememberMs, send })
    }
  }

  /** Accounts whose sums did not agree at the last check. */
  drifted = 0

  /** Settlements that wait for the store. */
  get waiting(): number {
    return this.#outbox?.size ?? 0
  }

  /**
   * Sends what earlier processes left in the outbox, then starts to renew this process's holds and to reap expired
   * ones.
   */
  async start(): Promise<void> {
    if (await this.halfRebuilt()) throw new Error(REBUILD_INTERRUPTED)
    await this.#outbox?.adopt()
    const every = (ms: number, name: string, work: () => Promise<unknown>): NodeJS.Timeout =>
      setInterval(() => void work().catch((cause: unknown) => this.log.warn({ err: cause }, `${name} failed`)), ms)
    this.#timers = [
      setInterval(() => this.#renewAll(), this.#config.leaseMs / 3),
      every(this.#config.reapEveryMs, 'reaping', () => this.reapAll()),
      every(this.#config.reapEveryMs, 'storing the prices', () => this.prices.keep()),
      // A store that failed may have lost prices.
      every(TRIM_EVERY_MS, 'trimming', () => this.trimAll().then(() => this.prices.keep(true))),
    ]
    for (const timer of this.#timers) timer.unref()
  }

  /** Waits until every running settlement is in the store or on disk, then stops. */
  async close(): Promise<void> {
    this.#recent = undefined
    clearTimeout(this.#repeating)
    for (const timer of this.#timers) clearInterval(timer)
    this.scripts.flush()
    if (this.#settling > 0) await new Promise<void>(resolve => (this.#settled = resolve))
    await this.#outbox?.close()
  }

  /** Number of holds that this process renews. */
  get live(): number {
    return this.#live.size
  }

  /**
   * Requests a hold.
   * @throws GatewayError unavailable; the hold is then cancelled at once, or expires without a charge
   */
  async hold(request: HoldRequest): Promise<HoldAnswer> {
    const { account, id, amount, least, version, quota } = request
    this.noteOpen(account)
    const args = [
      id,
      String(amount),
      String(least),
      String(this.#config.leaseMs),
      version,
      String(request.concurrency ?? 0),
      JSON.stringify(request.notes),
      quota ? String(quota.amount) : '',
      quota ? String(WINDOW_MS[quota.per]) : '0',
      request.half ? '1' : '',
    ]
    let answer: string[]
    try {
      answer = (await this.scripts.run('hold', account, id, args)) as string[]
    } catch (thrown) {
      // The store may hold although its answer was lost. Send the cancellation only once and not through the outbox:
      // nothing was delivered, so the lease ends the hold without a charge, and refused requests must not fill the
      // disk.
      const { args: taken } = this.#settlement(request, { charge: 0n, kind: 'void', notes: request.notes })
      this.scripts.run('settle', account, id, taken).catch(() => {})
      throw thrown
    }
    const [kind, sum = '0', other = '0'] = answer
    if (kind === 'held') {
      const hold = new Hold(request, BigInt(sum), BigInt(other))
      this.#live.add(hold)
      return { kind, hold }
    }
    if (kind === 'insufficient') return { kind, balance: BigInt(sum), resetsAt: Number(other) }
    return { kind: kind as 'busy' }
  }

  /**
   * Extends a running hold to an amount, or as far as the balance allows. A hold that was lost in between is restored.
   * @returns `over` if it has been settled, `off` if its key is disabled and gets nothing more
   * @throws GatewayError unavailable
   */
  async extend(hold: Hold, amount: bigint): Promise<'held' | 'over' | 'off'> {
    const { notes, rotation = '' } = hold.request
    const floor = hold.request.floor()
    const args = [
      hold.id,
      String(amount),
      String(this.#config.leaseMs),
      JSON.stringify({ ...notes, ...floor.notes }),
      rotation,
      String(floor.charge),
    ]
    const [kind, held = '0', balance = '0'] = (await this.scripts.run(
      'extend',
      hold.account,
      hold.id,
      args,
    )) as string[]
    if (kind === 'off') {
      hold.request.end?.(held as EndReason)
      return 'off'
    }
    if (kind !== 'held') return 'over'
    hold.amount = BigInt(held)
    hold.balance = BigInt(balance)
    // This answer may arrive after the hold's end.
    if (!hold.over && !this.#live.has(hold)) this.#live.add(hold)
    return 'held'
  }

  /**
   * Marks a hold whose client has left while its reply is still read. It then occupies one of the key's abandoned
   * places instead of its concurrency. If there are too many, the one that was abandoned first must end.
   * @param most number of abandoned places of one key
   * @param whole whether the reply is read to its end in any case, so that it is never chosen to end
   */
  async abandon(hold: Hold, most: number, whole: boolean): Promise<void> {
    this.#abandoned.set(nameOf(hold), hold)
    const [kind, first] = (await this.scripts.run('abandon', hold.account, hold.id, [
      hold.id,
      String(most),
      whole ? '1' : '',
    ])) as string[]
    // A reply without an abandoned place still counts towards the concurrency.
    if (kind === 'ok') hold.abandoned = true
    else if (kind === 'full' && !whole) hold.request.end?.('crowded')
    // If the hold belongs to another process, that process learns of it at its next renewal.
    if (first !== undefined) this.#abandoned.get(nameOf({ account: hold.account, id: first }))?.request.end?.('crowded')
  }

  /** Ends the abandonment of a hold: a client receives its reply again. */
  async rejoin(hold: Hold): Promise<void> {
    hold.abandoned = false
    this.#abandoned.delete(nameOf(hold))
    await this.scripts.run('rejoin', hold.account, hold.id, [hold.id])
  }

  /** Ends a hold with its charge. Returns at once. While the store is unavailable, the settlement waits on disk. */
  settle(hold: HoldName, end: End): void {
    if (hold instanceof Hold) {
      hold.over = true
      this.#live.delete(hold)
      if (this.#abandoned.size > 0) this.#abandoned.delete(nameOf(hold))
    }
    void this.#deliver(this.#settlement(hold, end))
  }

  async #deliver(settlement: Settlement, again = false): Promise<void> {
    const { account, id } = settlement
    this.#settling++
    try {
      await this.#send(settlement)
      if (!again) this.#recent?.add(settlement)
    } catch (cause) {
      this.log.warn(
        { exchange: id, account, reason: reasonOf((cause as GatewayError).details.cause) },
        'a settlement waits for the store',
      )
      await this.#outbox?.put(settlement)
    } finally {
      if (--this.#settling === 0) this.#settled?.()
    }
  }

  #send({ account, id, args, request }: Settlement): Promise<unknown> {
    return this.scripts.run('settle', account, id, args, request)
  }

  #settlement({ account, id }: HoldName, { charge, kind, notes, attempt }: End): Settlement {
    const { usage } = notes
    const args = [
      id,
      String(charge),
      kind,
      JSON.stringify(notes),
      String(this.#config.rememberMs),
      notes.model,
      String(usage ? inputTokens(usage) : 0),
      String(usage?.output ?? 0),
      notes.quarantined ? '1' : '0',
      ...(attempt ? [attempt.part, String(this.#config.retriesMs), String(this.#config.waivers)] : ['', '', '']),
      String(this.#config.freeEntries),
    ]
    return { account, id, args, at: this.now(), ...(attempt && { request: attempt.request }) }
  }

  /** Repeats recent settlements after a failover, since the new server may lack them. Known ones have no effect. */
  #repeat(): void {
    this.#repeating = undefined
    const recent = this.#recent?.all() ?? []
    if (recent.length > 0)
      this.log.info({ settlements: recent.length }, 'sending recent settlements again after a failover of the store')
    this.prices.keep(true).catch(() => {})
    for (const settlement of recent) void this.#deliver(settlement, true)
  }

  #renewAll(): void {
    this.renewClaims()
    for (const hold of this.#live.all()) {
      const { account, id, request, abandoned } = hold
      const { charge, notes } = request.floor()
      const args = [
        id,
        String(charge),
        String(this.#config.leaseMs),
        request.rotation ?? '',
        abandoned ? '1' : '',
        JSON.stringify({ ...request.notes, ...notes }),
      ]
      this.scripts.run('renew', account, id, args).then(
        answer => {
          const [kind, why] = answer as string[]
          // The hold was reaped, or lost with a failed store. There is nothing to renew, and its settlement will still
          // be accepted.
          if (kind === 'gone') this.#live.delete(hold)
          else if (kind === 'off') request.end?.(why as EndReason)
          else if (kind === 'crowded' && hold.abandoned) request.end?.('crowded')
        },
        () => {
          // A lease lasts three renewals, so the next renewal may still be in time.
        },
      )
    }
  }
}

function nameOf({ account, id }: HoldName): string {
  return `${account} ${id}`
}
