/** Read access to the ledger: sums in the store, and entries in the store and in the records, which are merged. */
import type { Redis } from 'ioredis'
import type { Quota } from '../config/config.ts'
import { assertMoney } from '../money/assertions.ts'
import type { Span } from '../plans/calendar.ts'
import { quotaAccount, quotaUse, shareOf } from './quotas.ts'
import { type Balance, type Count, countedDay, type HistoryEntry, type Summary, type Whose } from '../records/entry.ts'
import { counted } from '../records/money-line.ts'
import type { HistoryRange } from '../records/history.ts'
import type { Records } from '../records/records.ts'
import type { RequestSum } from '../records/request-sums.ts'
import type { Limits } from './allowance.ts'
import { KeyDays } from './key-day.ts'
import { readFields } from './script/names.ts'
import { partField, partOf } from './script/parts.ts'
import type { Spender } from './script/store-keys.ts'
import type { Scripts } from './script/scripts.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { type StreamEntry, unrecorded } from './script/stream.ts'

/** Maximum concurrent look-ups at the store. Others wait in this process, so that holds do not wait behind them. */
const LOOKUPS_MAX = 4

const OF_ACCOUNT = ['granted', 'balance', 'held', 'holds', 'ordinal', 'windows', 'part'] as const
/** How often counters are read again because requests were recorded meanwhile. */
const SUMMARY_TRIES = 5

/** Whose limits are read. */
interface LimitsWish {
  readonly spender: Spender
  /** In nano-credits. */
  readonly cap: bigint | undefined
  /** Today, if the credits of the day are limited. */
  readonly today?: Span | undefined
}

/** Reads the accounts of a ledger. */
export class Reads {
  /** Adds up and writes what keys have used of a day. */
  readonly days: KeyDays
  readonly #scripts: Scripts
  readonly #records: Records
  /** Returns the connection for customers' look-ups. */
  #lookups: () => Redis
  #looking = 0
  readonly #waiting: (() => void)[] = []

  constructor(scripts: Scripts, records: Records) {
    this.#scripts = scripts
    this.#records = records
    this.days = new KeyDays(scripts, records)
    this.#lookups = () => scripts.redis
  }

  /**
   * Uses a separate connection for look-ups from now on.
   * @param connection returns the connection to use at this moment
   */
  lookUpOn(connection: () => Redis): void {
    this.#lookups = connection
  }

  /** Returns an account's sums. All are zero if the store does not know it. @throws GatewayError unavailable */
  async balance(account: string): Promise<Balance> {
    return (await this.knownBalance(account)) ?? { granted: 0n, balance: 0n, held: 0n, settled: 0n }
  }

  /**
   * Returns an account's sums, and the windows of its plan as the script writes them. Undefined if the store does not know it.
   * @throws GatewayError unavailable
   */
  async knownBalance(account: string): Promise<(Balance & { readonly windows: string | null }) | undefined> {
    const found = await this.lookUp(redis =>
      readFields(redis, this.#scripts.keys.of(account).account, ['granted', 'balance', 'held', 'windows']),
    )
    return found.balance === null ? undefined : { ...balanceFrom(found), windows: found.windows }
  }

  /**
   * Returns an account's sums, and what one of its keys has of them. Undefined if the store does not know the account. If the
   * credits of the key's day are limited and the store has no sum of it, that is written.
   * @throws GatewayError unavailable
   */
  async limits({ spender, cap, today }: LimitsWish): Promise<Limits | undefined> {
    const { keys } = this.#scripts
    const own = keys.of(spender.account).account
    const {
      granted,
      balance,
      held,
      holds,
      ordinal,
      windows,
      part,
      elsewhere,
      keyWindows: ofKey,
      rates,
    } = await this.lookUp(async redis => {
      const [ofAccount, ofRecord] = await Promise.all([
        readFields(redis, own, OF_ACCOUNT, { part: partField(spender) }),
        readFields(redis, keys.record(spender), ['elsewhere', 'keyWindows', 'rates']),
      ])
      return { ...ofAccount, ...ofRecord }
    })
    if (balance === null) return undefined
    const account = balanceFrom({ granted, balance, held })
    const sums = { account, cap, part: partOf(spender, part), elsewhere: BigInt(elsewhere || 0) }
    const mayBeUsed = ordinal !== '0' || holds !== '0' || (elsewhere ?? '') !== ''
    const ofDay =
      ofKey ?? (today && mayBeUsed ? await this.lookUp(redis => this.days.fillDay(spender, today, redis)) : null)
    return { ...sums, windows, ofKey: { windows: ofDay, rates } }
  }

  /** Returns how much of a quota an upstream account has used, and when that begins to change. */
  async quotaUsed(account: string, quota: Quota, now: number): Promise<{ used: bigint; resetsAt: number }> {
    const { windows, held } = await this.lookUp(redis =>
      readFields(redis, this.#scripts.keys.of(quotaAccount(account, quota)).account, ['windows', 'held']),
    )
    return quotaUse(quota, { windows, held: BigInt(held ?? 0) }, now)
  }

  /** Returns a key's share of a quota that is shared fairly, and how much of it is used. @throws GatewayError unavailable */
  async quotaShare(account: string, quota: Quota, key: string, now: number): Promise<{ limit: bigint; used: bigint }> {
    const { shares } = this.#scripts.keys.of(quotaAccount(account, quota))
    return shareOf(quota, await this.lookUp(redis => redis.hgetall(shares)), key, now)
  }

  /** Returns entries of a history, newest first. @throws GatewayError unavailable */
  async history(whose: Whose, range: HistoryRange): Promise<HistoryEntry[]> {
    const { before = Infinity, from = -Infinity, to = Infinity, count } = range
    // An entry moves from the store to the records. In the other order, one that moves meanwhile would be missed.
    const fresh = await this.#unrecorded(whose)
    const recorded = await orUnavailable(this.#records.history.entries(whose, range))
    const byId = new Map(recorded.map(entry => [entry.id, entry]))
    for (const entry of fresh) {
      const { id, ordinal } = entry
      const known = byId.get(id)
      if (known && known.ordinal >= ordinal) continue
      const at = known?.at ?? entry.at
      if (ordinal < before && at >= from && at <= to) byId.set(id, { ...entry, at })
      else byId.delete(id)
    }
    return [...byId.values()].sort((a, b) => b.ordinal - a.ordinal).slice(0, count)
  }

  /**
   * Returns the entry of an exchange, with its account.
   * @param account where to look among the entries that are not recorded yet
   */
  async entry(id: string, account?: string): Promise<(HistoryEntry & { readonly account: string }) | undefined> {
    const fresh = account === undefined ? [] : await this.#unrecorded({ account })
    const recorded = await orUnavailable(this.#records.history.entry(id))
    const latest = fresh.findLast(entry => entry.id === id)
    return latest && latest.ordinal > (recorded?.ordinal ?? 0) ? latest : recorded
  }

  /** Returns the number of entries in a history. */
  async historyLength({ account, key }: Whose): Promise<number> {
    const { history } = this.#records
    const fresh = await this.#unrecorded({ account, key })
    const { entries: ofAll, ordinal } = await orUnavailable(history.totals(account))
    const entries = key === undefined ? ofAll : await orUnavailable(history.entriesOfKey({ account, key }))
    return entries + fresh.filter(entry => entry.ordinal > ordinal && entry.kind !== 'late').length
  }

  /** Returns counters. @throws GatewayError unavailable */
  async summary(whose: Whose, nowMs: number, tries = 1): Promise<Summary & { readonly unlisted: number }> {
    const { account, key } = whose
    const fresh = await this.#unrecorded(whose)
    const { unlisted } = await this.lookUp(redis =>
      readFields(redis, this.#scripts.keys.of(account).account, ['unlisted']),
    )
    const { requests } = this.#records.recorder
    await requests.idle()
    const { batches } = requests
    const waiting = requests.waiting(account, key)
    const { summary, ordinal } = await orUnavailable(this.#records.history.summary(whose, nowMs))
    // What was recorded meanwhile would count twice.
    if (waiting.length > 0 && requests.batches !== batches && tries < SUMMARY_TRIES)
      return this.summary(whose, nowMs, tries + 1)
    const all = waiting.reduce(withRequests, summary)
    return {
      ...fresh.filter(entry => entry.ordinal > ordinal).reduce(withEntry, all),
      unlisted: Number(unlisted ?? 0),
    }
  }

  async #unrecorded({ account, key }: Whose): Promise<StreamEntry[]> {
    await this.#scripts.answered()
    const entries = await unrecorded(this.#scripts, account, this.#lookups)
    return key === undefined ? entries : entries.filter(entry => (entry.key ?? account) === key)
  }

  /**
   * Reads from the store, on the look-up connection, after all settlements that this process has sent.
   * @throws GatewayError unavailable
   */
  async lookUp<T>(command: (redis: Redis) => Promise<T>): Promise<T> {
    if (this.#looking >= LOOKUPS_MAX) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#looking++
    try {
      await this.#scripts.answered()
      return await orUnavailable(command(this.#lookups()))
    } finally {
      // The next waiting look-up takes this place.
      const next = this.#waiting.shift()
      if (next) next()
      else this.#looking--
    }
  }
}

/** What the store has of the sums of an account. */
type SumFields = Readonly<Record<'granted' | 'balance' | 'held', string | null | undefined>>

/** Returns the sums of an account from its fields. What was settled is granted - balance - held. */
export function balanceFrom(fields: SumFields): Balance {
  const [granted, balance, held] = [BigInt(fields.granted ?? 0), BigInt(fields.balance ?? 0), BigInt(fields.held ?? 0)]
  assertMoney(held >= 0n, 'what is held is not negative', () => ({ granted, balance, held }))
  return { granted, balance, held, settled: granted - balance - held }
}

/** Adds an entry that is not recorded yet to a summary. */
function withEntry(summary: Summary, entry: StreamEntry): Summary {
  const count = counted(entry)
  const added = { ...count, requests: 0, charge: count.charge - entry.paidBefore }
  const sum = withCount(summary, countedDay(entry), entry.notes.model ?? '', added)
  return { ...sum, quarantined: summary.quarantined + (entry.notes.quarantined ? 1 : 0) }
}

/** Adds requests of this process that are not recorded yet. */
function withRequests(summary: Summary, { day, model, requests }: RequestSum): Summary {
  return withCount(summary, day, model, { requests, input: 0, output: 0, charge: 0n })
}

/** @param model '' for none */
function withCount(summary: Summary, day: number, model: string, added: Count): Summary {
  const models = new Map(summary.models)
  if (model !== '') models.set(model, plus(models.get(model), added))
  return {
    ...summary,
    total: plus(summary.total, added),
    days: new Map(summary.days).set(day, plus(summary.days.get(day), added)),
    models,
  }
}

function plus(one: Count = { requests: 0, input: 0, output: 0, charge: 0n }, other: Count): Count {
  return {
    requests: one.requests + other.requests,
    input: one.input + other.input,
    output: one.output + other.output,
    charge: one.charge + other.charge,
  }
}
