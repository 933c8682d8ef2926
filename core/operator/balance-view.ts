/** A balance as operators see it. */
import { isoTime } from '../lib/iso-time.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { formatCredits } from '../money/credits.ts'
import type { Metadata, RecordedAccount } from '../records/account-rows.ts'
import { type PlanView, planView } from './plan-view.ts'
import { orUnavailable } from '../records/unavailable.ts'

/** A balance. Amounts are exact decimals, times are ISO 8601. */
export interface BalanceView {
  readonly id: string
  readonly name: string
  readonly external_id: string
  /** The number of keys that spend from it, and are not deleted. */
  readonly keys: number
  readonly granted: string
  readonly balance: string
  readonly held: string
  readonly used: string
  readonly created_at: string | null
  /** When its latest recorded request ended. */
  readonly last_used_at: string | null
  readonly metadata: Metadata
  /** Null without one. */
  readonly plan: PlanView | null
}

/**
 * Returns balances as of now. Of one that the store does not know, they are what the records know.
 * @throws GatewayError unavailable
 */
export async function balanceViews(ledger: Ledger, accounts: readonly RecordedAccount[]): Promise<BalanceView[]> {
  const keys = await orUnavailable(ledger.records.accounts.countKeys(accounts.map(({ id }) => id)))
  return Promise.all(
    accounts.map(async account => {
      const { id, name, externalId, createdAt, endedAt, metadata } = account
      const inStore = ledger.continuity.open ? await ledger.reads.knownBalance(id) : undefined
      const { granted, settled } = account
      const recorded = { granted, settled, balance: granted - settled, held: 0n }
      const sums = inStore ?? recorded
      return {
        id,
        name,
        external_id: externalId,
        keys: keys.get(id) ?? 0,
        granted: formatCredits(sums.granted),
        balance: formatCredits(sums.balance),
        held: formatCredits(sums.held),
        used: formatCredits(sums.settled),
        created_at: isoTime(createdAt),
        last_used_at: isoTime(endedAt || undefined),
        metadata,
        plan: planView({ plan: account.plan, windows: inStore?.windows }, ledger.continuity.now()),
      }
    }),
  )
}
