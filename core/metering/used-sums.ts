/** What replies have used and were charged since the start of the process, for metrics. */
import type { Usage } from '../money/usage.ts'

/** Whose usage it is, and who served it. */
export interface UsedBy {
  readonly type: string
  readonly model: string
  /** The account of the upstream. */
  readonly account: string
}

/** The sums of one key type, model and account. Amounts are nano-credits. */
export interface UsedSum extends UsedBy {
  readonly tokens: Record<string, number>
  charge: bigint
  /** Of the charge, what has no known cost. */
  withoutCost: bigint
  cost: bigint
}

/** Adds up what replies have used. */
export class UsedSums {
  readonly #sums = new Map<string, UsedSum>()

  /** Adds what a reply used. @param cost what it cost the operator, if known */
  note({ type, model, account }: UsedBy, usage: Usage, charge: bigint, cost: bigint | undefined): void {
    const name = `${type} ${account} ${model}`
    let sum = this.#sums.get(name)
    if (!sum) this.#sums.set(name, (sum = { type, model, account, tokens: {}, charge: 0n, withoutCost: 0n, cost: 0n }))
    for (const [each, count] of Object.entries(usage)) sum.tokens[each] = (sum.tokens[each] ?? 0) + (count as number)
    sum.charge += charge
    if (cost === undefined) sum.withoutCost += charge
    else sum.cost += cost
  }

  get all(): Iterable<UsedSum> {
    return this.#sums.values()
  }
}
