/** The ledger's records, parsed from the store's representation. */
import type { Usage } from '../money/usage.ts'
import type { Conditions } from '../money/price.ts'

/** The possible ends of an exchange. */
export const STATUSES = ['ok', 'failed', 'client_gone', 'broken', 'budget', 'disabled'] as const

/** One part of a charge: a usage, its price version, and the conditions that applied. */
export interface ChargePart {
  readonly usage: Usage
  readonly price: string
  readonly conditions?: Conditions
  /** The upstream's name of the model, if it differs from the requested one. */
  readonly model?: string
}

/** What a history entry records besides its amounts. */
export interface Notes {
  readonly requestId: string
  readonly endpoint: string
  readonly model: string
  readonly stream: boolean
  readonly requestedModel?: string
  readonly status?: (typeof STATUSES)[number]
  readonly httpStatus?: number
  readonly errorCode?: string
  readonly usage?: Usage
  readonly usageSource?: 'upstream' | 'estimated'
  readonly quarantined?: boolean
  /** The price's name, the version of its numbers, and the conditions of the charge. */
  readonly price?: string
  readonly priceVersion?: string
  readonly conditions?: Conditions
  /** The parts of the charge, if there are several or one is for another model. */
  readonly parts?: readonly ChargePart[]
  /** The used items that have no price. */
  readonly unpriced?: readonly string[]
  /** What the request costs the operator, in nano-credits. Never shown to customers. */
  readonly cost?: string
  readonly durationMs?: number
  readonly ttftMs?: number
  /** For a credit: the refunded entry, and the reason. */
  readonly entry?: string
  readonly reason?: string
}

/** One entry of an account's history. */
export interface HistoryEntry {
  /** Sorts by time and serves as a cursor. */
  readonly id: string
  readonly at: number
  readonly kind: 'settle' | 'void' | 'reaped' | 'late' | 'orphan' | 'grant' | 'credit'
  readonly requestId: string
  /** The charge or grant in nano-credits. */
  readonly charge: bigint
  /** For a late entry: the earlier charge. For a credit: the refund. */
  readonly before: bigint
  readonly balance: bigint
  /** Nano-credits that an earlier attempt at the same request was already charged. */
  readonly waived: bigint
  readonly notes: Partial<Notes>
}

/** An account's sums in nano-credits. Always granted = balance + held + settled. */
export interface Balance {
  readonly granted: bigint
  readonly balance: bigint
  readonly held: bigint
  readonly settled: bigint
}

/** Counters of requests, tokens and nano-credits. */
export interface Count {
  readonly requests: number
  readonly input: number
  readonly output: number
  readonly cost: bigint
}

/** Counters in total, by UTC day (days since the epoch) and by model. */
export interface Summary {
  readonly total: Count
  readonly days: ReadonlyMap<number, Count>
  readonly models: ReadonlyMap<string, Count>
  /** Requests whose reported usage was implausible. */
  readonly quarantined: number
  /** Requests without a charge and without an entry, since there were too many in a minute. */
  readonly unlisted: number
}

/** Converts the store's alternating list of names and values to a map. */
export function fieldMap(flat: readonly string[]): Map<string, string> {
  const map = new Map<string, string>()
  for (let at = 0; at < flat.length; at += 2) map.set(flat[at] ?? '', flat[at + 1] ?? '')
  return map
}

/** Parses an entry of a history stream. */
export function historyEntry(id: string, fields: readonly string[]): HistoryEntry {
  const named = fieldMap(fields)
  const of = (name: string): string => named.get(name) ?? ''
  return {
    id,
    at: Number(id.split('-')[0]),
    kind: of('k') as HistoryEntry['kind'],
    requestId: of('id'),
    charge: BigInt(of('c')),
    before: BigInt(of('p')),
    balance: BigInt(of('b')),
    waived: BigInt(of('w')),
    notes: JSON.parse(of('m') || '{}') as Partial<Notes>,
  }
}

/** Parses the hash of an account's counters. */
export function summary(raw: Readonly<Record<string, string>>): Summary {
  const scopes = new Map<string, Record<string, string>>()
  for (const [field, value] of Object.entries(raw)) {
    const cut = field.lastIndexOf(':')
    const scope = scopes.get(field.slice(0, cut)) ?? {}
    scope[field.slice(cut + 1)] = value
    scopes.set(field.slice(0, cut), scope)
  }
  const named = <K>(prefix: string, key: (name: string) => K): Map<K, Count> =>
    new Map(
      [...scopes]
        .filter(([scope]) => scope.startsWith(prefix))
        .map(([scope, parts]) => [key(scope.slice(prefix.length)), count(parts)]),
    )
  return {
    total: count(scopes.get('all') ?? {}),
    quarantined: Number(raw['all:q'] ?? 0),
    unlisted: Number(raw['all:f'] ?? 0),
    days: named('d:', Number),
    models: named('m:', String),
  }
}

function count(parts: Readonly<Record<string, string>>): Count {
  return {
    requests: Number(parts['n'] ?? 0),
    input: Number(parts['i'] ?? 0),
    output: Number(parts['o'] ?? 0),
    cost: BigInt(parts['c'] ?? 0),
  }
}
