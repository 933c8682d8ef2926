/** A second connection to the store, for what must not be in the way of the first. */
import type { Redis } from 'ioredis'

/** A connection beside a store's first. It is made anew whenever the first is: another server may have taken over. */
export class Second {
  readonly #first: Redis
  readonly #connect: () => Promise<Redis>
  /** While there is no other, the first serves. */
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
      // The next connection of the first brings the next try.
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
