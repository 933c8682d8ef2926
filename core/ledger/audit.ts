/** The audit: recomputes what every account must hold from its own history, while the gateway runs. */
import type { Ledger } from './ledger.ts'
import { historyEntry, pairs } from './records.ts'
import { stored } from './scripts.ts'

/** What was found wrong with one account. */
export interface Drift {
  readonly account: string
  /** Which rule is broken, with both sides of it. */
  readonly findings: readonly string[]
}

export interface AuditReport {
  readonly accounts: number
  readonly entries: number
  readonly drifts: readonly Drift[]
}

/** History entries read at a time: an audit never asks the store for more. */
const PAGE = 1000
/** A hold may outlive its lease until the reaper comes by; after this many milliseconds nobody came. */
const REAP_GRACE_MS = 60_000

/** Audits the accounts given, or every key and every quota there is. @throws GatewayError unavailable */
export async function audit(ledger: Ledger, accounts?: readonly string[]): Promise<AuditReport> {
  const drifts: Drift[] = []
  let entries = 0
  const all = accounts ?? (await everyAccount(ledger))
  for (const account of all) {
    const result = await auditAccount(ledger, account)
    entries += result.entries
    if (result.findings.length > 0) drifts.push({ account, findings: result.findings })
  }
  return { accounts: all.length, entries, drifts }
}

async function everyAccount(ledger: Ledger): Promise<string[]> {
  const { scripts } = ledger
  const keys = await stored(scripts.redis.smembers(scripts.shared('accounts')))
  const open = await stored(scripts.redis.zrange(scripts.shared('open'), '0', '-1'))
  return [...new Set([...keys, ...open])]
}

type Snapshot = [account: string[], holds: string[], leases: string[], lastEntry: string, lastGrant: string, now: string]

async function auditAccount(ledger: Ledger, account: string): Promise<{ entries: number; findings: string[] }> {
  const [rawAccount, rawHolds, rawLeases, lastEntry, lastGrant, now] = (await ledger.scripts.run('snapshot', account, '', [])) as Snapshot
  const fields = pairs(rawAccount)
  const holds = pairs(rawHolds)
  const leases = pairs(rawLeases)
  const sum = (name: string): bigint => BigInt(fields.get(name) ?? 0)
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
  const history = await sumStream(ledger, ledger.scripts.key(account, 'x'), lastEntry)
  expect('settled = the sum of the history', sum('set'), history.sum)
  // A quota is granted by its window, not by entries.
  if (!fields.has('quota')) {
    const grants = await sumStream(ledger, ledger.scripts.key(account, 'g'), lastGrant)
    expect('granted = the sum of the grants', sum('gra'), grants.sum)
  }
  return { entries: history.entries, findings }
}

/** Charges minus what was charged before, over a stream's entries up to the one that was the last in the snapshot. */
async function sumStream(ledger: Ledger, key: string, last: string): Promise<{ sum: bigint; entries: number }> {
  let sum = 0n
  let entries = 0
  let from = '-'
  for (;;) {
    const rows = await stored(ledger.scripts.redis.xrange(key, from, last, 'COUNT', PAGE))
    for (const [id, fields] of rows) {
      const { charge, before } = historyEntry(id, fields)
      sum += charge - before
      entries++
      from = `(${id}`
    }
    if (rows.length < PAGE) return { sum, entries }
  }
}
