/** The audit: recomputes what every account must hold from its own history, while the gateway runs. */
import type { Ledger } from './ledger.ts'
import type { Snapshot } from './reads.ts'
import { chargeParts, recomputed } from './entries.ts'
import { historyEntry, type HistoryEntry, fieldMap } from './records.ts'

/** What was found wrong with one account. */
export interface Drift {
  readonly account: string
  /** Which rule is broken, with both sides of it. */
  readonly findings: readonly string[]
}

export interface AuditReport {
  readonly accounts: number
  /** How many of the accounts are an upstream's quota, not a key. */
  readonly quotas: number
  readonly entries: number
  readonly drifts: readonly Drift[]
  /** Of an audit that recomputes: charges that were, and entries from before prices had versions, which cannot be. */
  readonly repriced: number
  readonly unversioned: number
}

/** Holds that ran out are ended before an audit; one that ran out so many milliseconds ago was overlooked. */
const REAP_GRACE_MS = 60_000

/** How much of an account is looked at: its sums and holds; its history and grants as well; and each charge, from the prices it was made at. */
export type Depth = 'sums' | 'whole' | 'charges'

/** Audits the accounts given, or every key and every quota there is, once the holds that nobody renews are ended. @throws GatewayError unavailable */
export async function audit(
  ledger: Ledger,
  accounts?: readonly string[],
  depth: Depth = 'whole',
): Promise<AuditReport> {
  // Since a hold ran out nobody may have come by: the gateway is down, or looks seldom.
  await ledger.reapAll()
  const drifts: Drift[] = []
  let entries = 0
  let quotas = 0
  let repriced = 0
  let unversioned = 0
  const all = accounts ?? (await ledger.accounts())
  for (const account of all) {
    const result = await auditAccount(ledger, account, depth)
    entries += result.entries
    repriced += result.repriced
    unversioned += result.unversioned
    if (result.quota) quotas++
    if (result.findings.length > 0) drifts.push({ account, findings: result.findings })
  }
  return { accounts: all.length, quotas, entries, drifts, repriced, unversioned }
}

/** Requests of one account that are compared for a second end: an audit's memory has a bound. */
const COMPARED = 100_000

interface Findings {
  readonly quota: boolean
  readonly entries: number
  readonly repriced: number
  readonly unversioned: number
  readonly findings: readonly string[]
}

async function auditAccount(ledger: Ledger, account: string, depth: Depth): Promise<Findings> {
  if (depth === 'sums') return compare(ledger, account, depth, await ledger.snapshot(account))
  try {
    return await compare(ledger, account, depth, await ledger.snapshot(account, 'whole'))
  } finally {
    await ledger.release(account)
  }
}

async function compare(ledger: Ledger, account: string, depth: Depth, snapshot: Snapshot): Promise<Findings> {
  const [rawAccount, rawHolds, rawLeases, lastEntry, lastGrant, now] = snapshot
  const fields = fieldMap(rawAccount)
  const holds = fieldMap(rawHolds)
  const leases = fieldMap(rawLeases)
  const sum = (name: string): bigint => BigInt(fields.get(name) ?? 0)
  const quota = fields.has('quota')
  const findings: string[] = []
  const expect = (rule: string, left: bigint, right: bigint): void => {
    if (left !== right) findings.push(`${rule}: ${left} is not ${right}`)
  }
  expect('granted = balance + held + settled', sum('gra'), sum('bal') + sum('rsv') + sum('set'))
  let held = 0n
  for (const hold of holds.values()) held += BigInt(hold.split(':')[0] ?? 0)
  expect('held = the sum of all holds', sum('rsv'), held)
  expect('every hold has a lease', BigInt(holds.size), BigInt(leases.size))
  for (const [id, end] of leases) {
    if (!holds.has(id)) findings.push(`lease ${id} has no hold`)
    if (Number(now) - Number(end) > REAP_GRACE_MS) findings.push(`hold ${id} is over its lease and was not reaped`)
  }
  if (depth === 'sums') return { quota, entries: 0, repriced: 0, unversioned: 0, findings }
  let settled = sum('arch')
  let entries = 0
  const ended = new Set<string>()
  let repriced = 0
  let unversioned = 0
  for await (const [id, raw] of ledger.entries(account, 'x', lastEntry)) {
    const entry = historyEntry(id, raw)
    const { kind, requestId, charge, before } = entry
    settled += charge - before
    entries++
    if (depth === 'charges' && kind !== 'credit' && (charge + entry.waived > 0n || entry.notes.usage)) {
      const finding = await reprice(ledger, entry)
      if (finding === 'unversioned') unversioned++
      else {
        repriced++
        if (finding !== undefined) findings.push(finding)
      }
    }
    // A late entry corrects the reaped one before it, and a credit one that has ended.
    if (kind === 'late' || kind === 'credit') continue
    if (ended.has(requestId)) findings.push(`request ${requestId} ended twice`)
    if (ended.size < COMPARED) ended.add(requestId)
  }
  expect('settled = the sum of the history', sum('set'), settled)
  // A quota is granted by its window, not by entries.
  if (!quota) {
    let granted = 0n
    for await (const [id, raw] of ledger.entries(account, 'g', lastGrant)) granted += historyEntry(id, raw).charge
    expect('granted = the sum of the grants', sum('gra'), granted)
  }
  return { quota, entries, repriced, unversioned, findings }
}

/** What is wrong with an entry's charge; `unversioned` where it does not say which price it was made at. */
async function reprice(ledger: Ledger, { id, charge, waived, notes }: HistoryEntry): Promise<string | undefined> {
  const parts = chargeParts(notes)
  if (parts.length === 0) return 'unversioned'
  const exact = await recomputed(parts, ledger.prices)
  if (exact === undefined)
    return `entry ${id}: the numbers of its price (${parts.map(({ price }) => price).join(', ')}) are not kept`
  return exact === charge + waived
    ? undefined
    : `entry ${id}: its usage costs ${exact} nano-credits, and ${charge + waived} were charged`
}
