/** What a quota must answer and hold, by the operations that a store has executed. */
import { ROLLING_PARTS } from '../../core/plans/calendar.ts'

/** A quota as the simulation uses it. Times are in milliseconds. */
export interface SimulatedQuota {
  readonly amount: number
  readonly isRolling: boolean
  readonly isFair: boolean
  readonly lengthMs: number
}

interface Share {
  /** The window in which its key asked last. */
  window: number
  used: number
  before: number
  held: number
}

interface Held {
  readonly key: string
  /** Whether its end counts for the key. What was lost with its hold does not. */
  counts: boolean
  amount: number
  floor: number
  state: 'runs' | 'reaped' | 'ended'
}

/** How much a hold may get: at least, and at most, since the time of the store is not known exactly. */
export interface Expected {
  readonly least: number
  readonly most: number
}

/** The model of one quota. Windows are numbered from 0. */
export class QuotaModel {
  readonly quota: SimulatedQuota
  window = 0
  readonly shares = new Map<string, Share>()
  readonly holds = new Map<string, Held>()
  /** What was charged in the window of a calendar, or in each part of a rolling one, the latest first. */
  #charged: number[] = [0]
  /** Whether something was asked for in this window. Until then, the store counts charges in the one before. */
  #isOpen = true
  #openedIn = 0
  /** What a rolling window has given back, and the next hold will find. */
  #comingBack = 0

  constructor(quota: SimulatedQuota) {
    this.quota = quota
  }

  get held(): number {
    return [...this.holds.values()].reduce((sum, { state, amount }) => sum + (state === 'runs' ? amount : 0), 0)
  }

  get running(): number {
    return [...this.holds.values()].filter(({ state }) => state === 'runs').length
  }

  get used(): number {
    return this.#isOpen ? this.#counted : this.held
  }

  get #counted(): number {
    return this.held + this.#charged.reduce((sum, charge) => sum + charge, 0)
  }

  /** What a hold that grows may get more. */
  get left(): number {
    return this.quota.amount - this.#counted - this.#comingBack
  }

  /** Notes that the store was asked for a hold. */
  open(): void {
    if (!this.#isOpen) this.#charged = [0]
    this.#isOpen = true
    this.#openedIn = this.window
    this.#comingBack = 0
  }

  /** Time passes: the next window of a calendar, or some parts of a rolling one. */
  pass(parts: number): void {
    if (!this.quota.isRolling) {
      this.window++
      this.#isOpen = false
      return
    }
    if (parts >= ROLLING_PARTS) this.window++
    const charged = [...Array<number>(Math.min(parts, ROLLING_PARTS)).fill(0), ...this.#charged]
    this.#charged = charged.slice(0, ROLLING_PARTS)
    this.#comingBack += charged.slice(ROLLING_PARTS).reduce((sum, charge) => sum + charge, 0)
  }

  /** @param elapsed share of the window that is over */
  #useOf(key: string, elapsed: number): number | undefined {
    const share = this.shares.get(key)
    if (!share) return undefined
    const ago = this.window - share.window
    if (ago > 1 && share.held === 0) return undefined
    const [used, before] = ago === 0 ? [share.used, share.before] : [0, ago === 1 ? share.used : 0]
    return used + share.held + (this.quota.isRolling ? Math.floor(before * (1 - elapsed)) : 0)
  }

  /** Returns how much a key may hold. @param elapsed share of the window that is over: at most, and at least */
  allowed(key: string, elapsed: readonly [number, number]): Expected {
    const both = elapsed.map(at => this.#allowedAt(key, at))
    return { least: Math.min(...both), most: Math.max(...both) }
  }

  #allowedAt(key: string, elapsed: number): number {
    const { amount, isFair, isRolling } = this.quota
    const left = amount - this.used
    if (!isFair) return left
    const others = [...this.shares.keys()].filter(each => each !== key)
    const uses = others.flatMap(each => this.#useOf(each, elapsed) ?? [])
    const share = Math.floor(amount / (uses.length + 2))
    const unused = uses.reduce((sum, use) => sum + Math.max(0, share - use), share)
    const kept = unused * (isRolling ? 0.5 : 1 - elapsed)
    return Math.min(left, Math.max(share - (this.#useOf(key, elapsed) ?? 0), left - Math.ceil(kept)))
  }

  hold(id: string, key: string, amount: number): void {
    this.holds.set(id, { key, counts: this.quota.isFair, amount, floor: 0, state: 'runs' })
    if (!this.quota.isFair) return
    const share = this.shares.get(key)
    const ago = share ? this.window - share.window : 2
    const kept = { used: ago === 0 ? (share?.used ?? 0) : 0, before: 0, held: (share?.held ?? 0) + amount }
    if (share) kept.before = ago === 0 ? share.before : ago === 1 ? share.used : 0
    this.shares.set(key, { window: this.window, ...kept })
  }

  extend(id: string, more: number): void {
    const held = this.holds.get(id) as Held
    held.amount += more
    this.#note(held, 0, more)
  }

  renew(id: string, floor: number): void {
    const held = this.holds.get(id) as Held
    held.floor = Math.max(held.floor, floor)
  }

  settle(id: string, charge: number): void {
    const held = this.holds.get(id) as Held
    if (held.state === 'ended') return
    const before = held.state === 'reaped' ? held.floor : 0
    if (held.state === 'runs') this.#note(held, charge, -held.amount)
    held.state = 'ended'
    this.#charged[0] = (this.#charged[0] ?? 0) + charge - before
  }

  reap(id: string): void {
    const held = this.holds.get(id) as Held
    held.state = 'reaped'
    this.#note(held, held.floor, -held.amount)
    this.#charged[0] = (this.#charged[0] ?? 0) + held.floor
  }

  #note({ key, counts }: Held, charge: number, held: number): void {
    const share = counts && this.shares.get(key)
    if (!share) return
    const window = this.quota.isRolling || this.#isOpen ? this.window : this.#openedIn
    const ago = window - share.window
    if (ago > 0) Object.assign(share, { window, before: ago === 1 ? share.used : 0, used: 0 })
    share.used = Math.max(0, share.used + charge)
    share.held = Math.max(0, share.held + held)
  }
}
