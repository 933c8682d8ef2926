/** The memory that requests and replies in flight may take, in bytes. */
import { getHeapStatistics } from 'node:v8'
import { GatewayError, soonMs } from '../errors.ts'
import { separatorsIn } from '../lib/json/bytes.ts'
import type { Share } from '../lib/shares.ts'

/** The part of the heap, or of what the container has, that is the budget where the file does not say. */
const SHARE = 1 / 2

/**
 * The budget of one process: its share of what the file says; where that says nothing, half of its heap's limit, or half of its share
 * of the container's or the machine's memory if that is less.
 * @param configured bytes of all processes
 * @param workers processes that share the machine
 * @param memoryBytes what the machine, or the container, has
 * @returns bytes
 */
export function budgetOf(configured: number | undefined, workers: number, memoryBytes: number): number {
  if (configured !== undefined) return Math.floor(configured / workers)
  return Math.floor(SHARE * Math.min(getHeapStatistics().heap_size_limit, memoryBytes / workers))
}

/** The part of it that requests may fill; what is left is for the replies of those that run. */
export const FOR_REQUESTS = 3 / 4

/** How many times the bytes of a request are in memory while it runs: as they came, and as they are sent. */
export const BODY_COPIES = 2

/** Bytes of a request that need not be taken: each connection has that much of its own. */
export const OWN_BODY_BYTES = 8 * 1024

/** The part of the heap that connections may take, and the bytes that one takes whose client sends as long a head as it may. */
const FOR_CONNECTIONS = 1 / 4
const CONNECTION_BYTES = 32 * 1024
const CONNECTIONS_BY_HEAP = Math.floor((getHeapStatistics().heap_size_limit * FOR_CONNECTIONS) / CONNECTION_BYTES)

/** How many connections of clients there may be: as many as the file says, or as the heap has room for. */
export function connectionsMax(configured: number): number {
  return Math.min(configured, CONNECTIONS_BY_HEAP)
}

/** The error for a request or a reply for which there is no memory. */
export function shortOfMemory(): GatewayError {
  return new GatewayError('unavailable', {
    message: 'The gateway is short of memory. Try again.',
    retryAfterMs: soonMs(),
  })
}

/** The error for a request that one key could not have served even if it were alone. */
export function beyondMemory(bytes: number, most: number): GatewayError {
  const [needs, has] = [bytes, most].map(each => `${Math.ceil(each / 2 ** 20)} MiB`)
  return new GatewayError('body_too_large', {
    message: `This request needs ${needs} of the gateway's memory, and there are ${has} for one request. Send less.`,
  })
}

/** How many times the bytes of a reply, or of an event, are in memory: as they come, with room for more, as text, and parsed. */
const REPLY_COPIES = 4
/** Bytes that a value of a reply takes when it is parsed, beside its text. */
const VALUE_BYTES = 128

/** What grows and shrinks within an exchange: bytes of a reply that are kept until more of them have come. */
export class Allowance {
  readonly #memory: Share
  #bytes = 0
  #values = 0
  #taken = 0

  constructor(memory: Share) {
    this.#memory = memory
  }

  /** Takes what further bytes need. @returns false as `Shares.take` does */
  cover(bytes: Buffer): boolean {
    this.#bytes += bytes.length
    // Every reply has that much of its own.
    if (this.#bytes <= OWN_BYTES) return true
    this.#values += separatorsIn(bytes)
    const more = (this.#bytes - OWN_BYTES) * REPLY_COPIES + this.#values * VALUE_BYTES - this.#taken
    if (!this.#memory.take(more)) return false
    this.#taken += more
    return true
  }

  /** At most so many JSON values are in it, beyond the first bytes. */
  get values(): number {
    return this.#values
  }

  /** Gives all of it back. */
  clear(): void {
    this.#memory.give(this.#taken)
    this.#bytes = this.#values = this.#taken = 0
  }
}

/** Bytes of a reply that need not be taken. */
const OWN_BYTES = 64 * 1024
