/** Changes to an account other than exchanges: grants, credits, and claimed names. */
import { randomUUID } from 'node:crypto'
import type { Config } from '../config/config.ts'
import type { Store } from '../store/store.ts'
import { formatCredits } from '../money/credits.ts'
import { Reads } from './reads.ts'
import type { HistoryEntry } from './records.ts'
import { Scripts, stored } from './scripts.ts'
import { Trail } from './trail.ts'

/** What a reply stored at its provider. */
export interface StoredByReply {
  /** The reply's id, or a substitute for it. */
  readonly reply: string
  /** Tokens of its input and output together, and of its output alone. */
  readonly total: number
  readonly output: number
  /** Ids of its items, containers and similar objects. */
  readonly others: readonly string[]
}

/** A name that this process has claimed. */
export interface Claim {
  readonly account: string
  readonly name: string
  readonly value: string
}

/** A ledger that can change accounts. */
export class Accounts extends Reads {
  readonly trail: Trail
  /** Milliseconds since the epoch. */
  readonly now: () => number
  readonly #replicas: number
  readonly #confirmMs: number
  readonly #lease: number
  readonly #stored: number
  readonly #claims = new Set<Claim>()

  constructor(
    store: Store,
    { prefix, replicas, commandTimeoutMs, data }: Config['store'],
    { leaseMs, storedMs }: Config['ledger'],
    now: () => number,
  ) {
    super(new Scripts(store, prefix))
    this.now = now
    this.trail = new Trail(data)
    this.#replicas = replicas
    this.#confirmMs = commandTimeoutMs * 0.75
    this.#lease = leaseMs
    this.#stored = storedMs
  }

  /**
   * Adds a grant to an account's allocation. Repeating an id adds nothing.
   * @returns whether the grant was added by this call
   * @throws GatewayError unavailable; RangeError if the account does not exist or the id was used for another amount
   */
  async grant(account: string, id: string, amount: bigint, notes: Record<string, string>): Promise<boolean> {
    const [kind, done] = (await this.scripts.run('grant', account, id, [
      id,
      String(amount),
      JSON.stringify(notes),
    ])) as string[]
    if (kind === 'unknown') throw new RangeError(`there is no key ${account}`)
    const [, before] = kind === 'done' ? (/^grant:(\d+)$/.exec(done ?? '') ?? []) : []
    if (before !== undefined && before !== String(amount))
      throw new RangeError(`this idempotency key was already used to add ${formatCredits(BigInt(before))} credits`)
    await this.confirm(this.scripts.key(account, 'a'))
    await this.trail.add({ kind: 'grant', account, at: this.now(), id, amount: String(amount), notes })
    return before === undefined
  }

  /**
   * Refunds the charge of a history entry. Repeating it refunds nothing.
   * @returns the refund in nano-credits; 0 if the entry was already refunded
   * @throws GatewayError unavailable; RangeError if the entry does not exist or charged nothing
   */
  async credit(account: string, entry: HistoryEntry, reason: string): Promise<bigint> {
    const notes = { requestId: entry.requestId, model: entry.notes.model, entry: entry.id, reason }
    const id = `credit:${entry.id}`
    const [kind, given = '0'] = (await this.scripts.run('credit', account, id, [
      id,
      entry.id,
      JSON.stringify(notes),
      notes.model ?? '',
    ])) as string[]
    if (kind === 'unknown') throw new RangeError(`${account} no longer has an entry ${entry.id}`)
    if (kind === 'nothing') throw new RangeError(`entry ${entry.id} of ${account} charged nothing`)
    await this.confirm(this.scripts.key(account, 'a'))
    return kind === 'ok' ? BigInt(given) : 0n
  }

  /**
   * Claims a name within an account. The claim lasts one lease and is renewed until it is kept or released.
   * @param value what the name stands for
   * @returns the claim, or the existing value of the name
   * @throws GatewayError unavailable
   */
  async claim(account: string, name: string, value: string): Promise<Claim | string> {
    const claim: Claim = { account, name: `claim:${name}`, value: `${value}.${randomUUID()}` }
    const [kind, taken = ''] = await this.#claim(claim, this.#lease).catch((thrown: unknown) => {
      // The store may have recorded the claim although its answer was lost.
      this.#release(claim).catch(() => {})
      throw thrown
    })
    if (kind === 'taken') return taken.slice(0, taken.indexOf('.'))
    this.#claims.add(claim)
    return claim
  }

  /**
   * Makes a claim permanent for a number of milliseconds, even if this process dies.
   * @throws GatewayError unavailable
   */
  async keepClaim(claim: Claim, ms: number): Promise<void> {
    this.#claims.delete(claim)
    await this.#claim(claim, ms)
  }

  /** Releases a claim. @throws GatewayError unavailable */
  async unclaim(claim: Claim): Promise<void> {
    this.#claims.delete(claim)
    await this.#release(claim)
  }

  /** Renews all claims of this process for another lease. */
  protected renewClaims(): void {
    // A lease lasts three renewals, so the next renewal may still be in time.
    for (const claim of this.#claims) this.#claim(claim, this.#lease).catch(() => {})
  }

  async #claim({ account, name, value }: Claim, ms: number): Promise<string[]> {
    return (await this.scripts.run('claim', account, name, [name, value, String(ms)])) as string[]
  }

  async #release({ account, name, value }: Claim): Promise<void> {
    await this.scripts.run('release', account, name, [name, value])
  }

  /** Records what a reply stored at its provider, and its size in tokens. @throws GatewayError unavailable */
  async noteStored(account: string, { reply, total, output, others }: StoredByReply): Promise<void> {
    const pipeline = this.scripts.redis.pipeline()
    const set = (id: string, tokens: number): unknown =>
      pipeline.set(this.scripts.key(account, `s:${id}`), `${tokens} ${reply}`, 'PX', this.#stored)
    for (const id of others) set(id, output)
    set(reply, total)
    const before = this.noting.get(account)
    const noted = Promise.allSettled([before, stored(pipeline.exec())])
    this.noting.set(account, noted)
    const [, outcome] = await noted
    if (this.noting.get(account) === noted) this.noting.delete(account)
    if (outcome.status === 'rejected') throw outcome.reason
  }

  /**
   * Waits until the configured number of replicas has what was just written beside a key.
   * @throws Error if they do not confirm
   */
  confirm(key: string): Promise<void> {
    return this.scripts.confirm(key, this.#replicas, this.#confirmMs)
  }
}
