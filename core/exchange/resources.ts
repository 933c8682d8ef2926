/** What one exchange takes from the process: memory, and a slot among the requests that are served. */
import type { IncomingMessage } from 'node:http'
import type { Limits } from '../config/config.ts'
import { GatewayError, soonMs } from '../errors.ts'
import { Reservation, type FairBudget, type Taker } from '../lib/fair-budget.ts'
import type { ClientConnection } from '../client/connections.ts'
import { beyondMemory, FOR_REQUESTS, shortOfMemory } from '../client/memory.ts'
import { discarded } from '../client/read-body.ts'

/** What the server knows about a request before its exchange begins. */
export interface RequestSetup {
  readonly id: string
  readonly limits: Limits
  readonly connection: Pick<ClientConnection, 'clientOf' | 'group'>
}

/** What all exchanges of a process share. */
export interface ServerResources {
  /** Milliseconds since the epoch. */
  readonly now: () => number
  /** Bytes for the requests and replies in flight. */
  readonly memory: FairBudget
  /** Slots for requests with a body. */
  readonly slots: FairBudget
  /**
   * The number of request bodies that are being discarded, because their requests were answered before they were read.
   */
  discardedBodies: number
}

/** What one exchange has taken. It is given back by `close`. */
export class ExchangeResources {
  readonly #server: ServerResources
  readonly #taker: () => Taker
  #memory: Reservation | undefined
  #slot: Taker | undefined
  #whenClosed: Set<() => void> | undefined

  /** @param taker returns the key and the address to count for, when the exchange first takes something */
  constructor(server: ServerResources, taker: () => Taker) {
    this.#server = server
    this.#taker = taker
  }

  /** The memory that the exchange has taken. */
  get memory(): Reservation {
    return (this.#memory ??= new Reservation(this.#server.memory, this.#taker()))
  }

  /**
   * Takes memory for the request.
   * @throws GatewayError unavailable if there is too little left for this key; body_too_large if one key could never
   * have that much
   */
  reserve(bytes: number): void {
    if (this.memory.take(bytes, FOR_REQUESTS)) return
    const needed = this.memory.amount + bytes
    const most = this.#server.memory.most(FOR_REQUESTS)
    throw needed > most ? beyondMemory(needed, most) : shortOfMemory()
  }

  /** Takes a slot, once. @throws GatewayError rate_limited if the key has too many requests under way */
  takeSlot(): void {
    if (this.#slot) return
    const taker = this.#taker()
    if (!this.#server.slots.take(taker, 1, 1)) {
      const message = 'This key has too many running requests.'
      throw new GatewayError('rate_limited', { message, retryAfterMs: soonMs() })
    }
    this.#slot = taker
  }

  /**
   * Discards the rest of an unwanted body, within limits: a client that is still sending would not see its answer
   * otherwise.
   */
  async discard(req: IncomingMessage, { unreadBytes, unreadMs, unreadBodies }: Limits): Promise<void> {
    if (this.#server.discardedBodies >= unreadBodies) return
    this.#server.discardedBodies++
    await discarded(req, unreadBytes, unreadMs)
    this.#server.discardedBodies--
  }

  /** Calls back when it is given back. @returns a function that cancels the call */
  whenClosed(callback: () => void): () => void {
    const callbacks = (this.#whenClosed ??= new Set())
    callbacks.add(callback)
    return () => void callbacks.delete(callback)
  }

  /** Gives everything back: the exchange is over. @param failed gets what a callback throws */
  close(failed: (cause: unknown) => void): void {
    this.#memory?.close()
    for (const callback of this.#whenClosed ?? []) {
      try {
        callback()
      } catch (cause) {
        failed(cause)
      }
    }
    if (this.#slot) this.#server.slots.give(this.#slot, 1)
  }
}
