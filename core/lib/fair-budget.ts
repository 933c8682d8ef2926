/**
 * A budget that all exchanges draw on: of memory, or of slots. Each key and each address may take as much as it leaves
 * free. So when the budget becomes scarce, the one that has taken the most is refused first, and the others go on.
 */
import { addTo } from './add-to.ts'

/** A key may take at most 1 × the free amount, an address 4 × (many customers can share one proxy). */
const KEY_FACTOR = 1
const ADDRESS_FACTOR = 4

/** The key and the address that a reservation counts for. */
export interface Taker {
  /** The key's id; undefined for a request without one. */
  readonly key: string | undefined
  readonly address: string
}

/** A budget, and who has taken how much of it. */
export class FairBudget {
  /** The whole budget. */
  total: number
  #taken = 0
  readonly #byKey = new Map<string, number>()
  readonly #byAddress = new Map<string, number>()
  /** How often something was refused since the start. */
  refused = 0

  constructor(total: number) {
    this.total = total
  }

  /** How much is taken now. */
  get taken(): number {
    return this.#taken
  }

  /**
   * The most that one key can take while all others have nothing.
   * @param part the part of the budget that may be used for this
   */
  most(part: number): number {
    return (this.total * part * KEY_FACTOR) / (1 + KEY_FACTOR)
  }

  /**
   * Takes an amount.
   * @param part the part of the budget that may be used for this
   * @returns false if too little is left for this taker; then nothing is taken
   */
  take({ key, address }: Taker, amount: number, part: number): boolean {
    const left = this.total * part - this.#taken - amount
    const ofKey = (this.#byKey.get(key ?? '') ?? 0) + amount
    const ofAddress = (this.#byAddress.get(address) ?? 0) + amount
    if (left < 0 || ofKey > left * KEY_FACTOR || ofAddress > left * ADDRESS_FACTOR) {
      this.refused++
      return false
    }
    this.#taken += amount
    this.#byKey.set(key ?? '', ofKey)
    this.#byAddress.set(address, ofAddress)
    return true
  }

  /** Gives an amount back. */
  give({ key, address }: Taker, amount: number): void {
    this.#taken -= amount
    addTo(this.#byKey, key ?? '', -amount)
    addTo(this.#byAddress, address, -amount)
  }
}

/** What one exchange has taken of a budget. */
export class Reservation {
  readonly #budget: FairBudget
  readonly #taker: Taker
  #amount = 0

  constructor(budget: FairBudget, taker: Taker) {
    this.#budget = budget
    this.#taker = taker
  }

  /** How much is taken. */
  get amount(): number {
    return this.#amount
  }

  /** Takes an amount. @returns false if too little is left */
  take(amount: number, part = 1): boolean {
    if (!this.#budget.take(this.#taker, amount, part)) return false
    this.#amount += amount
    return true
  }

  /** Gives an amount back, at most as much as was taken. */
  give(amount: number): void {
    const given = Math.min(amount, this.#amount)
    this.#amount -= given
    if (given > 0) this.#budget.give(this.#taker, given)
  }

  /** Gives everything back. */
  close(): void {
    this.give(this.#amount)
  }
}
