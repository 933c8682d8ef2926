/** The operations on holds, with their keys and arguments in the order that the script expects. */
import { type HistoryEntry, reapedParts } from '../records/entry.ts'
import { notesText } from '../records/notes.ts'
import { type Hold, type HoldRequest, NO_CLAIMS, UNBOUNDED } from './hold.ts'
import { quotaAsked } from './quotas.ts'
import { type Operation, operation } from './script/names.ts'
import type { Settlement } from './settlement.ts'
import { leaseName, ownerOf, type StoreKeys } from './script/store-keys.ts'

/** What the records know of an exchange: nothing, or that it was reaped, with its charge, the number of that entry and its time. */
export type Verdict = '' | '?' | 'N' | `R${string}:${number}:${number}`

/** Returns the verdict of the records on an exchange that they know only as reaped, or not at all. */
export function verdictOf(known: HistoryEntry | undefined): Verdict {
  return known ? `R${reapedParts(known)}:${known.ordinal}:${known.at}` : 'N'
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
  const { account, id, amount, least, version, quota, sharer = '', concurrency = 0, half = false } = request
  const { account: own, leases, shares } = keys.of(account)
  const names = { account: own, hold: keys.hold(account, id), leases }
  const wanted = { lease: leaseName(request, bucket), amount, least, leaseMs, bucket, notes: notesText(request.notes) }
  if (!quota) {
    const waitedMs = Math.floor(request.waitedMs ?? 0)
    const ofKey = { ...names, record: keys.record(request), slots: keys.slots(request) }
    const { plan, credits, cap = '', rates, tokens, leastTokens, ...bounds } = request.bounds ?? UNBOUNDED
    const windows = { windows: bounds.windows(now), keyWindows: bounds.keyWindows(now) }
    const limits = { planVersion: plan ? String(plan.version) : '', credits, typeCap: cap, rates, tokens, leastTokens }
    const args = { ...wanted, ...windows, ...limits, owner: ownerOf(request), version, concurrency, half, waitedMs }
    return operation('hold', account, ofKey, args)
  }
  return operation('quota', account, { ...names, shares }, { ...wanted, windows: quotaAsked(quota, now), sharer })
}

/** What a hold is extended to. */
interface Extension {
  readonly amount: bigint
  readonly leaseMs: number
  readonly verdict: Verdict
  /** By the store's clock. Only holds with windows need it. */
  readonly now?: number
  /** Whether it needs room in the day of its key, if that is limited. */
  readonly countsDay?: boolean
}

/** Returns the operation that extends a hold to an amount. */
export function extendOperation(
  hold: Hold,
  { amount, leaseMs, verdict, now = 0, countsDay = true }: Extension,
  keys: StoreKeys,
): Operation {
  const { account, id, bucket, request } = hold
  const { charge, notes } = request.floor()
  const { account: own, leases } = keys.of(account)
  const outcomes = keys.outcomes(account, bucket)
  const names = {
    account: own,
    record: keys.record(hold),
    hold: keys.hold(account, id),
    leases,
    outcomes,
    slotsOrShares: keys.slots(hold),
  }
  return operation('extend', account, names, {
    lease: leaseName(hold, bucket),
    owner: ownerOf(hold),
    id,
    amount,
    leaseMs,
    rotation: request.rotation ?? '',
    floor: charge,
    bucket,
    notes: notesText({ ...request.notes, ...notes }),
    verdict,
    windows: request.bounds?.windows(now, true) ?? '',
    keyWindows: (countsDay && request.bounds?.keyWindows(now)) || '',
    typeCap: request.bounds?.cap ?? '',
    tokens: hold.tokens,
    claims: hold.claims,
  })
}

/** Returns the operation that renews the lease of a hold. */
export function renewOperation(hold: Hold, leaseMs: number, keys: StoreKeys): Operation {
  const { account, id, bucket, request, abandoned } = hold
  const { charge, notes, tokens = 0 } = request.floor()
  const { leases } = keys.of(account)
  const names = { record: keys.record(hold), hold: keys.hold(account, id), leases, slots: keys.slots(hold) }
  return operation('renew', account, names, {
    lease: leaseName(hold, bucket),
    id,
    floor: charge,
    leaseMs,
    rotation: request.rotation ?? '',
    abandoned,
    notes: notesText({ ...request.notes, ...notes }),
    tokens,
  })
}

/** Returns the operation that settles. */
export function settleOperation(
  settlement: Settlement,
  verdict: Verdict,
  keys: StoreKeys,
  { retriesMs, waivers, freeEntries }: SettlementLimits,
): Operation {
  const { account, id, bucket, charge, kind, notes, attempt: resend, tokens = 0, claims = NO_CLAIMS } = settlement
  const { account: own, leases, stream } = keys.of(account)
  const names = {
    account: own,
    hold: keys.hold(account, id),
    leases,
    stream,
    outcomes: keys.outcomes(account, bucket),
    slotsOrShares: keys.slots(settlement),
    // Without a part it is not used, and any key of the shard will do.
    resends: resend ? keys.resends(settlement, resend.request) : own,
  }
  return operation('settle', account, names, {
    lease: leaseName(settlement, bucket),
    owner: ownerOf(settlement),
    id,
    name: account,
    charge,
    kind,
    notes,
    verdict,
    part: resend?.part ?? '',
    resendsMs: retriesMs,
    waiversMax: waivers,
    freeEntriesMax: freeEntries,
    tokens,
    claims,
  })
}

/** Returns the operation that ends a hold whose lease is over. @param lease its name in the set of leases */
export function reapOperation(lease: string, keys: StoreKeys): Operation {
  const [account = '', id = '', bucket = ''] = lease.split(' ')
  const { account: own, leases, stream, slots } = keys.of(account)
  const outcomes = keys.outcomes(account, bucket)
  const names = { account: own, hold: keys.hold(account, id), leases, stream, outcomes, slotsOrShares: slots }
  return operation('reap', account, names, { lease, id, name: account })
}
