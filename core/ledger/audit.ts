/** The audit: recomputes every account from its own history while the gateway runs. */
import type { Ledger } from './ledger.ts'
import type { Snapshot } from './reads.ts'
import { chargeParts, recomputed } from './entries.ts'
import { historyEntry, type HistoryEntry, fieldMap } from './records.ts'

/** What is wrong with one account. */
export interface Drift {
  readonly account: string
  /** The broken rules, each with both of its sides. */
  readonly findings: readonly string[]
}

/** The result of an audit. */
export interface AuditReport {
  readonly accounts: number
  /** How many of the accounts are quotas of upstream accounts rather than keys. */
  readonly quotas: number
  readonly entries: number
  readonly drifts: readonly Drift[]
  /** For depth `charges`: recomputed charges, and entries without price versions, which cannot be recomputed. */
  readonly repriced: number
  readonly unversioned: number
}

/** The audit first ends expired holds. A hold that expired more than this many milliseconds ago was missed. */
const REAP_GRACE_MS = 60_000

/**
 * How thorough an audit is: `sums` and holds; `whole` adds history and grants; `charges` also recomputes each charge
 * from its prices.
 */
export type Depth = 'sums' | 'whole' | 'charges'

/** Audits the given accounts, or every key and quota, after ending expired holds. @throws GatewayError unavailable */
export async function audit(
  ledger: Ledger,
  accounts?: readonly string[],
  depth: Depth = 'whole',
): Promise<AuditReport> {
  // Holds may have expired since the last reaping, for example while the gateway was down.
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

/** Number of recent requests per account that are checked for a second end. It bounds the audit's memory. */
const COMPARED_MAX = 100_000

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
    if (!holds.has(id)) findings.push(`lease ${id} belongs to no hold`)
    if (Number(now) - Number(end) > REAP_GRACE_MS) findings.push(`hold ${id} has expired and was not reaped`)
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
    // A late entry corrects the reaped entry before it; a credit refers to an entry that has ended.
    if (kind === 'late' || kind === 'credit') continue
    if (ended.has(requestId)) findings.push(`request ${requestId} ended twice`)
    if (ended.size < COMPARED_MAX) ended.add(requestId)
  }
  expect('settled = the sum of the history', sum('set'), settled)
  // A quota is granted per window, without grant entries.
  if (!quota) {
    let granted = 0n
    for await (const [id, raw] of ledger.entries(account, 'g', lastGrant)) granted += historyEntry(id, raw).charge
    expect('granted = the sum of the grants', sum('gra'), granted)
  }
  return { quota, entries, repriced, unversioned, findings }
}

/** Recomputes an entry's charge. Returns what is wrong with it; `unversioned` if the entry names no price version. */
async function reprice(ledger: Ledger, { id, charge, waived, notes }: HistoryEntry): Promise<string | undefined> {
  const parts = chargeParts(notes)
  if (parts.length === 0) return 'unversioned'
  const exact = await recomputed(parts, ledger.prices)
  if (exact === undefined)
    return `entry ${id}: the numbers of its price version (${parts.map(({ price }) => price).join(', ')}) are missing`
  return exact === charge + waived
    ? undefined
    : `entry ${id}: its usage costs ${exact} nano-credits, but ${charge + waived} were charged`
}
