/**
 * What replies reveal about an upstream's models: their speed, and the tokens that the upstream adds to a prompt. What a
 * key's own replies have shown is held and charged for that key. What many keys have shown is held for all of them, and
 * charged to none.
 */
import { lru } from '../lib/lru.ts'
import { NANO } from '../money/credits.ts'

/** Number of keys that must have contributed before the value applies to other keys. */
const KEYS_MIN = 20
/** A key teaches others only from this age on, in milliseconds, and after it has been charged this much, in nano-credits. */
const TEACHER_MIN = { ageMs: 7 * 86_400_000, settled: NANO } as const
/** Maximum keys that are remembered per model. */
const KEYS_MAX = 1000
/** Maximum models that are remembered. */
const MODELS_MAX = 1000
/** Maximum learned input tokens that an upstream adds, unless the file states more. */
const OVERHEAD_MAX = 20_000
/** Maximum of a learned token rate, as a factor of the configured rate. */
const RATE_MOST = 4
/** Implausible reports of a model to this many keys within the time raise an alarm. */
const ALARM = { keys: 3, withinMs: 3_600_000 } as const

/** A percentile is recomputed after this many new values. */
const EVERY = 32

/** A key whose replies are learned from. */
export interface Learner {
  readonly id: string
  /** In milliseconds since the epoch. */
  readonly createdAt: number
  /** What it has been charged, in nano-credits. */
  readonly settled: bigint
}

/** Whether others learn from a key. One customer can have many keys, and so the age and the charges of a key count. */
function teaches({ createdAt, settled }: Learner, now: number): boolean {
  return now - createdAt >= TEACHER_MIN.ageMs && settled >= TEACHER_MIN.settled
}

/** The last value of each key, for one kind of value and one model. */
class Values {
  readonly #own = lru<string, number>(KEYS_MAX)
  /** Those of keys that others learn from. */
  readonly #taught = lru<string, number>(KEYS_MAX)
  readonly #share: number
  #percentile: number | undefined
  #news = 0

  /** @param share the share of keys below the percentile */
  constructor(share: number) {
    this.#share = share
  }

  get(key: string): number | undefined {
    return this.#own.get(key)
  }

  set(key: string, value: number, doesTeach: boolean): void {
    this.#own.set(key, value)
    if (!doesTeach || this.#taught.peek(key) === value) return
    this.#taught.set(key, value)
    this.#news++
  }

  /** Undefined until enough keys have contributed. */
  get percentile(): number | undefined {
    if (this.#taught.size < KEYS_MIN) return undefined
    if (this.#percentile !== undefined && this.#news < EVERY) return this.#percentile
    const sorted = [...this.#taught.values()].sort((a, b) => a - b)
    this.#news = 0
    return (this.#percentile = sorted[Math.floor((sorted.length - 1) * this.#share)])
  }
}

interface ModelFacts {
  readonly overhead: Values
  readonly rate: Values
  /** When a report to a key was implausible last, in milliseconds since the epoch. */
  readonly reports: Map<string, number>
}

/** What was learned about each model. Models are named by upstream and by the name that is sent. */
export class Learned {
  readonly #models = lru<string, ModelFacts>(MODELS_MAX)

  /** Records a value from a key's request: tokens that the upstream added, or tokens per second. */
  learn(
    model: string,
    key: Learner,
    value: { readonly overhead: number } | { readonly rate: number },
    now: number,
  ): void {
    const facts = this.#of(model)
    const [values, learned] = 'rate' in value ? [facts.rate, value.rate] : [facts.overhead, value.overhead]
    values.set(key.id, learned, teaches(key, now))
  }

  /** Returns the input tokens that the upstream added to the key's last prompt; 0 if unknown. */
  ownOverhead(model: string, key: string): number {
    return Math.min(OVERHEAD_MAX, this.#of(model).overhead.get(key) ?? 0)
  }

  /** Returns the input tokens to hold for: the median over many keys, or the key's own if they are more. */
  heldOverhead(model: string, key: string): number {
    const median = this.#of(model).overhead.percentile ?? 0
    return Math.min(OVERHEAD_MAX, Math.max(this.ownOverhead(model, key), median))
  }

  /** Returns the tokens per second that the key's last reply showed, but not less than the stated rate. */
  ownRate(model: string, key: string, stated: number): number {
    const shown = this.#of(model).rate.get(key) ?? stated
    return Math.min(stated * RATE_MOST, Math.max(stated, shown))
  }

  /**
   * Returns the tokens per second to hold for: the 95th percentile over many keys, or what is charged if that is more.
   * @param stated the rate until enough keys have contributed
   */
  heldRate(model: string, key: string, stated: number): number {
    const many = this.#of(model).rate.percentile ?? 0
    return Math.min(stated * RATE_MOST, Math.max(this.ownRate(model, key, stated), many))
  }

  /** Records an implausible report to a key. @returns whether so many keys have got one now that it is alarming */
  implausible(model: string, key: string, now: number): boolean {
    const { reports } = this.#of(model)
    for (const [other, at] of reports) if (now - at >= ALARM.withinMs) reports.delete(other)
    const isNew = !reports.has(key)
    if (isNew && reports.size === ALARM.keys) return false
    reports.set(key, now)
    return isNew && reports.size === ALARM.keys
  }

  #of(model: string): ModelFacts {
    let facts = this.#models.get(model)
    if (!facts) {
      facts = { overhead: new Values(0.5), rate: new Values(0.95), reports: new Map() }
      this.#models.set(model, facts)
    }
    return facts
  }
}
