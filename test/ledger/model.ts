/** What every sum of an account must be, by the operations that a store has executed. */
import type { HoldName } from '../../core/ledger/hold.ts'
import type { Operation } from '../../core/ledger/script/names.ts'

/** The sums of an account that do not follow from others. */
export interface Sums {
  readonly granted: bigint
  readonly balance: bigint
  readonly held: bigint
}

/** An end of an exchange, as it is recorded. */
interface End {
  readonly ordinal: number
  readonly final: boolean
  readonly charge: bigint
  recorded: boolean
  /** Whether the store has lost it. */
  lost: boolean
}

/** The state of an exchange. */
interface State {
  readonly account: string
  /** The key; the account itself for the key with its name. */
  readonly key: string
  hold: { amount: bigint; floor: bigint; expired: boolean } | undefined
  /** What it was charged when it was reaped, or finally. */
  charged: bigint
  ended: boolean
}

interface Account {
  granted: bigint
  refunded: bigint
  /** The number of its latest entry. */
  ordinal: number
  /** Lost attempts that no retry has used yet. */
  readonly attempts: Map<string, { part: string; charge: bigint }[]>
  /** The time until which they count, in milliseconds. */
  readonly waits: Map<string, number>
  /** Requests without a charge in this minute. */
  free: { minute: number; count: number }
}

/** What a store has, to be put back when it loses what came later. */
export interface Saved {
  readonly states: ReadonlyMap<string, State>
  readonly accounts: ReadonlyMap<string, Account>
}

/** Milliseconds for which a complete reply waits for the attempts before it. */
const RETRY_WAITS_MS = 60_000

/** The model of a store with its accounts. */
export class Model {
  #states = new Map<string, State>()
  readonly #accounts = new Map<string, Account>()
  /** All ends of exchanges, also those that a store lost. */
  readonly #ends = new Map<string, End[]>()
  readonly #credits: {
    readonly account: string
    readonly key: string
    readonly amount: bigint
    readonly end: End
  }[] = []
  /** The caps of keys. */
  readonly caps = new Map<string, bigint>()
  /** What the key of the operation was charged on other accounts, as its record says. */
  #elsewhere = 0n

  get accounts(): string[] {
    return [...this.#accounts.keys()]
  }

  add(account: string): void {
    this.#accounts.set(account, {
      granted: 0n,
      refunded: 0n,
      ordinal: 0,
      attempts: new Map(),
      waits: new Map(),
      free: { minute: 0, count: 0 },
    })
  }

  sums(account: string): Sums {
    const own = this.#of(account)
    let held = 0n
    let charged = 0n
    for (const state of this.#states.values()) {
      if (state.account !== account) continue
      held += state.hold?.amount ?? 0n
      charged += state.charged
    }
    return { granted: own.granted, balance: own.granted + own.refunded - held - charged, held }
  }

  /** What a key was charged and holds, and the number of its holds. */
  part(account: string, key: string): { charged: bigint; held: bigint; holds: number } {
    const part = { charged: -this.#refunded(account, key), held: 0n, holds: 0 }
    for (const state of this.#states.values()) {
      if (state.account !== account || state.key !== key) continue
      part.charged += state.charged
      part.held += state.hold?.amount ?? 0n
      part.holds += state.hold ? 1 : 0
    }
    return part
  }

  /** What a key may still hold. */
  #room(account: string, key: string): bigint {
    const { balance } = this.sums(account)
    const cap = this.caps.get(key)
    if (cap === undefined) return balance
    const { charged, held } = this.part(account, key)
    const left = cap - this.#elsewhere - charged - held
    return left < balance ? left : balance
  }

  held({ id }: HoldName): bigint | undefined {
    return this.#states.get(id)?.hold?.amount
  }

  grant(account: string, amount: bigint): void {
    this.#of(account).granted += amount
  }

  credit(account: string, key: string, amount: bigint): void {
    const own = this.#of(account)
    own.refunded += amount
    const end = { ordinal: ++own.ordinal, final: true, charge: -amount, recorded: false, lost: false }
    this.#credits.push({ account, key, amount, end })
  }

  expire(id: string): void {
    const hold = this.#states.get(id)?.hold
    if (hold) hold.expired = true
  }

  /** Notes that everything that the store has is recorded. */
  record(): void {
    for (const end of [...this.#ends.values()].flat()) end.recorded = true
    for (const { end } of this.#credits) end.recorded = true
  }

  /** Whether the final end of an exchange is recorded. */
  isRecorded(id: string): boolean {
    return (this.#ends.get(id) ?? []).some(({ final, recorded }) => final && recorded)
  }

  save(): Saved {
    return structuredClone({ states: this.#states, accounts: this.#accounts })
  }

  /** The store has only what was saved. */
  lose(saved: Saved | undefined): void {
    for (const [name, own] of this.#accounts) {
      const then = saved?.accounts.get(name)
      own.ordinal = then?.ordinal ?? 0
      own.attempts.clear()
      own.waits.clear()
      for (const [request, attempts] of structuredClone(then?.attempts ?? new Map()))
        own.attempts.set(request, attempts)
      for (const [request, until] of then?.waits ?? []) own.waits.set(request, until)
      own.free = { ...(then?.free ?? { minute: 0, count: 0 }) }
      for (const { account, end } of this.#credits) if (account === name && end.ordinal > own.ordinal) end.lost = true
      own.refunded = this.#refunded(name)
    }
    const states = new Map<string, State>()
    for (const [id, { account, key }] of this.#states) {
      const then = saved?.states.get(id)
      states.set(id, then ? structuredClone(then) : { account, key, hold: undefined, charged: 0n, ended: false })
      const ends = this.#ends.get(id) ?? []
      for (const end of ends) end.lost ||= end.ordinal > this.#of(account).ordinal
      // What was neither saved nor recorded never happened.
      this.#ends.set(
        id,
        ends.filter(({ recorded, lost }) => recorded || !lost),
      )
    }
    this.#states = states
  }

  /** An end that was recorded is written to the store again. */
  replayed(id: string, ordinal: number): void {
    const end = this.#ends.get(id)?.find(each => each.lost && each.ordinal === ordinal)
    if (!end) return
    end.lost = false
    const state = this.#states.get(id)
    if (!state) return
    const own = this.#of(state.account)
    own.ordinal = Math.max(own.ordinal, end.ordinal)
    // The store may have ended it again before that.
    if (state.ended) return
    Object.assign(state, { hold: undefined, charged: end.charge, ended: end.final })
  }

  /** Everything that was recorded is in the store again. */
  restore(): void {
    for (const [id, ends] of this.#ends) for (const { ordinal, lost } of ends) if (lost) this.replayed(id, ordinal)
    for (const { account, end } of this.#credits) {
      if (!end.lost || !end.recorded) continue
      end.lost = false
      const own = this.#of(account)
      own.ordinal = Math.max(own.ordinal, end.ordinal)
    }
    for (const [name, own] of this.#accounts) own.refunded = this.#refunded(name)
  }

  #refunded(name: string, of?: string): bigint {
    return this.#credits
      .filter(({ account, key, end }) => account === name && (of === undefined || key === of) && !end.lost)
      .reduce((sum, { amount }) => sum + amount, 0n)
  }

  /** Applies an operation that the store has executed. @throws Error if its answer is wrong */
  /** @param elsewhere what the key was charged on other accounts, as its record says */
  apply({ name, account, args, keys }: Operation, answer: readonly string[], elsewhere = 0n): void {
    this.#elsewhere = elsewhere
    const own = this.#of(account)
    if (name === 'hold') this.#hold(account, args, answer)
    else if (name === 'extend') this.#extend(account, args, answer)
    else if (name === 'renew') this.#renew(args, answer)
    else if (name === 'settle') this.#settle(own, account, args, answer, keys[6] ?? '')
    else if (name === 'reap') this.#reap(own, args, answer)
  }

  #hold(account: string, args: readonly string[], [kind, held = '0']: readonly string[]): void {
    const id = (args[0] ?? '').split(' ')[1] ?? ''
    const [wanted, least] = [BigInt(args[1] ?? 0), BigInt(args[2] ?? 0)]
    const key = args[10] || account
    const balance = this.#room(account, key)
    // The key was moved before a late request arrived.
    if (kind === 'stale') return
    const before = this.#states.get(id)
    if (before?.hold) return expect('the repeated hold', BigInt(held), before.hold.amount)
    const share = balance / 2n > least ? balance / 2n : least
    const asked = args[6] === '1' && balance >= 0n && wanted > share ? share : wanted
    // What costs nothing needs nothing.
    const taken = wanted === 0n ? 0n : take(balance, asked, least)
    if ((kind === 'held') !== (taken !== undefined))
      throw new Error(`a hold of ${wanted} (${least}) on ${balance} was answered with ${kind}`)
    if (taken === undefined) return
    expect('the hold', BigInt(held), taken)
    // A hold that comes after its exchange was voided waits for the end of its lease.
    const state = before ?? { account, key, hold: undefined, charged: 0n, ended: false }
    state.hold = { amount: taken, floor: 0n, expired: false }
    this.#states.set(id, state)
  }

  #extend(account: string, args: readonly string[], [kind, held = '0']: readonly string[]): void {
    const state = this.#states.get(args[1] ?? '')
    const wanted = BigInt(args[2] ?? 0)
    const balance = this.#room(account, args[9] || account)
    if (kind === 'unknown') {
      if (state?.hold) throw new Error('the extension of a hold was answered with unknown')
      return
    }
    if (kind === 'gone') {
      if (!state?.ended) throw new Error('an extension of a running exchange was answered with gone')
      return
    }
    if (!state) throw new Error('an exchange without a hold was extended')
    if (state.hold) {
      const more = wanted > state.hold.amount ? wanted - state.hold.amount : 0n
      state.hold.amount += take(balance, more, 1n) ?? 0n
    } else {
      const revived = wanted === 0n ? undefined : take(balance, wanted, 1n)
      if (revived !== undefined) state.hold = { amount: revived, floor: BigInt(args[5] ?? 0), expired: false }
    }
    expect('the extended hold', BigInt(held), state.hold?.amount ?? 0n)
  }

  #renew(args: readonly string[], [kind]: readonly string[]): void {
    const hold = this.#states.get(args[1] ?? '')?.hold
    if ((kind === 'ok') !== (hold !== undefined)) throw new Error(`a renewal was answered with ${kind}`)
    const floor = BigInt(args[2] ?? 0)
    if (hold) Object.assign(hold, { floor: floor > hold.floor ? floor : hold.floor, expired: false })
  }

  #settle(own: Account, account: string, args: readonly string[], [kind]: readonly string[], request: string): void {
    const [, id = '', , asked = '0', , , , part = ''] = args
    const key = args[11] || account
    const state = this.#states.get(id) ?? { account, key, hold: undefined, charged: 0n, ended: false }
    this.#states.set(id, state)
    if (kind === 'unknown' || kind === 'done') {
      if (state.hold) throw new Error(`the settlement of a hold was answered with ${kind}`)
      if (kind === 'done' && !state.ended)
        throw new Error('the settlement of a running exchange was answered with done')
      return
    }
    if (state.ended && !state.hold && BigInt(asked) > 0n) throw new Error('an exchange was settled twice')
    let charge = BigInt(asked)
    const waived = part === '' || charge === 0n ? 0n : this.#waived(own, part, request, charge)
    charge -= waived
    const reaped = this.#ends.get(id)?.some(({ final, lost }) => !final && !lost) ?? false
    const silent =
      charge === 0n && waived === 0n && !reaped && (!state.hold || (args[4] === 'void' && this.#unlisted(own, args)))
    if (state.ended && BigInt(asked) === 0n) {
      // A cancellation of a hold that came late.
      state.hold = undefined
      if (!silent) own.ordinal++
      return
    }
    state.hold = undefined
    if (silent) return
    state.charged = charge
    state.ended = true
    this.#end(own, id, charge, true)
  }

  #unlisted(own: Account, args: readonly string[]): boolean {
    const minute = Math.floor(Date.now() / 60_000)
    if (own.free.minute !== minute) own.free = { minute, count: 0 }
    return ++own.free.count > Number(args[10])
  }

  #waived(own: Account, part: string, request: string, charge: bigint): bigint {
    const attempts = own.attempts.get(request) ?? []
    own.attempts.set(request, attempts)
    // Only this depends on real time: on a slow machine the time is over before the last step.
    if ((own.waits.get(request) ?? Infinity) < Date.now()) attempts.splice(0)
    const [other] = attempts
    if (other && other.part !== part) {
      attempts.shift()
      return other.charge < charge ? other.charge : charge
    }
    attempts.unshift({ part, charge })
    own.waits.set(request, part === 'retry' ? Date.now() + RETRY_WAITS_MS : Infinity)
    attempts.splice(128)
    return 0n
  }

  #reap(own: Account, args: readonly string[], [kind]: readonly string[]): void {
    const id = args[1] ?? ''
    const state = this.#states.get(id)
    if (kind === 'live' || kind === 'gone') {
      if (kind === 'live' && state?.hold?.expired) throw new Error('an expired hold was not reaped')
      return
    }
    if (!state?.hold) throw new Error(`a hold that does not exist was ${kind}`)
    const { floor } = state.hold
    state.hold = undefined
    if (kind === 'released') return
    if (floor > state.charged) state.charged = floor
    this.#end(own, id, state.charged, false)
  }

  #end(own: Account, id: string, charge: bigint, final: boolean): void {
    const ends = this.#ends.get(id) ?? []
    ends.push({ ordinal: ++own.ordinal, final, charge, recorded: false, lost: false })
    this.#ends.set(id, ends)
  }

  #of(account: string): Account {
    return this.#accounts.get(account) as Account
  }
}

function take(balance: bigint, wanted: bigint, least: bigint): bigint | undefined {
  if (balance >= wanted) return wanted
  return balance > 0n && balance >= least ? balance : undefined
}

function expect(what: string, found: bigint, right: bigint): void {
  if (found !== right) throw new Error(`${what} is ${found} where ${right} is right`)
}
