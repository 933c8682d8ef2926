/** Read access to the ledger. */
import type { Redis } from 'ioredis'
import type { Quota } from '../config/config.ts'
import { PriceBook } from './price-book.ts'
import { type Balance, historyEntry, type HistoryEntry, summary, type Summary } from './records.ts'
import { type Scripts, stored } from './scripts.ts'

/** Milliseconds of a day. */
export const DAY_MS = 86_400_000

/** Lengths of the quota windows, in milliseconds. */
export const WINDOW_MS = { day: DAY_MS, week: 7 * DAY_MS } as const

/**
 * An account at one moment: its hash, its holds, their leases, its last entry and grant, and the store's time in
 * milliseconds.
 */
export type Snapshot = [
  account: string[],
  holds: string[],
  leases: string[],
  lastEntry: string,
  lastGrant: string,
  now: string,
]

/** Present in a store while it is being rebuilt. */
export const REBUILDING = 'rebuilding'
/** The message about a store whose rebuild was interrupted. */
export const REBUILD_INTERRUPTED = 'a rebuild of this store was interrupted: empty the store and rebuild it again'

/** Maximum entries per read. */
const PAGE_ENTRIES = 1000
/** How long a history is protected from trimming if its reader dies, in milliseconds. */
const WHOLE_MS = 600_000

/** Maximum ids per query. */
const IDS_AT_ONCE = 250

/** Maximum concurrent look-ups at the store. Others wait in this process, so that holds do not wait behind them. */
const LOOKUPS_MAX = 4

/** A ledger that can be read. */
export class Reads {
  readonly scripts: Scripts
  readonly prices: PriceBook
  /** Returns the connection for customers' look-ups. */
  #lookups: () => Redis
  #looking = 0
  readonly #waiting: (() => void)[] = []
  /** By account: the running write of what a reply stored at its provider. */
  protected readonly noting = new Map<string, Promise<unknown>>()

  constructor(scripts: Scripts) {
    this.scripts = scripts
    this.#lookups = () => scripts.redis
    this.prices = new PriceBook(scripts)
  }

  /**
   * Uses a separate connection for look-ups from now on.
   * @param connection returns the connection to use at this moment
   */
  lookUpOn(connection: () => Redis): void {
    this.#lookups = connection
  }

  /** Returns every key's account, and every recently used quota. */
  async accounts(): Promise<string[]> {
    const { redis } = this.scripts
    const keys = await stored(redis.smembers(this.scripts.shared('accounts')))
    const open = await stored(redis.zrange(this.scripts.shared('open'), '0', '-1'))
    return [...new Set([...keys, ...open])]
  }

  /** Returns whether a rebuild of this store was interrupted. */
  async halfRebuilt(): Promise<boolean> {
    return (await stored(this.scripts.redis.exists(this.scripts.shared(REBUILDING)))) > 0
  }

  /** Reads an account at one moment. With `whole`, its history is not trimmed until `release`. */
  async snapshot(account: string, keep?: 'whole'): Promise<Snapshot> {
    return (await this.scripts.run('snapshot', account, '', [keep ? String(WHOLE_MS) : '0'])) as Snapshot
  }

  /** Allows an account's history to be trimmed again. */
  async release(account: string): Promise<void> {
    await stored(this.scripts.redis.hdel(this.scripts.key(account, 'a'), 'whole'))
  }

  /**
   * Iterates over an account's history (`x`) or grants (`g`) up to the last entry of a snapshot, one page at a time.
   */
  async *entries(account: string, part: 'x' | 'g', last: string): AsyncGenerator<[id: string, fields: string[]]> {
    for (let from = '-'; ;) {
      const rows = await stored(
        this.scripts.redis.xrange(this.scripts.key(account, part), from, last, 'COUNT', PAGE_ENTRIES),
      )
      yield* rows
      if (rows.length < PAGE_ENTRIES) return
      from = `(${rows.at(-1)?.[0]}`
    }
  }

  async balance(account: string): Promise<Balance> {
    const [granted, balance, held, settled] = await this.#lookUp(redis =>
      redis.hmget(this.scripts.key(account, 'a'), 'gra', 'bal', 'rsv', 'set'),
    )
    return {
      granted: BigInt(granted ?? 0),
      balance: BigInt(balance ?? 0),
      held: BigInt(held ?? 0),
      settled: BigInt(settled ?? 0),
    }
  }

  /**
   * Returns the recorded sizes of objects that an account stored at a provider, by id. Undefined for objects of other
   * accounts.
   */
  async storedSizes(
    account: string,
    ids: readonly string[],
  ): Promise<readonly ({ reply: string; tokens: number } | undefined)[]> {
    // Once a client can have seen the reply, its record must be visible.
    await this.noting.get(account)
    const found: (string | null)[] = []
    for (let at = 0; at < ids.length; at += IDS_AT_ONCE) {
      const keys = ids.slice(at, at + IDS_AT_ONCE).map(id => this.scripts.key(account, `s:${id}`))
      found.push(...(await this.#lookUp(redis => redis.mget(keys))))
    }
    return found.map(value => {
      const [tokens, reply = ''] = value?.split(' ') ?? []
      return tokens === undefined ? undefined : { reply, tokens: Number(tokens) }
    })
  }

  /** Returns how much of its quota an upstream account has used in the current window. */
  async quotaUsed(account: string, quota: Quota, now: number): Promise<{ used: bigint; resetsAt: number }> {
    const [win, base, settled, held] = await this.#lookUp(redis =>
      redis.hmget(this.scripts.key(quotaAccount(account), 'a'), 'win', 'base', 'set', 'rsv'),
    )
    const length = WINDOW_MS[quota.per]
    const shift = quota.per === 'week' ? 3 * WINDOW_MS.day : 0
    const current = Math.floor((now + shift) / length)
    const used = win === String(current) ? BigInt(settled ?? 0) - BigInt(base ?? 0) + BigInt(held ?? 0) : 0n
    return { used, resetsAt: (current + 1) * length - shift }
  }

  /**
   * Reads entries of an account's history, newest first.
   * @param range the ids to look between, both inclusive; `(id` excludes the id
   */
  async history(account: string, range: { from: string; to: string; count: number }): Promise<HistoryEntry[]> {
    const rows = await this.#lookUp(redis =>
      redis.xrevrange(this.scripts.key(account, 'x'), range.to, range.from, 'COUNT', range.count),
    )
    return rows.map(([id, fields]) => historyEntry(id, fields))
  }

  /** Returns the number of entries in an account's history. */
  async historyLength(account: string): Promise<number> {
    return this.#lookUp(redis => redis.xlen(this.scripts.key(account, 'x')))
  }

  async summary(account: string): Promise<Summary> {
    return summary(await this.#lookUp(redis => redis.hgetall(this.scripts.key(account, 'u'))))
  }

  /** Reads from the store, on the look-up connection, after all settlements that this process has sent. */
  async #lookUp<T>(command: (redis: Redis) => Promise<T>): Promise<T> {
    if (this.#looking >= LOOKUPS_MAX) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#looking++
    try {
      await this.scripts.answered()
      return await stored(command(this.#lookups()))
    } finally {
      // The next waiting look-up takes this place.
      const next = this.#waiting.shift()
      if (next) next()
      else this.#looking--
    }
  }
}

/** Returns the ledger's account name for an upstream account's quota. */
export function quotaAccount(account: string): string {
  return `quota:${account}`
}
