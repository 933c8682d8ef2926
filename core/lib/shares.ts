/**
 * What there is only so much of, for all exchanges together: memory, and places. Each key, and each address, may take as much as it
 * leaves free, so when it becomes scarce, who has taken the most is refused first, and others still get their share.
 */

/** A key, and an address, may take so many times what it leaves free. Behind a proxy many customers may share an address. */
const KEY_SHARE = 1
const ADDRESS_SHARE = 4

/** Who takes a share. */
export interface Taker {
  /** The key's id; undefined for a request without one. */
  readonly key: string | undefined
  readonly address: string
}

export class Shares {
  /** How much there is in all. */
  total: number
  #taken = 0
  readonly #byKey = new Map<string, number>()
  readonly #byAddress = new Map<string, number>()
  /** How often somebody was refused since the start. */
  refused = 0

  constructor(total: number) {
    this.total = total
  }

  /** How much is taken at this moment. */
  get taken(): number {
    return this.#taken
  }

  /** The most that one key can take while all others have nothing. @param part of the total that may be taken for this */
  most(part: number): number {
    return (this.total * part * KEY_SHARE) / (1 + KEY_SHARE)
  }

  /**
   * Takes an amount.
   * @param part of the total that may be taken for this
   * @returns false when there is not so much left for this taker; then nothing is taken
   */
  take({ key, address }: Taker, amount: number, part: number): boolean {
    const left = this.total * part - this.#taken - amount
    const ofKey = (this.#byKey.get(key ?? '') ?? 0) + amount
    const ofAddress = (this.#byAddress.get(address) ?? 0) + amount
    if (left < 0 || ofKey > left * KEY_SHARE || ofAddress > left * ADDRESS_SHARE) {
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
    subtract(this.#byKey, key ?? '', amount)
    subtract(this.#byAddress, address, amount)
  }
}

function subtract(counts: Map<string, number>, name: string, amount: number): void {
  const left = (counts.get(name) ?? 0) - amount
  if (left > 0) counts.set(name, left)
  else counts.delete(name)
}

/** What one exchange has taken. */
export class Share {
  readonly #shares: Shares
  readonly #taker: Taker
  #amount = 0

  constructor(shares: Shares, taker: Taker) {
    this.#shares = shares
    this.#taker = taker
  }

  /** How much is taken. */
  get amount(): number {
    return this.#amount
  }

  /** Takes an amount. @returns false as `Shares.take` does */
  take(amount: number, part = 1): boolean {
    if (!this.#shares.take(this.#taker, amount, part)) return false
    this.#amount += amount
    return true
  }

  /** Gives an amount back, at most as much as was taken. */
  give(amount: number): void {
    const given = Math.min(amount, this.#amount)
    this.#amount -= given
    if (given > 0) this.#shares.give(this.#taker, given)
  }

  /** The exchange is over. */
  close(): void {
    this.give(this.#amount)
  }
}
