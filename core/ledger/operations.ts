/** The operations on holds, with their keys and arguments in the order that the script expects. */
import { type HistoryEntry, reapedCharge } from '../records/entry.ts'
import { notesText } from '../records/notes.ts'
import type { Hold, HoldRequest } from './hold.ts'
import { partMs, ROLLING_PARTS, windowAt } from './quota-windows.ts'
import type { Operation } from './script/scripts.ts'
import type { Settlement } from './settlement.ts'
import { leaseOf, type StoreKeys } from './script/store-keys.ts'

/** What the records know of an exchange: nothing, or that it was reaped, with its charge and the number of that entry. */
export type Verdict = '' | '?' | 'N' | `R${string}:${string}`

/** Returns the verdict of the records on an exchange that they know only as reaped, or not at all. */
export function verdictOf(known: HistoryEntry | undefined): Verdict {
  return known ? `R${String(reapedCharge(known))}:${String(known.ordinal)}` : 'N'
}

/** The settings of the ledger that a settlement needs. */
export interface SettlementLimits {
  readonly retriesMs: number
  readonly waivers: number
  readonly freeEntries: number
}

/** Returns the operation that requests a hold, on a key or on a quota. @param now by the store's clock */
export function holdOperation(
  request: HoldRequest,
  bucket: string,
  { leaseMs, now }: { leaseMs: number; now: number },
  keys: StoreKeys,
): Operation {
  const { account, id, amount, least, version, quota, sharer = '', concurrency = 0, half, notes } = request
  const own = keys.of(account)
  const names = [own.account, keys.hold(account, id), own.leases]
  const wanted = [leaseOf(request, bucket), String(amount), String(least), String(leaseMs)]
  if (quota) {
    const { window } = quota
    const ends = [...wanted, String(quota.amount)]
    const last = [sharer, bucket, notesText(notes)]
    names.push(own.places)
    if ('rollingMs' in window) {
      const args = [...ends, String(partMs(window.rollingMs)), String(ROLLING_PARTS), ...last]
      return { name: 'rolling', account, keys: names, args }
    }
    const { from, until } = windowAt(window, now)
    return { name: 'quota', account, keys: names, args: [...ends, String(from), String(until), ...last] }
  }
  const limits = [version, String(concurrency), half ? '1' : '']
  const args = [...wanted, ...limits, bucket, notesText(notes), String(Math.floor(request.waitedMs ?? 0))]
  return { name: 'hold', account, keys: names, args }
}

/** Returns the operation that extends a hold to an amount. */
export function extendOperation(
  hold: Hold,
  { amount, leaseMs, verdict }: { amount: bigint; leaseMs: number; verdict: Verdict },
  keys: StoreKeys,
): Operation {
  const { account, id, bucket, request } = hold
  const floor = request.floor()
  const own = keys.of(account)
  return {
    name: 'extend',
    account,
    keys: [own.account, keys.hold(account, id), own.leases, keys.outcomes(account, bucket), own.places],
    args: [
      leaseOf(hold, bucket),
      id,
      String(amount),
      String(leaseMs),
      request.rotation ?? '',
      String(floor.charge),
      bucket,
      notesText({ ...request.notes, ...floor.notes }),
      verdict,
    ],
  }
}

/** Returns the operation that renews the lease of a hold. */
export function renewOperation(hold: Hold, leaseMs: number, keys: StoreKeys): Operation {
  const { account, id, bucket, request, abandoned } = hold
  const floor = request.floor()
  const own = keys.of(account)
  return {
    name: 'renew',
    account,
    keys: [own.account, keys.hold(account, id), own.leases, own.places],
    args: [
      leaseOf(hold, bucket),
      id,
      String(floor.charge),
      String(leaseMs),
      request.rotation ?? '',
      abandoned ? '1' : '',
      notesText({ ...request.notes, ...floor.notes }),
    ],
  }
}

/** Returns the operation that settles. */
export function settleOperation(
  settlement: Settlement,
  verdict: Verdict,
  keys: StoreKeys,
  { retriesMs, waivers, freeEntries }: SettlementLimits,
): Operation {
  const { account, id, bucket, charge, kind, notes, attempt } = settlement
  const own = keys.of(account)
  return {
    name: 'settle',
    account,
    keys: [
      own.account,
      keys.hold(account, id),
      own.leases,
      own.stream,
      keys.outcomes(account, bucket),
      own.places,
      // Without a role it is not used, and any key of the shard will do.
      attempt ? keys.attempts(account, attempt.request) : own.account,
    ],
    args: [
      leaseOf(settlement, bucket),
      id,
      account,
      charge,
      kind,
      notes,
      verdict,
      attempt?.part ?? '',
      String(retriesMs),
      String(waivers),
      String(freeEntries),
    ],
  }
}

/** Returns the operation that ends a hold whose lease is over. @param lease its name in the set of leases */
export function reapOperation(lease: string, keys: StoreKeys): Operation {
  const [account = '', id = '', bucket = ''] = lease.split(' ')
  const own = keys.of(account)
  return {
    name: 'reap',
    account,
    keys: [own.account, keys.hold(account, id), own.leases, own.stream, keys.outcomes(account, bucket), own.places],
    args: [lease, id, account],
  }
}
