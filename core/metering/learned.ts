/**
 * What replies reveal about their models: their speed, the tokens that their upstreams add to a prompt, and whether
 * their usage reports can be trusted. Each key counts once, so that no customer can change what others are held for.
 */
import { lru } from '../lib/lru.ts'

/** Number of keys that must have contributed before the value applies to other keys. */
const KEYS_MIN = 20
/** Maximum keys that are remembered per model. */
const KEYS_MAX = 1000
/** Maximum models that are remembered. */
const MODELS_MAX = 1000
/** Maximum learned input tokens that an upstream adds, unless the file states more. */
const OVERHEAD_MAX = 20_000
/** Limits of a learned token rate, as factors of the configured rate. */
const RATE_RANGE = { least: 0.5, most: 4 } as const
/** This many implausible reports of one model within the time suspend charges above the estimate. */
const QUARANTINES = { most: 3, withinMs: 3_600_000 } as const

/** A percentile is recomputed after this many new values. */
const EVERY = 32

/** The last value of each key, for one kind of value and one model. */
class Values {
  readonly #of = lru<string, number>(KEYS_MAX)
  readonly #share: number
  #percentile: number | undefined
  #news = 0

  /** @param share the share of keys below the percentile */
  constructor(share: number) {
    this.#share = share
  }

  get(account: string): number | undefined {
    return this.#of.get(account)
  }

  set(account: string, value: number): void {
    if (this.#of.peek(account) === value) return
    this.#of.set(account, value)
    this.#news++
  }

  /** Undefined until enough keys have contributed. */
  get percentile(): number | undefined {
    if (this.#of.size < KEYS_MIN) return undefined
    if (this.#percentile !== undefined && this.#news < EVERY) return this.#percentile
    const sorted = [...this.#of.values()].sort((a, b) => a - b)
    this.#news = 0
    return (this.#percentile = sorted[Math.floor((sorted.length - 1) * this.#share)])
  }
}

interface ModelFacts {
  readonly overhead: Values
  readonly rate: Values
  /** Times of implausible reports, in milliseconds since the epoch. */
  quarantines: readonly number[]
}

/** What was learned about each model. */
export class Learned {
  readonly #models = lru<string, ModelFacts>(MODELS_MAX)

  /** Records a value from a key's request: tokens that the upstream added, or tokens per second. */
  learn(model: string, account: string, kind: 'overhead' | 'rate', value: number): void {
    this.#of(model)[kind].set(account, value)
  }

  /**
   * Returns the input tokens that the upstream adds: the median over many keys, or the key's own last value if that is
   * higher.
   */
  overhead(model: string, account: string): number {
    const { overhead } = this.#of(model)
    return Math.min(OVERHEAD_MAX, Math.max(overhead.get(account) ?? 0, overhead.percentile ?? 0))
  }

  /**
   * Returns the model's tokens per second: the 95th percentile over many keys.
   * @param stated the rate until enough keys have contributed
   */
  rate(model: string, stated: number): number {
    const learned = this.#of(model).rate.percentile ?? stated
    return Math.min(stated * RATE_RANGE.most, Math.max(stated * RATE_RANGE.least, learned))
  }

  /** Returns whether implausible reports of the model are currently charged no more than the estimate. */
  suspended(model: string, now: number): boolean {
    return this.#recent(model, now).length >= QUARANTINES.most
  }

  /** Records an implausible report. @returns whether it suspends charges above the estimate */
  quarantine(model: string, now: number): boolean {
    const before = this.#recent(model, now)
    this.#of(model).quarantines = [...before, now].slice(-QUARANTINES.most)
    return before.length === QUARANTINES.most - 1
  }

  #recent(model: string, now: number): readonly number[] {
    return this.#of(model).quarantines.filter(at => now - at < QUARANTINES.withinMs)
  }

  #of(model: string): ModelFacts {
    let facts = this.#models.get(model)
    if (!facts) {
      facts = { overhead: new Values(0.5), rate: new Values(0.95), quarantines: [] }
      this.#models.set(model, facts)
    }
    return facts
  }
}
