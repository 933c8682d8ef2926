/** Claimed names: an idempotency key that one process at a time may use, whichever process a resend reaches. */
import { randomUUID } from 'node:crypto'
import { operation } from './script/names.ts'
import type { Scripts } from './script/scripts.ts'
import type { Spender } from './script/store-keys.ts'

/** A name that this process has claimed. */
export interface Claim {
  readonly of: Spender
  readonly name: string
  readonly value: string
}

/** The claims of one process. */
export class Claims {
  readonly #scripts: Scripts
  readonly #leaseMs: number
  readonly #claims = new Set<Claim>()

  /** @param leaseMs how long a claim lasts without a renewal, in milliseconds */
  constructor(scripts: Scripts, leaseMs: number) {
    this.#scripts = scripts
    this.#leaseMs = leaseMs
  }

  /**
   * Claims a name within what a key has. The claim lasts one lease and is renewed until it is kept or released.
   * @param value what the name stands for
   * @returns the claim, or the existing value of the name
   * @throws GatewayError unavailable
   */
  async claim(of: Spender, name: string, value: string): Promise<Claim | string> {
    const claim: Claim = { of, name, value: `${value}.${randomUUID()}` }
    const [kind, taken = ''] = await this.#claim(claim, this.#leaseMs).catch((thrown: unknown) => {
      // The store may have recorded the claim although its answer was lost.
      this.#release(claim).catch(() => {})
      throw thrown
    })
    if (kind === 'taken') return taken.slice(0, taken.indexOf('.'))
    this.#claims.add(claim)
    return claim
  }

  /**
   * Makes a claim permanent for a number of milliseconds, even if this process dies.
   * @throws GatewayError unavailable
   */
  async keep(claim: Claim, ms: number): Promise<void> {
    this.#claims.delete(claim)
    await this.#claim(claim, ms)
  }

  /** Releases a claim. @throws GatewayError unavailable */
  async release(claim: Claim): Promise<void> {
    this.#claims.delete(claim)
    await this.#release(claim)
  }

  /** Renews all claims of this process for another lease. */
  renew(): void {
    // A lease lasts three renewals, so the next renewal may still be in time.
    for (const claim of this.#claims) this.#claim(claim, this.#leaseMs).catch(() => {})
  }

  #claim({ of, name, value }: Claim, ms: number): Promise<readonly string[]> {
    const keys = { claim: this.#scripts.keys.claim(of, name) }
    return this.#scripts.run(operation('claim', of.account, keys, { value, ms }))
  }

  async #release({ of, name, value }: Claim): Promise<void> {
    const keys = { claim: this.#scripts.keys.claim(of, name) }
    await this.#scripts.run(operation('release', of.account, keys, { value }))
  }
}
