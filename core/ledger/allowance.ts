/** What a key may use. */
import type { Balance } from '../records/entry.ts'
import type { Part } from './script/parts.ts'

/** What limits a key: the balance that it spends from, and its cap. */
export interface Limits {
  readonly account: Balance
  /** In nano-credits. Undefined for none. */
  readonly cap: bigint | undefined
  /** What the key was charged on balances from which it was moved away, in nano-credits. */
  readonly elsewhere?: bigint | undefined
  /** What the key has of the account, if several keys share that. */
  readonly part: Part | undefined
  /** The windows of its plan, as the script writes them. */
  readonly windows?: string | null
  /** The windows and the rates of the key itself. */
  readonly ofKey?: { readonly windows: string | null; readonly rates: string | null }
}

/**
 * Returns what a key may use, what is left of it, and what it has used and holds: of its balance, or of its cap if it has one.
 * Less is left of a cap than its difference to what was used if the balance has less.
 */
export function allowanceOf({ account, cap, part, elsewhere = 0n }: Limits): Balance {
  if (cap === undefined) return account
  const { charged, held } = part ?? { charged: account.settled, held: account.held }
  const settled = charged + elsewhere
  const left = cap - settled - held
  return { granted: cap, balance: left < account.balance ? left : account.balance, held, settled }
}
