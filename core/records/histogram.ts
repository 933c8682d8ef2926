/**
 * Histograms of times in milliseconds, in buckets whose bounds grow by a fifth. They can be added up, and give
 * percentiles to within a tenth.
 */
import { Packer, Unpacker } from '../lib/packed.ts'

/** The ratio of a bucket's upper bound to its lower bound. */
const GROWTH = 1.2

/** Numbers of times by bucket. */
export type Histogram = Map<number, number>

/** Returns the bucket of a time. */
export function bucketOf(ms: number): number {
  return ms < 1 ? 0 : Math.floor(Math.log(ms) / Math.log(GROWTH)) + 1
}

/** Adds the counts of one histogram to another. Counts below zero become zero. */
export function addTo(sum: Histogram, other: ReadonlyMap<number, number>): void {
  for (const [bucket, count] of other) {
    const next = (sum.get(bucket) ?? 0) + count
    if (next > 0) sum.set(bucket, next)
    else sum.delete(bucket)
  }
}

/** Packs a histogram into few bytes. */
export function packHistogram(histogram: ReadonlyMap<number, number>): Uint8Array {
  const packed = new Packer()
  let before = 0
  for (const [bucket, count] of [...histogram].sort(([a], [b]) => a - b)) {
    packed.number(bucket - before).number(count)
    before = bucket
  }
  return packed.bytes()
}

/** Reads a packed histogram. */
export function unpackHistogram(bytes: Uint8Array): Histogram {
  const packed = new Unpacker(bytes)
  const histogram: Histogram = new Map()
  let bucket = 0
  while (!packed.done) {
    bucket += packed.number()
    histogram.set(bucket, packed.number())
  }
  return histogram
}

/**
 * Returns the time in milliseconds below which a fraction of all times lie.
 * @param fraction from 0 to 1
 * @returns undefined if there are no times
 */
export function percentile(histogram: ReadonlyMap<number, number>, fraction: number): number | undefined {
  const total = [...histogram.values()].reduce((sum, count) => sum + count, 0)
  if (total === 0) return undefined
  let left = total * fraction
  for (const [bucket, count] of [...histogram].sort(([a], [b]) => a - b)) {
    left -= count
    // The middle of the bucket, on its scale.
    if (left <= 0) return bucket === 0 ? 0 : Math.round(GROWTH ** (bucket - 0.5))
  }
  return undefined
}
