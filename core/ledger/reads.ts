/** What can be asked of a ledger without changing it. */
import type { Redis } from 'ioredis'
import type { Quota } from '../config/config.ts'
import { PriceBook } from './price-book.ts'
import { type Balance, historyEntry, type HistoryEntry, summary, type Summary } from './records.ts'
import { type Scripts, stored } from './scripts.ts'

/** How long the windows of quotas are. */
export const WINDOW_MS = { day: 86_400_000, week: 604_800_000 } as const

/** An account at one moment: its hash, its holds, their leases, its last entry and grant, and the store's time in milliseconds. */
export type Snapshot = [
  account: string[],
  holds: string[],
  leases: string[],
  lastEntry: string,
  lastGrant: string,
  now: string,
]

/** Stands in a store while it is being rebuilt. */
export const REBUILDING = 'rebuilding'
/** What is said of a store that was not rebuilt to the end. */
export const BROKEN_OFF = 'a rebuild of this store was broken off: empty the store, and rebuild it again'

/** Entries read at a time: nobody ever asks the store for more. */
const PAGE = 1000
/** Milliseconds for which a history is not trimmed under a reader that dies. */
const WHOLE_MS = 600_000

/** Ids that the store is asked about at a time. */
const IDS_AT_ONCE = 250

/** Look-ups that are with the store at a time: the others wait here, and holds do not wait behind them. */
const LOOKUPS_MAX = 4

export class Reads {
  readonly scripts: Scripts
  readonly prices: PriceBook
  /** The connection for what customers look up. */
  #lookups: () => Redis
  #looking = 0
  readonly #waiting: (() => void)[] = []
  /** By account, the note under way of what a reply has left with its provider. */
  protected readonly noting = new Map<string, Promise<unknown>>()

  constructor(scripts: Scripts) {
    this.scripts = scripts
    this.#lookups = () => scripts.redis
    this.prices = new PriceBook(scripts)
  }

  /** Looks up on a connection of its own from now on. @param connection the one to use at a moment */
  lookUpOn(connection: () => Redis): void {
    this.#lookups = connection
  }

  /** Every key, and every quota that was used lately. */
  async accounts(): Promise<string[]> {
    const { redis } = this.scripts
    const keys = await stored(redis.smembers(this.scripts.shared('accounts')))
    const open = await stored(redis.zrange(this.scripts.shared('open'), '0', '-1'))
    return [...new Set([...keys, ...open])]
  }

  /** Whether a rebuild of this store was broken off. */
  async halfRebuilt(): Promise<boolean> {
    return (await stored(this.scripts.redis.exists(this.scripts.shared(REBUILDING)))) > 0
  }

  /** An account at one moment. With `whole`, its history is not trimmed until it is released. */
  async snapshot(account: string, keep?: 'whole'): Promise<Snapshot> {
    return (await this.scripts.run('snapshot', account, '', [keep ? String(WHOLE_MS) : '0'])) as Snapshot
  }

  /** Lets an account's history be trimmed again. */
  async release(account: string): Promise<void> {
    await stored(this.scripts.redis.hdel(this.scripts.key(account, 'a'), 'whole'))
  }

  /** The entries of an account's history (`x`) or grants (`g`) up to the last one of a snapshot, a page at a time. */
  async *entries(account: string, part: 'x' | 'g', last: string): AsyncGenerator<[id: string, fields: string[]]> {
    for (let from = '-'; ;) {
      const rows = await stored(this.scripts.redis.xrange(this.scripts.key(account, part), from, last, 'COUNT', PAGE))
      yield* rows
      if (rows.length < PAGE) return
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

  /** What is known of state that an account left with a provider, id by id; undefined for what it did not make. */
  async storedSizes(
    account: string,
    ids: readonly string[],
  ): Promise<readonly ({ reply: string; tokens: number } | undefined)[]> {
    // What a reply has left is there when its client can have seen it.
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

  /** What an upstream account has used of its quota in the running window. */
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
   * Entries of an account's history, newest first.
   * @param range ids between which entries are looked for, both inclusive; `(id` excludes it
   */
  async history(account: string, range: { from: string; to: string; count: number }): Promise<HistoryEntry[]> {
    const rows = await this.#lookUp(redis =>
      redis.xrevrange(this.scripts.key(account, 'x'), range.to, range.from, 'COUNT', range.count),
    )
    return rows.map(([id, fields]) => historyEntry(id, fields))
  }

  /** How many entries an account's history has. */
  async historyLength(account: string): Promise<number> {
    return this.#lookUp(redis => redis.xlen(this.scripts.key(account, 'x')))
  }

  async summary(account: string): Promise<Summary> {
    return summary(await this.#lookUp(redis => redis.hgetall(this.scripts.key(account, 'u'))))
  }

  /** Reads from the store what is true after every settlement that this process has asked for, on the connection for look-ups. */
  async #lookUp<T>(command: (redis: Redis) => Promise<T>): Promise<T> {
    if (this.#looking >= LOOKUPS_MAX) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#looking++
    try {
      await this.scripts.answered()
      return await stored(command(this.#lookups()))
    } finally {
      // Its place goes to the next.
      const next = this.#waiting.shift()
      if (next) next()
      else this.#looking--
    }
  }
}

/** The ledger's name for an upstream account's quota. */
export function quotaAccount(account: string): string {
  return `quota:${account}`
}
