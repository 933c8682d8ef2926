/** Plans in the past. */
import { writePlan } from '../core/records/account-rows.ts'
import type { TestGateway } from './gateway.ts'

/** Moves the purchase of a plan into the past. Nothing is used of its windows then. */
export async function boughtEarlier(
  { gateway: { ledger } }: TestGateway,
  account: string,
  byMs: number,
): Promise<void> {
  const { records, restorer } = ledger
  const { plan = '' } = (await records.accounts.get(account)) ?? {}
  const { at, version, ...rest } = JSON.parse(plan) as { readonly at: number; readonly version: number }
  const text = JSON.stringify({ ...rest, version: version + 1, at: at - byMs })
  await records.database.transaction(sql => writePlan(sql, account, text))
  const recorded = await records.accounts.get(account)
  if (recorded) await restorer.restoreAccount(recorded)
}
