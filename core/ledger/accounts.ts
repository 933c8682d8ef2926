/** Changes to an account other than exchanges: grants and refunds. */
import { createHash } from 'node:crypto'
import { GatewayError, soonMs } from '../errors.ts'
import { bytesOfId, idFromBytes, timeOfId } from '../lib/ids.ts'
import { formatCredits } from '../money/credits.ts'
import { canGetBack, claimsIn } from '../plans/claims.ts'
import { planFrom } from '../plans/plan.ts'
import { type Also, bigintOf, Impossible, type Sql } from '../records/database.ts'
import { type HistoryEntry, type Notes, planPartText } from '../records/entry.ts'
import { type MoneyLine, moneyLine } from '../records/money-line.ts'
import { notesText } from '../records/notes.ts'
import type { Records } from '../records/records.ts'
import { bucketAt } from './script/buckets.ts'
import type { Reads } from './reads.ts'
import type { Restorer } from './recovery/restore.ts'
import { operation } from './script/names.ts'
import { ownerOf } from './script/store-keys.ts'
import type { Scripts } from './script/scripts.ts'
import { causeOf, orUnavailable } from '../records/unavailable.ts'

/** The largest balance in nano-credits. The script calculates exactly up to there. */
const BALANCE_MAX = 9_000_000_000_000_000n

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

/** What a refund gives back, by purse, in nano-credits. */
export type Given = Pick<MoneyLine, 'credits' | 'plan'>

const NOTHING: Given = { credits: 0n, plan: 0n }

/** A plan has paid, and each of its windows that did is over. It can be refunded as credits. */
export class WindowsClosed extends RangeError {
  constructor(plan: bigint) {
    super(
      `a plan has paid ${formatCredits(plan)} credits of it in windows that are over; it can be refunded as credits`,
    )
  }
}

/** A change of an account's allocation. */
export interface GrantWish {
  /** Repeating an id changes nothing. */
  readonly id: string
  /** In nano-credits; negative to take it back. Requests that run at that moment may lead to a balance below zero then. */
  readonly amount: bigint
  readonly notes: Record<string, string>
}

/** What the changes of accounts need. */
export interface AccountsNeeds {
  readonly scripts: Scripts
  readonly records: Records
  readonly reads: Reads
  readonly restorer: Restorer
  /** Milliseconds since the epoch, by the store's clock. */
  readonly storeNow: () => number
}

/** Changes accounts. */
export class Accounts {
  readonly #needs: AccountsNeeds

  constructor(needs: AccountsNeeds) {
    this.#needs = needs
  }

  /**
   * Adds a grant to an account's allocation, or takes something of it back: in the records first, then in the store.
   * @param also written in the transaction that records the grant
   * @returns whether the grant was added by this call
   * @throws GatewayError unavailable; RangeError if the account does not exist or is deleted, if the id was used for
   * another amount, or if the balance does not have the amount that is taken back; what `also` throws
   */
  async grant(account: string, { id, amount, notes }: GrantWish, also?: Also): Promise<boolean> {
    const wish = { id, amount, at: this.#needs.storeNow(), notes }
    const within: Also = async sql => {
      if (amount < 0n) await this.#covered(sql, account, -amount)
      await also?.(sql)
    }
    const done = await orUnavailable(this.#needs.records.accounts.grant(account, wish, BALANCE_MAX, within)).catch(
      (thrown: unknown) => {
        throw thrown instanceof Impossible ? new RangeError(thrown.message) : thrown
      },
    )
    if (done === 'deleted') throw new RangeError(`the key ${account} is deleted`)
    if (done === 'under') throw new RangeError(`the balance has less than ${formatCredits(-amount)} credits`)
    if (done === 'over') throw new RangeError(`a balance may not exceed ${formatCredits(BALANCE_MAX)} credits`)
    if (!done) throw new RangeError(`there is no balance ${account}`)
    const { grant, added } = done
    if (grant.amount !== amount)
      throw new RangeError(`this idempotency key was already used to ${change(grant.amount)}`)
    // Grants that other calls left pending come first.
    const recorded = await orUnavailable(this.#needs.records.accounts.get(account))
    if (!recorded) throw new RangeError(`there is no balance ${account}`)
    try {
      await this.#needs.restorer.restoreAccount(recorded)
    } catch (cause) {
      throw new GrantPending(cause)
    }
    await this.#needs.records.accounts.applied([recorded], this.#needs.storeNow()).catch(() => {})
    return added
  }

  /**
   * Throws Impossible unless the store's balance and the grants that the store has not applied cover the amount. Holds are
   * already excluded. Runs in the transaction that takes the amount back; transactions run one after the other, so two
   * cannot take the same.
   */
  async #covered(sql: Sql, account: string, amount: bigint): Promise<void> {
    const [row] = await sql.all('SELECT granted FROM accounts WHERE id = ?', [account])
    const { granted, balance } = await this.#needs.reads.balance(account)
    if (balance + bigintOf(row, 'granted') - granted < amount)
      throw new Impossible(`the balance has less than ${formatCredits(amount)} credits`)
  }

  /**
   * Refunds a history entry to the purses that have paid it. Repeating it refunds nothing.
   * @param how whether what a plan has paid is given back as credits; `endForGood` returns the entry as it stays, once nothing refuses
   *   the refund
   * @returns what it gave back; nothing if the entry was already refunded
   * @throws GatewayError unavailable; RangeError if the entry charged nothing; WindowsClosed
   */
  async credit(
    account: string,
    charged: HistoryEntry,
    reason: string,
    {
      asCredits = false,
      endForGood,
    }: { asCredits?: boolean; endForGood?: (() => Promise<HistoryEntry>) | undefined } = {},
  ): Promise<Given> {
    const before = moneyLine(charged)
    if (charged.kind === 'credit' || before.paid <= 0n)
      throw new RangeError(`entry ${charged.id} of ${account} charged nothing`)
    const id = refundOf(charged.id)
    const mark = async (): Promise<void> => {
      if (charged.key !== undefined || account.startsWith('key_'))
        await orUnavailable(this.#needs.records.keys.chargedElsewhere(charged.key ?? account, account)).catch(() => {})
    }
    if (await this.#needs.reads.entry(id, account)) {
      await mark()
      return NOTHING
    }
    if (!asCredits && before.plan > 0n && !(await this.#canGetBack(account, charged)))
      throw new WindowsClosed(before.plan)
    const entry = (await endForGood?.()) ?? charged
    const { paid, credits, plan } = moneyLine(entry)
    const given = asCredits ? { credits: paid, plan: 0n } : { credits, plan }
    const { keys } = this.#needs.scripts
    const { account: own, stream } = keys.of(account)
    const spender = { account, key: entry.key }
    const names = {
      account: own,
      record: keys.record(spender),
      stream,
      outcomes: keys.outcomes(account, bucketAt(timeOfId(id))),
    }
    const args = {
      id,
      name: account,
      owner: ownerOf(spender),
      amount: given.credits,
      plan: planPartText(given.plan > 0n ? entry.plan : undefined),
      notes: notesText(refundNotes(entry, reason)),
      beganAt: timeOfId(entry.id),
    }
    const [kind] = await this.#needs.scripts.run(operation('credit', account, names, args))
    if (kind === 'unknown') throw new RangeError(`the store has no key ${account}`)
    if (kind === 'closed') throw new WindowsClosed(plan)
    await mark()
    return kind === 'ok' ? given : NOTHING
  }

  /** Whether the plan of an account can get back what it has paid. */
  async #canGetBack(account: string, { plan: paid }: HistoryEntry): Promise<boolean> {
    const recorded = await orUnavailable(this.#needs.records.accounts.get(account))
    const plan = recorded?.plan === undefined ? undefined : planFrom(recorded.plan)
    return canGetBack(plan, claimsIn(paid?.claims ?? '-'), this.#needs.storeNow())
  }
}

function refundNotes({ id, at, notes }: HistoryEntry, reason: string): Notes {
  const { endpoint = '', model = '', type, upstream, status = 'broken', cost } = notes
  return {
    endpoint,
    model,
    stream: false,
    ...(type !== undefined && { type }),
    ...(upstream !== undefined && { upstream }),
    status,
    // The margin of what had a cost is less.
    ...(cost !== undefined && { cost: '0' }),
    entry: id,
    endedAt: at,
    reason,
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
