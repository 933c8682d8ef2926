/** Compares the windows of plans in the store with the entries of their accounts, and corrects them. */
import { setTimeout } from 'node:timers/promises'
import { planFrom } from '../plans/plan.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { PAUSE_MS, TRIES } from './audited-accounts.ts'
import type { Ledger } from './ledger.ts'
import { comparedWindows } from './recovery/used-windows.ts'
import { operation, readFields } from './script/names.ts'

/**
 * Compares the windows of an account's plan with its entries, and corrects them if wanted.
 * @returns what differed, each with both numbers. Empty if nothing did, if there is no plan, or if the account was in use all the time
 * @throws GatewayError unavailable
 */
export async function compareWindows(
  { reads, scripts, continuity, historyMs }: Ledger,
  account: string,
  isRepair: boolean,
): Promise<readonly string[]> {
  const key = scripts.keys.of(account).account
  const read = () => orUnavailable(readFields(scripts.redis, key, ['ordinal', 'plan', 'windows']))
  for (let tries = 0; tries < TRIES; tries++) {
    if (tries > 0) await setTimeout(PAUSE_MS)
    const now = continuity.now()
    const { ordinal, plan, windows } = await read()
    if (!plan) return []
    const { findings, corrected } = await comparedWindows(
      range => reads.history({ account }, range),
      planFrom(plan),
      windows,
      { now, since: now - historyMs, last: Number(ordinal) },
    )
    if (findings.length === 0) return []
    const after = await read()
    if (after.ordinal !== ordinal || after.plan !== plan) continue
    if (!isRepair) return findings
    const args = { before: windows ?? '', windows: corrected }
    const [answer] = await scripts.run(operation('windows', account, { account: key }, args))
    if (answer === 'ok') return findings
  }
  return []
}
