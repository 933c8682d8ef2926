/** A second connection to the store, for commands that must not delay those of the first. */
import type { Redis } from 'ioredis'

/**
 * A connection beside a store's first. It reconnects whenever the first does, since another server may have taken over.
 */
export class Second {
  readonly #first: Redis
  readonly #connect: () => Promise<Redis>
  /** The first connection serves until there is a second. */
  #current: Redis
  #over = false

  constructor(first: Redis, connected: () => Promise<Redis>) {
    this.#first = first
    this.#current = first
    this.#connect = connected
  }

  readonly open = async (): Promise<() => Redis> => {
    this.#current = await this.#connect()
    this.#first.on('ready', () => this.#renew())
    return () => this.#current
  }

  #renew(): void {
    this.#drop()
    this.#connect().then(
      fresh => {
        this.#drop()
        this.#current = fresh
        if (this.#over) this.#drop()
      },
      // The next reconnection of the first brings the next attempt.
      () => {},
    )
  }

  close(): void {
    this.#over = true
    this.#drop()
  }

  #drop(): void {
    if (this.#current !== this.#first) this.#current.disconnect()
    this.#current = this.#first
  }
}
