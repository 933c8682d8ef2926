/**
 * The money line of an entry: what it took from which purse, and what it cost. Every surface that shows money reads it here:
 * pages, look-ups, histories, statements, usage, notices and commands. The view `history` says the same in SQL.
 */
import { formatCredits } from '../money/credits.ts'
import { inputTokens } from '../money/usage.ts'
import type { Count, HistoryEntry } from './entry.ts'

/** What may have paid for an exchange. `waived`: an earlier sending of the same request had been charged. `free`: nothing was due. */
export const PAID_FROM = ['credits', 'plan', 'both', 'waived', 'free'] as const
/** One of them. */
export type PaidFrom = (typeof PAID_FROM)[number]

/** What an entry took, in nano-credits. A refund takes negative amounts: it gives them back. */
export interface MoneyLine {
  /** Of the balance. */
  readonly credits: bigint
  /** Of windows of a plan. */
  readonly plan: bigint
  /** What the customer pays: credits and plan. */
  readonly paid: bigint
  /** What is not charged, since an earlier sending of the request was. */
  readonly waived: bigint
  /** The whole price of what was used: paid and waived. */
  readonly price: bigint
  readonly from: PaidFrom
  /** What it costs the operator. Undefined if that is unknown. */
  readonly cost: bigint | undefined
  /** What was paid less that cost. Undefined without a known cost. */
  readonly margin: bigint | undefined
}

/** What is read of an entry. */
export type Paying = Pick<HistoryEntry, 'charge' | 'waived' | 'plan' | 'notes'>

/** Returns the money line of an entry. */
export function moneyLine({ charge: credits, waived, plan: part, notes }: Paying): MoneyLine {
  const plan = part?.covered ?? 0n
  const paid = credits + plan
  const cost = notes.cost === undefined ? undefined : BigInt(notes.cost)
  const from = paidFrom(credits, plan, waived)
  return {
    credits,
    plan,
    paid,
    waived,
    price: paid + waived,
    from,
    cost,
    margin: cost === undefined ? cost : paid - cost,
  }
}

function paidFrom(credits: bigint, plan: bigint, waived: bigint): PaidFrom {
  if (credits !== 0n) return plan === 0n ? 'credits' : 'both'
  if (plan !== 0n) return 'plan'
  return waived === 0n ? 'free' : 'waived'
}

/** Says what an entry took, and from where, such as `0.3 credits of the plan`. Of a refund, it says what that gave back. */
export function paidWords({ credits, plan, waived, from }: MoneyLine): string {
  const [ofBalance, ofPlan] = [credits, plan].map(nano => formatCredits(nano < 0n ? -nano : nano))
  const paid = {
    credits: `${ofBalance} credits`,
    plan: `${ofPlan} credits of the plan`,
    both: `${ofPlan} credits of the plan and ${ofBalance} credits of the balance`,
    waived: 'nothing',
    free: 'nothing',
  }[from]
  return waived === 0n
    ? paid
    : `${paid}; ${formatCredits(waived)} credits were waived, since an earlier sending was charged`
}

/** Whether an entry is an exchange that was charged, or that would have been at another price. */
export function isBilled({ kind }: Pick<HistoryEntry, 'kind'>): boolean {
  return kind !== 'void' && kind !== 'credit'
}

/** What an entry adds to the tokens and credits that customers see as their usage, whichever purse has paid. */
export function counted(entry: Paying & Pick<HistoryEntry, 'kind'>): Omit<Count, 'requests'> {
  const { usage } = entry.notes
  const billed = isBilled(entry)
  return {
    input: billed && usage ? inputTokens(usage) : 0,
    output: billed ? (usage?.output ?? 0) : 0,
    charge: moneyLine(entry).paid,
  }
}
