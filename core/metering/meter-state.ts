/** What the meter knows beyond single exchanges. One instance per process, in memory only. */
import { Learned } from './learned.ts'
import { Lines } from './lines.ts'
import { Prefixes } from './prefixes.ts'
import type { UsedSums } from './used-sums.ts'

/** What replies have revealed about their models, and counters since the start of the process. */
export class MeterState {
  /** What replies have revealed about their models. */
  readonly learned = new Learned()
  /** What upstreams have reported about the input of conversations. */
  readonly prefixes = new Prefixes()
  /** Requests that wait for others of their key to end. */
  readonly lines = new Lines()
  /** What replies have used and were charged. Undefined unless a stage wants to know. */
  used: UsedSums | undefined
  /** Requests whose reported usage was implausible. */
  quarantined = 0
  /** How often implausible reports of a model to several keys raised an alarm. */
  implausibleAlarms = 0
  /** Requests that used something without a price. */
  unpriced = 0
  /** Requests that were charged less than they cost the operator. */
  belowCost = 0
  /** Replies whose usage was understood only in part, by upstream and model. */
  readonly unread = new HourlyCounts<'upstream' | 'model'>()
  /** Replies by another model than the one that was asked for, by upstream and both models. */
  readonly served = new HourlyCounts<'upstream' | 'model' | 'served'>()
  /** Members of requests that were dropped because they are not listed. */
  readonly dropped = new Counts()
}

/** Counts by name. */
export class Counts {
  readonly #counts = new Map<string, number>()

  note(name: string): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1)
  }

  get all(): Iterable<readonly [name: string, count: number]> {
    return this.#counts
  }
}

/** Shortest time between two log lines about the same, in milliseconds. */
const LOGGED_MS = 3_600_000

/** Counts by several names, of which the log has a line once an hour. */
export class HourlyCounts<N extends string> {
  readonly #counts = new Map<string, { readonly names: Readonly<Record<N, string>>; count: number; at: number }>()

  /** Counts one. @returns whether to log it */
  note(names: Readonly<Record<N, string>>, now: number): boolean {
    const key = JSON.stringify(Object.values(names))
    const found = this.#counts.get(key) ?? { names, count: 0, at: -Infinity }
    this.#counts.set(key, found)
    found.count++
    if (now - found.at < LOGGED_MS) return false
    found.at = now
    return true
  }

  get all(): Iterable<Readonly<Record<N, string>> & { readonly count: number }> {
    return [...this.#counts.values()].map(({ names, count }) => ({ ...names, count }))
  }
}
