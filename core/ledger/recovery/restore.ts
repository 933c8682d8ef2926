/**
 * Writes to the store what only the records know: keys, grants and exchanges that it never had, or that it lost. All of
 * it is applied by id and number, so repeating it changes nothing.
 */
import { OF_SUMS } from '../script/buckets.ts'
import { FIELDS, operation, readFields } from '../script/names.ts'
import { elsewhereOf } from './elsewhere.ts'
import { leaseName, ownerOf, pointerTo } from '../script/store-keys.ts'
import { planFrom } from '../../plans/plan.ts'
import { type HistoryEntry, latestEndMs, planPartText, reapedCharge } from '../../records/entry.ts'
import type { AccountSums } from '../../records/account-rows.ts'
import type { RecordedKey } from '../../records/key-records.ts'
import type { Records } from '../../records/records.ts'
import type { Scripts } from '../script/scripts.ts'
import { usedWindows } from './used-windows.ts'
import { orUnavailable } from '../../records/unavailable.ts'

/** Exchanges that are read at once. */
const PAGE = 500
/** Most accounts have only a few recent exchanges. */
const FIRST_PAGE = 20
/** Exchanges that are replayed at the same time. */
const REPLAYED_AT_ONCE = 32

/** What exchanges were charged by earlier ends. */
type Before = ReadonlyMap<string, bigint>

/**
 * What the store has of a key:
 * - `whole`: its record.
 * - `running`: its record, but requests run elsewhere that count to its cap. It is written again when they have ended.
 * - `old`: a newer record, which the records do not have yet.
 */
export type Restored = 'whole' | 'running' | 'old'

/** Restores accounts in the store. */
export class Restorer {
  readonly #scripts: Scripts
  readonly #records: Records

  constructor(scripts: Scripts, records: Records) {
    this.#scripts = scripts
    this.#records = records
  }

  /**
   * Brings the store up to what the records know of a key and of its account.
   * @param rememberedMs as for `restoreAccount`
   * @throws GatewayError unavailable
   */
  async restore(key: RecordedKey, rememberedMs = Infinity): Promise<Restored> {
    await this.restoreAccount({ ...key, id: key.account }, rememberedMs)
    return this.restoreKey(key)
  }

  /**
   * Brings the store up to the record of a key whose account it has. A key that was moved has a record on the account before
   * as well: requests that ran then end there, and learn there when the key is disabled.
   * @throws GatewayError unavailable
   */
  async restoreKey(key: RecordedKey): Promise<Restored> {
    const { keys } = this.#scripts
    const { id, account, before } = key
    // What the key is charged there is known by its part.
    if (before !== undefined)
      for (const other of await orUnavailable(this.#records.accounts.withIds([before]))) await this.#open(other)
    const has = await this.#put(key, account)
    if (account !== id || before !== undefined) await this.#scripts.write('HSET', keys.shared('homes'), id, account)
    await this.#scripts.write('SET', keys.pointer(key.digest), pointerTo({ account, key: id }))
    if (before === undefined) return has === 'old' ? 'old' : 'whole'
    // The pointer comes first: what is refused on the account before is asked for on the new one.
    const hadBefore = await this.#put(key, before)
    for (const { account: other, running } of await elsewhereOf(this.#scripts, this.#records, key, account))
      if (running > 0 && other !== before) await this.#put(key, other)
    // Until then, requests could begin on the account before.
    const now = await this.#put(key, account)
    // What a plan has covered there changes nothing of what was charged. The day is added up again when all of it has ended.
    if (now === 'whole')
      await orUnavailable(this.#scripts.redis.hdel(keys.record({ account, key: id }), FIELDS.keyWindows))
    return hadBefore === 'old' ? 'old' : now
  }

  /**
   * Brings an account up to what the records know of it.
   * @param rememberedMs a time in milliseconds since the epoch. The store has the outcome of every exchange that it
   * knows and that ended then or later. Such exchanges are recognised by their ids, because a server that took over may have
   * given the numbers of those that it lost to others.
   * @throws GatewayError unavailable
   */
  async restoreAccount(account: AccountSums, rememberedMs = Infinity): Promise<void> {
    await this.#open(account)
    if (account.plan !== undefined) await this.#plan(account, account.plan)
    await this.#catchUp(account, rememberedMs)
  }

  /** Writes the plan of an account. If that was filled from the records, so are its windows. */
  async #plan({ id, endedAt }: AccountSums, text: string): Promise<void> {
    const { account } = this.#scripts.keys.of(id)
    const plan = planFrom(text)
    const put = (windows: string): Promise<readonly string[]> =>
      this.#scripts.run(operation('plan', id, { account }, { version: plan.version, plan: text, windows }))
    const [kind, last] = await put('?')
    if (kind === 'unknown')
      await put(await orUnavailable(usedWindows(this.#records, id, plan, { endedAt, last: Number(last) })))
  }

  /** Creates an account with the sums that the records know of it, unless the store has it. */
  async #open(account: AccountSums): Promise<void> {
    const { id, shared } = account
    const { account: own } = this.#scripts.keys.of(id)
    const open = async (sums: AccountSums, parts: string): Promise<string | undefined> => {
      const { grants, granted, settled, ordinal } = sums
      const args = { name: id, grants, granted, settled, ordinal, shared, parts }
      return (await this.#scripts.run(operation('open', id, { account: own }, args)))[0]
    }
    if ((await open(account, shared ? '?' : '')) !== 'unknown') return
    const { sums, parts } = await orUnavailable(this.#records.accounts.withParts(id))
    await open(sums, [...parts].map(part => part.join(' ')).join(' '))
  }

  /** Applies the exchanges and the grants that the store lacks. */
  async #catchUp({ id, ordinal: last, endedAt, grants: given }: AccountSums, rememberedMs: number): Promise<void> {
    const { keys, redis } = this.#scripts
    const { grants, ordinal } = await orUnavailable(readFields(redis, keys.of(id).account, ['grants', 'ordinal']))
    const known = Number(ordinal ?? 0)
    const { history } = this.#records
    let read: Promise<Before> | undefined
    // What the store knows of exchanges that ended again: it may have forgotten their outcomes.
    const before = (): Promise<Before> => (read ??= orUnavailable(history.chargedBefore(id, known, rememberedMs)))
    for (let from = known; from < last;) {
      const entries = await orUnavailable(history.entriesAfter(id, from, PAGE))
      await this.#replayAll(id, entries, rememberedMs, before)
      from = entries.at(-1)?.ordinal ?? last
    }
    if (endedAt >= rememberedMs) await this.#replayRecent(id, known, rememberedMs, before)
    // Charges come first: no balance may be beyond the exact numbers of the store.
    if (Number(grants ?? 0) < given) await this.grant(id, Number(grants ?? 0) + 1)
  }

  /**
   * Writes the record of a key to the store, unless the store has a newer one.
   * @param at the account that it is written to
   */
  async #put(key: RecordedKey, at: string): Promise<Restored> {
    // The store refuses deleted keys and disabled ones in the same way.
    const status = key.status === 'deleted' ? 'disabled' : key.status
    const { id, account, expiresAt, cap = '', limits = '', lifetimeMs, before } = key
    const others = await elsewhereOf(this.#scripts, this.#records, key, at)
    const elsewhere = others.length === 0 ? '' : others.reduce((sum, { charged }) => sum + charged, 0n)
    // An expiry that is recorded does not begin again.
    const lifetime = expiresAt === undefined ? (lifetimeMs ?? '') : ''
    const home = before === undefined && account === id ? '' : account
    const args = { ...key, status, expiresAt: expiresAt ?? '', cap, limits, elsewhere, lifetime, home }
    const record = this.#scripts.keys.record({ account: at, key: id })
    const [answer] = await this.#scripts.run(operation('put', at, { record }, args))
    if (answer !== 'ok') return 'old'
    return others.some(({ running }) => running > 0) ? 'running' : 'whole'
  }

  /** Applies the grants of an account from a number on, in their order. */
  async grant(account: string, from: number): Promise<void> {
    const { account: own } = this.#scripts.keys.of(account)
    for (const { n: number, amount } of await orUnavailable(this.#records.accounts.grants(account, from))) {
      await this.#scripts.run(operation('grant', account, { account: own }, { number, amount }))
    }
  }

  /** Replays recent exchanges up to an ordinal. */
  async #replayRecent(
    account: string,
    ordinal: number,
    sinceMs: number,
    charged: () => Promise<Before>,
  ): Promise<void> {
    for (let before = ordinal + 1, count = FIRST_PAGE; ; count = PAGE) {
      const page = await orUnavailable(this.#records.history.entries({ account }, { before, count }))
      const recent = page.filter(entry => latestEndMs(entry) >= sinceMs).reverse()
      await this.#replayAll(account, recent, sinceMs, charged)
      const last = page.at(-1)
      if (!last || (recent.length === 0 && count === PAGE)) return
      before = last.ordinal
    }
  }

  /**
   * Replays exchanges in their order.
   * @param before reads what their earlier ends were charged
   */
  async #replayAll(
    account: string,
    entries: readonly HistoryEntry[],
    rememberedMs: number,
    before: () => Promise<Before>,
  ): Promise<void> {
    const isRecent = (entry: HistoryEntry): boolean => entry.bucket !== OF_SUMS && latestEndMs(entry) >= rememberedMs
    // The store recognises older exchanges by their numbers only, so one must follow the other.
    const atOnce = entries.every(isRecent) ? REPLAYED_AT_ONCE : 1
    const earlier = entries.some(({ againMs }) => againMs !== undefined) ? await before() : undefined
    const replay = (entry: HistoryEntry): Promise<void> =>
      this.#replay(account, entry, earlier?.get(entry.id) ?? 0n, isRecent(entry))
    for (let at = 0; at < entries.length; at += atOnce) await Promise.all(entries.slice(at, at + atOnce).map(replay))
  }

  async #replay(account: string, entry: HistoryEntry, before: bigint, recent: boolean): Promise<void> {
    const { keys } = this.#scripts
    const { id, ordinal, charge, kind, bucket } = entry
    const { account: own, leases } = keys.of(account)
    const outcomes = keys.outcomes(account, bucket)
    const spender = { account, key: entry.key }
    const names = { account: own, hold: keys.hold(account, id), leases, outcomes, slots: keys.slots(spender) }
    const how = kind === 'reaped' ? 'R' : 'F'
    const lease = leaseName({ account, id }, bucket)
    const args = {
      lease,
      owner: ownerOf(spender),
      id,
      ordinal,
      charge,
      how,
      before,
      recent,
      reapedCharge: reapedCharge(entry),
      plan: planPartText(entry.plan),
      kind,
      endedAt: entry.at,
    }
    await this.#scripts.run(operation('replay', account, names, args))
  }
}
