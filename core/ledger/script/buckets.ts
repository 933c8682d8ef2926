/**
 * Buckets of outcomes. The store remembers how an exchange ended, so that a repeated settlement changes nothing. The
 * outcomes of a shard lie in small hashes, which need little memory. An exchange's bucket is chosen with its hold and
 * carried with it, so that everyone looks in the same place, whatever the time.
 */
import { OF_QUOTAS, shardOf } from './store-keys.ts'

/** Milliseconds whose exchanges share buckets. */
const HOUR_MS = 3_600_000
/** Milliseconds after its hour in which a bucket is certain to be complete. Later, the records are asked as well. */
const TRUSTED_MS = HOUR_MS
/** How long after its hour a recorded bucket is kept, in milliseconds. */
export const KEPT_MS = 2 * HOUR_MS
/** Number of exchanges that one process puts in a bucket, so that it stays small. */
const SIZE = 64

/** Prefix of the buckets of quotas. The records know nothing of them. */
const QUOTA_BUCKET = '~'

/** The bucket of entries that stand for several lost ones. The store never had them, and knows them by their numbers. */
export const OF_SUMS = '0.0'

/** Chooses the buckets of one process. */
export class Buckets {
  /** By shard: the hour, and the number of exchanges in it. */
  readonly #counts = new Map<number, { hour: number; count: number }>()

  /**
   * Returns the bucket for a new exchange of an account.
   * @param nowMs milliseconds since the epoch
   */
  choose(account: string, nowMs: number): string {
    const shard = shardOf(account)
    const hour = Math.floor(nowMs / HOUR_MS)
    let counted = this.#counts.get(shard)
    if (counted?.hour !== hour) this.#counts.set(shard, (counted = { hour, count: 0 }))
    const quota = account.startsWith(OF_QUOTAS) ? QUOTA_BUCKET : ''
    return `${quota}${hour}.${Math.floor(counted.count++ / SIZE)}`
  }
}

/** Returns the bucket for something that has a time but no hold, such as a refund. */
export function bucketAt(ms: number): string {
  return `${Math.floor(ms / HOUR_MS)}.0`
}

/** Returns the milliseconds since the epoch at which a bucket's hour ends. */
export function endOf(bucket: string): number {
  const hour = Number.parseInt(bucket.startsWith(QUOTA_BUCKET) ? bucket.slice(1) : bucket, 10)
  return (hour + 1) * HOUR_MS
}

/** Returns the milliseconds since the epoch at which a bucket's hour begins. */
export function startOf(bucket: string): number {
  return endOf(bucket) - HOUR_MS
}

/** Whether outcomes of a bucket may be missing in the store although their exchanges ended. */
export function isOld(bucket: string, nowMs: number): boolean {
  return nowMs > endOf(bucket) + TRUSTED_MS
}
