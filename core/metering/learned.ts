/**
 * What replies teach of the models that made them: how fast they are, how much their upstreams add to a prompt, and whether
 * their usage reports can be trusted. A key counts once, so that no customer can shift what others are held for.
 */
import { LRUCache } from 'lru-cache'

/** Keys that must have told something of a model before others are held by it. */
const KEYS_MIN = 20
/** Keys of one model that are remembered. */
const KEYS_MAX = 1000
/** Models that are remembered. */
const MODELS_MAX = 1000
/** Input tokens that an upstream is believed to add by itself at most, unless the file says more. */
const OVERHEAD_MAX = 20_000
/** How far a learned token rate may go below and above the one of the file. */
const RATE_RANGE = { least: 0.5, most: 4 } as const
/** So many implausible reports of one model within the time suspend charges above the estimate. */
const QUARANTINES = { most: 3, withinMs: 3_600_000 } as const

/** How often a percentile is computed anew: once for so many new values. */
const EVERY = 32

/** The last value of each key, of one kind and one model. */
class Values {
  readonly #of = new LRUCache<string, number>({ max: KEYS_MAX })
  readonly #share: number
  #percentile: number | undefined
  #news = 0

  /** @param share of the keys that lie below the percentile */
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

  /** Undefined while too few keys have told. */
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
  /** When reports were quarantined, in milliseconds since the epoch. */
  quarantines: readonly number[]
}

export class Learned {
  readonly #models = new LRUCache<string, ModelFacts>({ max: MODELS_MAX })

  /** A key's request has told how many tokens the upstream added, or how many the model makes in a second. */
  learn(model: string, account: string, kind: 'overhead' | 'rate', value: number): void {
    this.#of(model)[kind].set(account, value)
  }

  /** Input tokens that the upstream adds by itself: the median over many keys, or what the key itself has seen if that is more. */
  overhead(model: string, account: string): number {
    const { overhead } = this.#of(model)
    return Math.min(OVERHEAD_MAX, Math.max(overhead.get(account) ?? 0, overhead.percentile ?? 0))
  }

  /** Tokens that the model makes in a second: the 95th percentile over many keys. @param stated what holds until enough of them are known */
  rate(model: string, stated: number): number {
    const learned = this.#of(model).rate.percentile ?? stated
    return Math.min(stated * RATE_RANGE.most, Math.max(stated * RATE_RANGE.least, learned))
  }

  /** Whether a usage report of the model that cannot be is charged no more than the estimate for now. */
  suspended(model: string, now: number): boolean {
    return this.#recent(model, now).length >= QUARANTINES.most
  }

  /** Notes an implausible report. @returns whether charges above the estimate are suspended by it */
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
