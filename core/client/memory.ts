/** The memory that requests and replies in flight may take. */
import { getHeapStatistics } from 'node:v8'
import { GatewayError, soonMs } from '../errors.ts'
import { separatorsIn } from '../lib/json/bytes.ts'
import type { Reservation } from '../lib/fair-budget.ts'

/** The fraction of the heap, or of the container's memory, that is the budget by default. */
const BUDGET_FRACTION = 1 / 2

/**
 * The budget of one process: its part of `limits.memory`. By default, half of the heap limit, or half of its part of
 * the machine's memory if that is less.
 * @param configured bytes for all processes
 * @param workers processes that share the machine
 * @param memoryBytes memory of the machine, or of the container
 * @returns bytes
 */
export function budgetOf(configured: number | undefined, workers: number, memoryBytes: number): number {
  if (configured !== undefined) return Math.floor(configured / workers)
  return Math.floor(BUDGET_FRACTION * Math.min(getHeapStatistics().heap_size_limit, memoryBytes / workers))
}

/** The part of the budget for requests. The rest is for the replies to them. */
export const FOR_REQUESTS = 3 / 4

/** How many copies of a request are in memory: as it arrived, and as it is sent. */
export const BODY_COPIES = 2

/** Bytes of a request body that do not count towards the budget. */
export const UNCOUNTED_BODY_BYTES = 8 * 1024

/** The fraction of the heap for connections. */
const FOR_CONNECTIONS = 1 / 4
/** Bytes of a connection whose request has a head of the maximum size. */
const CONNECTION_BYTES = 32 * 1024
const CONNECTIONS_BY_HEAP = Math.floor((getHeapStatistics().heap_size_limit * FOR_CONNECTIONS) / CONNECTION_BYTES)

/** File descriptors of each connection: its own, and one to an upstream. */
const DESCRIPTORS = 2
/** File descriptors that remain for the listening sockets, the store, the database, the outbox and the log. */
const OTHER_DESCRIPTORS = 80

/**
 * Returns the most connections of clients: as many as the file allows, the heap has room for, and the process has file
 * descriptors for.
 * @param openFiles most file descriptors of the process
 */
export function connectionsMax(configured: number, openFiles: number): number {
  return Math.min(configured, CONNECTIONS_BY_HEAP, connectionsByFiles(openFiles))
}

/** Returns why there may be fewer connections than the file allows, in words. Undefined if there may not. */
export function whyFewerConnections(configured: number, openFiles: number): string | undefined {
  const most = connectionsMax(configured, openFiles)
  if (most === configured) return undefined
  const [wanted, files] = [configured, openFiles].map(number => number.toLocaleString('en'))
  if (most === CONNECTIONS_BY_HEAP) return `the heap has no room for ${wanted}`
  return `${files} open files are too few for ${wanted}; raise \`ulimit -n\` or LimitNOFILE`
}

function connectionsByFiles(openFiles: number): number {
  return Math.max(1, Math.floor((openFiles - OTHER_DESCRIPTORS) / DESCRIPTORS))
}

/** The error if there is too little memory at the moment. */
export function shortOfMemory(): GatewayError {
  return new GatewayError('unavailable', {
    message: 'The gateway is short of memory. Try again.',
    retryAfterMs: soonMs(),
  })
}

/** The error for a request for which one key could never have enough memory. */
export function beyondMemory(bytes: number, most: number): GatewayError {
  const [needed, allowed] = [bytes, most].map(each => `${Math.ceil(each / 2 ** 20)} MiB`)
  return new GatewayError('body_too_large', {
    message: `This request needs ${needed} of the gateway's memory, but one request may use at most ${allowed}. Send a smaller request.`,
  })
}

/** How many copies of a reply, or of an event, are in memory: as it arrives, with spare room, as text, and parsed. */
const REPLY_COPIES = 4
/** Bytes of a parsed value, in addition to its text. */
const VALUE_BYTES = 128

/** The memory that one reply takes while its bytes are buffered. */
export class Allowance {
  readonly #memory: Reservation
  #bytes = 0
  #values = 0
  #taken = 0

  constructor(memory: Reservation) {
    this.#memory = memory
  }

  /** Takes the memory for further bytes. @returns false if too little is left */
  cover(bytes: Buffer): boolean {
    this.#bytes += bytes.length
    // The first bytes do not count.
    if (this.#bytes <= UNCOUNTED_REPLY_BYTES) return true
    this.#values += separatorsIn(bytes)
    const more = (this.#bytes - UNCOUNTED_REPLY_BYTES) * REPLY_COPIES + this.#values * VALUE_BYTES - this.#taken
    if (!this.#memory.take(more)) return false
    this.#taken += more
    return true
  }

  /** An upper bound for the number of JSON values in the bytes that count. */
  get values(): number {
    return this.#values
  }

  /** Gives all memory back. */
  clear(): void {
    this.#memory.give(this.#taken)
    this.#bytes = this.#values = this.#taken = 0
  }
}

/** Bytes of a reply that do not count towards the budget. */
const UNCOUNTED_REPLY_BYTES = 64 * 1024
