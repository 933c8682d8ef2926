/**
 * The memory that requests and replies in flight may take: a budget of bytes. Each key, and each address, may take as much as it
 * leaves free, so when memory becomes scarce, who has taken the most is refused first, and others still get their share.
 */
import { totalmem } from 'node:os'
import { getHeapStatistics } from 'node:v8'
import { GatewayError, soonMs } from './errors.ts'
import { separatorsIn } from './json/bytes.ts'

/** The part of the heap, or of what the container has, that is the budget where the file does not say. */
const SHARE = 1 / 2

/** The part of the budget that requests may fill; what is left is for the replies of those that run. */
const FOR_REQUESTS = 3 / 4
/** A key, and an address, may take so many times the bytes that it leaves free. Behind a proxy many customers may share an address. */
const KEY_SHARE = 1
const ADDRESS_SHARE = 4

/**
 * The budget of one process where the file does not say: half of its heap's limit, or half of its share of the container's or the
 * machine's memory if that is less.
 * @param workers processes that share the machine
 * @returns bytes
 */
export function standardBudget(workers: number): number {
  const machine = Math.min(process.constrainedMemory() || Infinity, totalmem())
  return Math.floor(SHARE * Math.min(getHeapStatistics().heap_size_limit, machine / workers))
}

/** The error for a request or a reply for which there is no memory. */
export function shortOfMemory(): GatewayError {
  return new GatewayError('unavailable', { message: 'The gateway is short of memory. Try again.', retryAfterMs: soonMs() })
}

/** Who takes memory. */
export interface Taker {
  /** The key's id; undefined for a request without one. */
  readonly key: string | undefined
  readonly address: string
}

export class MemoryBudget {
  /** Bytes in all. */
  total: number
  #taken = 0
  readonly #byKey = new Map<string, number>()
  readonly #byAddress = new Map<string, number>()
  /** Requests and replies that were refused since the start. */
  refused = 0

  /** @param total bytes */
  constructor(total: number) {
    this.total = total
  }

  /** Bytes that are taken at this moment. */
  get taken(): number {
    return this.#taken
  }

  /** The account of one exchange. */
  account(taker: Taker): MemoryAccount {
    return new MemoryAccount(this, taker)
  }

  /**
   * Takes bytes.
   * @param running they are for the reply of a request that runs
   * @returns false when there are not so many left for this taker; then none are taken
   */
  take({ key, address }: Taker, bytes: number, running: boolean): boolean {
    const left = (running ? this.total : this.total * FOR_REQUESTS) - this.#taken - bytes
    const ofKey = (this.#byKey.get(key ?? '') ?? 0) + bytes
    const ofAddress = (this.#byAddress.get(address) ?? 0) + bytes
    if (left < 0 || ofKey > left * KEY_SHARE || ofAddress > left * ADDRESS_SHARE) {
      this.refused++
      return false
    }
    this.#taken += bytes
    this.#byKey.set(key ?? '', ofKey)
    this.#byAddress.set(address, ofAddress)
    return true
  }

  /** Gives bytes back. */
  give({ key, address }: Taker, bytes: number): void {
    this.#taken -= bytes
    lower(this.#byKey, key ?? '', bytes)
    lower(this.#byAddress, address, bytes)
  }
}

function lower(counts: Map<string, number>, name: string, bytes: number): void {
  const left = (counts.get(name) ?? 0) - bytes
  if (left > 0) counts.set(name, left)
  else counts.delete(name)
}

/** What one exchange has taken. */
export class MemoryAccount {
  readonly #budget: MemoryBudget
  readonly #taker: Taker
  #bytes = 0

  constructor(budget: MemoryBudget, taker: Taker) {
    this.#budget = budget
    this.#taker = taker
  }

  /** Takes bytes. @returns false as `MemoryBudget.take` does */
  take(bytes: number, running: boolean): boolean {
    if (!this.#budget.take(this.#taker, bytes, running)) return false
    this.#bytes += bytes
    return true
  }

  /** Gives bytes back, at most as many as were taken. */
  give(bytes: number): void {
    const given = Math.min(bytes, this.#bytes)
    this.#bytes -= given
    if (given > 0) this.#budget.give(this.#taker, given)
  }

  /** The exchange is over. */
  close(): void {
    this.give(this.#bytes)
  }
}

/** How many times the bytes of a reply, or of an event, are in memory: as they come, with room for more, as text, and parsed. */
const REPLY_COPIES = 4

/** Bytes that a value of a reply takes when it is parsed, beside its text. */
const VALUE_BYTES = 128

/** What grows and shrinks within an exchange: bytes of a reply that are kept until more of them have come. */
export class Allowance {
  readonly #account: MemoryAccount
  #bytes = 0
  #values = 0
  #taken = 0

  constructor(account: MemoryAccount) {
    this.#account = account
  }

  /** Takes what further bytes need. @returns false as `MemoryBudget.take` does */
  cover(bytes: Buffer): boolean {
    this.#bytes += bytes.length
    // Every reply has that much of its own.
    if (this.#bytes <= OWN_BYTES) return true
    this.#values += separatorsIn(bytes)
    const more = (this.#bytes - OWN_BYTES) * REPLY_COPIES + this.#values * VALUE_BYTES - this.#taken
    if (!this.#account.take(more, true)) return false
    this.#taken += more
    return true
  }

  /** Gives all of it back. */
  clear(): void {
    this.#account.give(this.#taken)
    this.#bytes = this.#values = this.#taken = 0
  }
}

/** Bytes of a reply that need not be taken. */
const OWN_BYTES = 64 * 1024
