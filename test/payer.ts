/** A key that pays for requests at the ledger, without a provider. */
import { type Hold, UNBOUNDED } from '../core/ledger/hold.ts'
import { timedId } from '../core/lib/ids.ts'
import { askedOf } from '../core/plans/plan.ts'
import type { Notes } from '../core/records/entry.ts'
import type { TestGateway } from './gateway.ts'

const USAGE = { input: 10, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 5, reasoning: 0 } as never

/** A key that pays for something. */
export class Payer {
  readonly id: string
  readonly secret: string
  readonly account: string
  readonly #g: TestGateway

  constructor(g: TestGateway, key: { readonly id: string; readonly account: string }, secret: string) {
    this.#g = g
    this.id = key.id
    this.account = key.account
    this.secret = secret
  }

  async hold(amount: bigint): Promise<Hold> {
    const { ledger, keys } = this.#g.gateway
    const plan = await keys.plans.of(this.account)
    const key = await keys.refind(this.secret)
    const windows = (now: number): string => (plan ? askedOf(plan, ['m'], new Map(), now) : '')
    const answer = await ledger.hold({
      account: this.account,
      ...(this.id !== this.account && { key: this.id }),
      id: timedId(Date.now()),
      amount,
      least: amount,
      version: key?.version ?? '',
      rotation: key?.rotation,
      bounds: { ...UNBOUNDED, plan, windows, tokens: 1, leastTokens: 1 },
      notes: notes({}),
      floor: () => ({ charge: 0n, notes: {} }),
    })
    if (answer.kind !== 'held') throw new Error(answer.kind)
    return answer.hold
  }

  /** Pays for a request that has ended. @param more of its notes */
  async pay(held: bigint, charge: bigint, more: Partial<Notes> = {}, resend?: 'lost' | 'retry'): Promise<string> {
    const hold = await this.hold(held)
    const part = resend && { request: 'r', part: resend }
    this.#g.gateway.ledger.settle(hold, { charge, tokens: 1, kind: 'settle', notes: notes(more), resend: part })
    await this.#g.gateway.ledger.scripts.answered()
    return hold.id
  }
}

/** The notes of a request that was served. */
export const notes = (more: Partial<Notes>): Notes => ({
  endpoint: '/v1/chat/completions',
  model: 'acme/famC-5.5',
  stream: false,
  type: 'famC',
  upstream: 'famC/main',
  status: 'ok',
  httpStatus: 200,
  usage: USAGE,
  usageSource: 'upstream',
  ...more,
})
