/** Entries for tests of the records. */
import { timedId } from '../../core/lib/ids.ts'
import type { EndedEntry, Notes } from '../../core/records/entry.ts'

export const DAY_MS = 86_400_000
/** When the entries end. */
export const NOW = Date.UTC(2026, 10, 25, 12)

export const NOTES: Notes = {
  endpoint: '/v1/chat/completions',
  model: 'acme/famC-5.5',
  type: 'famC',
  upstream: 'famC/1',
  stream: true,
  status: 'ok',
  httpStatus: 200,
  usage: { input: 1000, cacheRead: 200, cacheWrite5m: 0, cacheWrite1h: 0, output: 50, reasoning: 10 },
  usageSource: 'upstream',
  price: 'large',
  priceVersion: 'v1',
  cost: '900',
  durationMs: 1234,
  ttftMs: 321,
  requestedModel: 'famC[1m]',
}

/** Returns an entry of an account. */
export function entry(account: string, ordinal: number, more: Partial<EndedEntry> = {}): EndedEntry {
  return {
    id: timedId(NOW + ordinal),
    account,
    ordinal,
    at: NOW,
    kind: 'settle',
    charge: 10n,
    balance: -5n,
    bucket: '497000.3',
    waived: 0n,
    notes: NOTES,
    ...more,
  }
}
