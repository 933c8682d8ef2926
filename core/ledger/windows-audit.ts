/** Compares the windows of plans in the store with the entries of their accounts, and corrects them. */
import { setTimeout } from 'node:timers/promises'
import { planFrom } from '../plans/plan.ts'
import { orUnavailable } from '../records/unavailable.ts'
import type { Ledger } from './ledger.ts'
import { comparedWindows } from './recovery/used-windows.ts'
import { operation, readFields } from './script/names.ts'

/** How often an account that is in use is read again, until nothing is counted meanwhile. */
const TRIES = 50
/** Milliseconds between two of these readings. */
const PAUSE_MS = 20

/** A window whose use differs from its entries. */
export interface WindowsFound {
  /** What differs, each with both numbers. */
  readonly findings: readonly string[]
  /** Corrects the windows. @returns false if they have changed since they were read */
  readonly correct: () => Promise<boolean>
}

/**
 * Compares the windows of an account's plan.
 * @returns undefined if they agree, or if the account was in use all the time
 * @throws GatewayError unavailable
 */
export async function findWindows(ledger: Ledger, account: string): Promise<WindowsFound | undefined> {
  const { reads, scripts, continuity } = ledger
  const key = scripts.keys.of(account).account
  const read = () => orUnavailable(readFields(scripts.redis, key, ['ordinal', 'plan', 'windows']))
  for (let tries = 0; tries < TRIES; tries++) {
    if (tries > 0) await setTimeout(PAUSE_MS)
    const now = continuity.now()
    const { ordinal, plan, windows } = await read()
    if (!plan) return undefined
    const { findings, corrected } = await comparedWindows(
      range => reads.history({ account }, range),
      planFrom(plan),
      windows,
      { now, since: now - ledger.historyMs, last: Number(ordinal) },
    )
    if (findings.length === 0) return undefined
    const after = await read()
    if (after.ordinal !== ordinal || after.plan !== plan) continue
    const correct = async (): Promise<boolean> => {
      const args = { before: windows ?? '', windows: corrected }
      const [answer] = await scripts.run(operation('windows', account, { account: key }, args))
      return answer === 'ok'
    }
    return { findings, correct }
  }
  return undefined
}

/**
 * Corrects the windows of an account's plan.
 * @returns what differed; empty if nothing did
 * @throws GatewayError unavailable
 */
export async function repairWindows(ledger: Ledger, account: string): Promise<readonly string[]> {
  for (let tries = 0; tries < TRIES; tries++) {
    const found = await findWindows(ledger, account)
    if (!found) return []
    if (await found.correct()) return found.findings
  }
  return []
}
