/** Changes to an account other than exchanges: grants, credits, and claimed names. */
import { createHash, randomUUID } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { GatewayError, soonMs } from '../errors.ts'
import { bytesOfId, idFromBytes, timeOfId } from '../lib/ids.ts'
import { formatCredits } from '../money/credits.ts'
import { type Also, bigintOf, type Sql, Undone } from '../records/database.ts'
import type { HistoryEntry, Notes } from '../records/entry.ts'
import { notesText } from '../records/notes.ts'
import type { Records } from '../records/records.ts'
import type { Store } from '../store/store.ts'
import { bucketAt } from './script/buckets.ts'
import { Reads } from './reads.ts'
import { Restorer } from './recovery/restore.ts'
import { Scripts } from './script/scripts.ts'
import { causeOf, orUnavailable } from '../records/unavailable.ts'

/** The largest balance in nano-credits. The script calculates exactly up to there. */
const BALANCE_MAX = 9_000_000_000_000_000n

/** What a reply stored at its provider. */
export interface StoredByReply {
  /** The reply's id, or a substitute for it. */
  readonly reply: string
  /** Tokens of its input and output together: at most, and probably. */
  readonly total: number
  readonly likely: number
  /** Tokens of its output. */
  readonly output: number
  /** Ids of its items, containers and similar objects. */
  readonly others: readonly string[]
  /** The name of the upstream account that has them. */
  readonly at: string
}

/** A name that this process has claimed. */
export interface Claim {
  readonly account: string
  readonly name: string
  readonly value: string
}

/** The balance does not have what is to be taken back. */
class NotCovered extends Undone {}

/** A grant is recorded, and the store did not answer. A running gateway applies it as soon as the store does. */
export class GrantPending extends GatewayError {
  constructor(cause: unknown) {
    super('unavailable', {
      cause: causeOf(cause),
      message: 'The change is recorded, and takes effect when the store answers again. Do not make it a second time.',
      retryAfterMs: soonMs(),
    })
  }
}

/** A ledger that can change accounts. */
export class Accounts extends Reads {
  /** Milliseconds since the epoch, and the same by the store's clock. */
  readonly now: () => number
  storeNow: () => number
  readonly restorer: Restorer
  readonly #lease: number
  readonly #stored: number
  readonly #claims = new Set<Claim>()

  constructor(
    store: Store,
    records: Records,
    { prefix }: Config['store'],
    { leaseMs, storedMs }: Config['ledger'],
    now: () => number,
  ) {
    super(new Scripts(store, prefix), records)
    this.now = now
    this.storeNow = now
    this.restorer = new Restorer(this.scripts, records)
    this.#lease = leaseMs
    this.#stored = storedMs
  }

  /**
   * Adds a grant to an account's allocation, or takes something of it back: in the records first, then in the store.
   * Repeating an id changes nothing.
   * @param amount in nano-credits; negative to take it back. Requests that run at that moment may lead to a balance below
   * zero then
   * @param also written in the transaction that records the grant
   * @returns whether the grant was added by this call
   * @throws GatewayError unavailable; RangeError if the account does not exist or is deleted, if the id was used for
   * another amount, or if the balance does not have the amount that is taken back; what `also` throws
   */
  async grant(
    account: string,
    id: string,
    amount: bigint,
    notes: Record<string, string>,
    also?: Also,
  ): Promise<boolean> {
    const wish = { id, amount, at: this.storeNow(), notes }
    const within: Also = async sql => {
      if (amount < 0n) await this.#covered(sql, account, -amount)
      await also?.(sql)
    }
    const done = await orUnavailable(this.records.keys.grant(account, wish, BALANCE_MAX, within)).catch(
      (thrown: unknown) => {
        throw thrown instanceof NotCovered ? new RangeError(thrown.message) : thrown
      },
    )
    if (done === 'deleted') throw new RangeError(`the key ${account} is deleted`)
    if (done === 'under') throw new RangeError(`the balance has less than ${formatCredits(-amount)} credits`)
    if (done === 'over') throw new RangeError(`a balance may not exceed ${formatCredits(BALANCE_MAX)} credits`)
    if (!done) throw new RangeError(`there is no key ${account}`)
    const { grant, added } = done
    if (grant.amount !== amount)
      throw new RangeError(`this idempotency key was already used to ${change(grant.amount)}`)
    // Grants that other calls left pending come first.
    const key = await orUnavailable(this.records.keys.get(account))
    if (!key) throw new RangeError(`there is no key ${account}`)
    try {
      await this.restorer.restore(key)
    } catch (cause) {
      throw new GrantPending(cause)
    }
    await this.records.keys.applied([key], this.storeNow()).catch(() => {})
    return added
  }

  /**
   * Checks in the transaction that takes an amount back that the balance has it: what the store has, without what is held,
   * and with the grants that it does not know yet. Transactions run one after the other, so two cannot take the same.
   */
  async #covered(sql: Sql, account: string, amount: bigint): Promise<void> {
    const [row] = await sql.all('SELECT granted FROM accounts WHERE id = ?', [account])
    const { granted, balance } = await this.balance(account)
    if (balance + bigintOf(row, 'granted') - granted < amount)
      throw new NotCovered(`the balance has less than ${formatCredits(amount)} credits`)
  }

  /**
   * Refunds the charge of a history entry. Repeating it refunds nothing.
   * @returns the refund in nano-credits; 0 if the entry was already refunded
   * @throws GatewayError unavailable; RangeError if the entry charged nothing
   */
  async credit(account: string, entry: HistoryEntry, reason: string): Promise<bigint> {
    if (entry.kind === 'credit' || entry.charge <= 0n)
      throw new RangeError(`entry ${entry.id} of ${account} charged nothing`)
    const id = refundOf(entry.id)
    if (await this.entry(id, account)) return 0n
    const { endpoint = '', model = '', type, upstream } = entry.notes
    const notes: Notes = {
      endpoint,
      model,
      stream: false,
      ...(type !== undefined && { type }),
      ...(upstream !== undefined && { upstream }),
      status: entry.notes.status ?? 'broken',
      entry: entry.id,
      endedAt: entry.at,
      reason,
    }
    const { keys } = this.scripts
    const own = keys.of(account)
    const [kind] = await this.scripts.run({
      name: 'credit',
      account,
      keys: [own.account, own.stream, keys.outcomes(account, bucketAt(timeOfId(id)))],
      args: [id, account, String(entry.charge), notesText(notes)],
    })
    if (kind === 'unknown') throw new RangeError(`the store has no key ${account}`)
    return kind === 'ok' ? entry.charge : 0n
  }

  /**
   * Claims a name within an account. The claim lasts one lease and is renewed until it is kept or released.
   * @param value what the name stands for
   * @returns the claim, or the existing value of the name
   * @throws GatewayError unavailable
   */
  async claim(account: string, name: string, value: string): Promise<Claim | string> {
    const claim: Claim = { account, name, value: `${value}.${randomUUID()}` }
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

  #claim({ account, name, value }: Claim, ms: number): Promise<readonly string[]> {
    const keys = [this.scripts.keys.claim(account, name)]
    return this.scripts.run({ name: 'claim', account, keys, args: [value, String(ms)] })
  }

  async #release({ account, name, value }: Claim): Promise<void> {
    await this.scripts.run({
      name: 'release',
      account,
      keys: [this.scripts.keys.claim(account, name)],
      args: [value],
    })
  }

  /** Records what a reply stored at its provider, and its size in tokens. @throws GatewayError unavailable */
  async noteStored(account: string, { reply, total, likely, output, others, at }: StoredByReply): Promise<void> {
    const pipeline = this.scripts.redis.pipeline()
    const set = (id: string, tokens: number, likely: number): unknown =>
      pipeline.set(this.scripts.keys.stored(account, id), `${tokens} ${reply} ${at} ${likely}`, 'PX', this.#stored)
    for (const id of others) set(id, output, output)
    set(reply, total, likely)
    const before = this.noting.get(account)
    const noted = Promise.allSettled([before, orUnavailable(pipeline.exec())])
    this.noting.set(account, noted)
    const [, outcome] = await noted
    if (this.noting.get(account) === noted) this.noting.delete(account)
    if (outcome.status === 'rejected') throw outcome.reason
  }
}

/** Returns the id of the only refund of an exchange. It has the time of the exchange. */
export function refundOf(id: string): string {
  const own = bytesOfId(id)
  const mixed = createHash('sha256').update('refund').update(own).digest().subarray(0, 16)
  mixed.set(own.subarray(0, 6))
  return idFromBytes(mixed)
}

function change(amount: bigint): string {
  return amount < 0n ? `take ${formatCredits(-amount)} credits back` : `add ${formatCredits(amount)} credits`
}
