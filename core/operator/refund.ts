/** Refunds what an entry of a history charged. */
import type { Given } from '../ledger/accounts.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { causeOf } from '../records/unavailable.ts'
import { formatCredits } from '../money/credits.ts'
import { type AuditEntry } from '../records/audit-log.ts'
import { RecordsError } from '../records/database.ts'

/** A refund. Amounts are nano-credits. */
export interface Refund {
  readonly key: string
  /** The id of the balance that it went back to, which a key may have left since. */
  readonly account: string
  readonly entry: string
  /** Nothing if the entry was refunded before. */
  readonly given: Given
  readonly balance: bigint
  /** Whether the refund is recorded. Otherwise a running gateway records it as soon as the records answer. */
  readonly recorded: boolean
}

/** Why an entry is refunded, and who does it. */
export interface RefundWish {
  readonly reason: string
  /** Makes the line of the audit log. */
  readonly audit: (account: string, details: Readonly<Record<string, unknown>>) => AuditEntry
  /** Gives back as credits what a plan has paid. */
  readonly asCredits?: boolean | undefined
  /** The id of the key that the entry must belong to. */
  readonly of?: string | undefined
}

/**
 * Refunds an entry, whose id is that of its request. A repeated refund gives nothing.
 * @returns undefined if no key has such an entry; only the owner if another key has it
 * @throws GatewayError unavailable; RangeError if the entry charged nothing, or if its request still runs; WindowsClosed
 */
export async function refund(
  ledger: Ledger,
  id: string,
  { reason, audit, asCredits, of }: RefundWish,
): Promise<Refund | { readonly owner: string } | undefined> {
  // What has just ended is recorded first, so that it is found without its key.
  await ledger.background.archiveAll()
  const entry = await ledger.reads.entry(id)
  if (!entry) return undefined
  const { account, key = account } = entry
  if (of !== undefined && of !== key) return { owner: key }
  const given = await ledger.credit(account, entry, reason, asCredits)
  const details = { entry: id, ...refundView(given), reason }
  if (given.credits + given.plan > 0n) await ledger.records.audit.add(audit(key, details)).catch(() => {})
  // A refund is reported when no failure of the store can undo it.
  const recorded = await ledger.background.archiveAll().then(
    () => true,
    (thrown: unknown) => {
      if (!(causeOf(thrown) instanceof RecordsError)) throw thrown
      return false
    },
  )
  return { key, account, entry: id, given, balance: (await ledger.reads.balance(account)).balance, recorded }
}

/** Returns what a refund gave back: the whole, and how much of it to which purse. Amounts are exact decimals. */
export function refundView({ credits, plan }: Given) {
  return { refunded: formatCredits(credits + plan), credits: formatCredits(credits), plan: formatCredits(plan) }
}
