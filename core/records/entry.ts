/** The entries of an account's history, and what they record. */
import type { Conditions } from '../money/price.ts'
import type { Usage } from '../money/usage.ts'
import type { Booking } from './bookings.ts'

/** The possible ends of an exchange. */
export const STATUSES = ['ok', 'failed', 'client_gone', 'broken', 'budget', 'disabled'] as const
/** How an exchange ended. */
export type Status = (typeof STATUSES)[number]

/** One part of a charge: a usage, its price version, and the conditions that applied. */
export interface ChargePart {
  readonly usage: Usage
  readonly price: string
  readonly conditions?: Conditions
  /** The upstream's name of the model, if it differs from the requested one. */
  readonly model?: string
}

/** How one account answered: with a status, or why it did not. */
export interface NotedAttempt {
  readonly account: string
  readonly status?: number
  readonly failure?: string
}

/** Sums of an upstream, by which an audit checks the charges. */
export interface ReportedSums {
  /** All tokens, if they are not those of the charge. */
  readonly tokens?: number
  /** What the request costs, in dollars, as a plain decimal. */
  readonly dollars?: string
}

/** What an entry records besides its amounts. */
export interface Notes {
  readonly endpoint: string
  readonly model: string
  readonly stream: boolean
  /** The key's type, and the upstream account that served the request. */
  readonly type?: string
  readonly upstream?: string
  /** The wire format of the client. */
  readonly format?: string
  /** The client's address. Never shown to customers. */
  readonly address?: string
  readonly requestedModel?: string
  /** The model that answered, by the provider's word, if it is another one than `model`. */
  readonly served?: string
  /** The request asked for a compaction of its conversation. */
  readonly compaction?: boolean
  readonly status?: Status
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
  /** Paths in the reported usage that were not understood, or that do not add up. Never shown to customers. */
  readonly unread?: readonly string[]
  /** What the request costs the operator, in nano-credits. Never shown to customers. */
  readonly cost?: string
  /** What the upstream says itself, beside the classes of tokens. Never shown to customers. */
  readonly reported?: ReportedSums
  readonly durationMs?: number
  readonly ttftMs?: number
  /** Of a charge that is estimated: for how long the provider showed nothing. */
  readonly silentMs?: number
  /** The accounts that were asked, if there were several. Never shown to customers. */
  readonly attempts?: readonly NotedAttempt[]
  /** For a credit: the refunded entry, when it ended in milliseconds since the epoch, and the reason. */
  readonly entry?: string
  readonly endedAt?: number
  readonly reason?: string
}

/**
 * The kinds of entries: an exchange that was charged, or that cost nothing; one whose gateway died, and one that was
 * settled after that; one whose hold a failed store lost; a refund.
 */
export const KINDS = ['settle', 'void', 'reaped', 'late', 'orphan', 'credit'] as const
/** The kind of an entry. */
export type EntryKind = (typeof KINDS)[number]

/** One entry of an account's history: an exchange, or a refund. */
export interface HistoryEntry {
  /** The id of the exchange, which is also the id of its request. */
  readonly id: string
  /** The key, if it has another name than the account. */
  readonly key?: string | undefined
  /** Counts the entries of the account. A later end of the same exchange replaces the entry and gets a new number. */
  readonly ordinal: number
  /** When the exchange ended first, in milliseconds since the epoch. */
  readonly at: number
  /** Milliseconds from then until it ended again, if it did. */
  readonly againMs?: number
  readonly kind: EntryKind
  /** The whole charge in nano-credits. Negative for a refund. */
  readonly charge: bigint
  /** What was granted less what was charged, after it. */
  readonly balance: bigint
  /** Its latest booking, if it is recorded and has changed the balance. */
  readonly booking?: Booking | undefined
  /** Whether its ordinal is not in the order of its booking. */
  readonly bookedLate?: boolean
  /** The bucket of its outcome in the store: an hour and a number, such as `497000.0`. */
  readonly bucket: string
  /** Nano-credits that an earlier sending of the same request was already charged. */
  readonly waived: bigint
  /** What a plan has covered, if the request was taken from one. */
  readonly plan?: PlanPart | undefined
  readonly notes: Partial<Notes>
}

/** What of a request a plan has covered. */
export interface PlanPart {
  /** Nano-credits, beside the charge. Negative for what a refund gives back. */
  readonly covered: bigint
  /** The tokens that its windows count. */
  readonly tokens: number
  /** The windows in which it counts, and what was left of them after it, as the script writes them. */
  readonly claims: string
}

/** Reads what the script says of the plan of an entry. Undefined if it has none. */
export function planPartFrom(text: string | undefined): PlanPart | undefined {
  const [, covered, tokens, claims] = /^(-?\d+),(-?\d+),(\S+)$/.exec(text ?? '') ?? []
  if (covered === undefined || claims === undefined) return undefined
  return { covered: BigInt(covered), tokens: Number(tokens), claims }
}

/** Writes that text; `-` for none. */
export function planPartText(plan: PlanPart | undefined): string {
  return plan ? `${plan.covered},${plan.tokens},${plan.claims}` : '-'
}

/** An entry as the store has it. */
export interface EndedEntry extends HistoryEntry {
  readonly account: string
  /** What an earlier end of the exchange charged, in nano-credits, as the store knows it. */
  readonly before?: bigint
  /** The same with what a plan paid of it. */
  readonly paidBefore?: bigint
}

/** Whose history or usage is looked up: an account's, or that of one of the keys that share it. */
export interface Whose {
  readonly account: string
  /** The id of the key. Undefined for all of them. */
  readonly key?: string | undefined
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
  readonly charge: bigint
}

/** Counters in total, by UTC day (days since the epoch) and by model. */
export interface Summary {
  readonly total: Count
  readonly days: ReadonlyMap<number, Count>
  readonly models: ReadonlyMap<string, Count>
  /** Requests whose reported usage was implausible. */
  readonly quarantined: number
}

/** Milliseconds of a day. */
export const DAY_MS = 86_400_000

/** The UTC day of a time, in days since the epoch. */
export function dayOf(ms: number): number {
  return Math.floor(ms / DAY_MS)
}

/** Whether an entry is the last word on its exchange. Only one that was reaped may still change. */
export function isForGood(kind: EntryKind): boolean {
  return kind !== 'reaped'
}

/** What is recorded of an exchange, as far as it decides how another entry of it counts. */
type Recorded = Pick<HistoryEntry, 'kind' | 'ordinal' | 'charge' | 'waived'>

/**
 * Returns an entry as it counts in the place of what is recorded of its exchange. If the database has lost an earlier end,
 * its charge counts in the sum of the lost ones, and is waived here.
 * @returns undefined if the entry counts nothing, since the last word is never replaced
 */
export function counting(entry: EndedEntry, recorded: Recorded | undefined): EndedEntry | undefined {
  if (recorded && isForGood(recorded.kind)) return undefined
  if (recorded && !isForGood(entry.kind) && entry.ordinal <= recorded.ordinal) return undefined
  const lost = recorded ? recorded.waived : (entry.before ?? 0n)
  return lost === 0n ? entry : { ...entry, charge: entry.charge - lost, waived: entry.waived + lost }
}

/**
 * Returns what entries add to the sum of charges when they are recorded, in nano-credits.
 * @param recorded the recorded entries of the same exchanges, by id
 */
export function chargesAdded(entries: readonly EndedEntry[], recorded: ReadonlyMap<string, Recorded>): bigint {
  const last = new Map(recorded)
  let sum = 0n
  for (const entry of entries) {
    const known = last.get(entry.id)
    const counts = counting(entry, known)
    if (!counts) continue
    sum += counts.charge - (known?.charge ?? 0n)
    last.set(entry.id, counts)
  }
  return sum
}

/** Returns what the store has charged for an exchange that was reaped. */
export function reapedCharge({ charge, waived }: Pick<HistoryEntry, 'charge' | 'waived'>): bigint {
  return charge + waived
}

/** Writes what was charged for an exchange that was reaped, with the parts of its plan, as the script does. */
export function reapedParts(entry: HistoryEntry): string {
  const { plan } = entry
  const charge = reapedCharge(entry)
  return plan && (plan.covered > 0n || plan.tokens > 0) ? `${charge},${plan.covered},${plan.tokens}` : String(charge)
}

/** The day and the model to which an entry is counted. A refund belongs to what it refunds. */
export function countedDay({ at, notes }: Pick<HistoryEntry, 'at' | 'notes'>): number {
  return dayOf(notes.endedAt ?? at)
}

/** When an exchange ended the last time, in milliseconds since the epoch. */
export function latestEndMs({ at, againMs = 0 }: Pick<HistoryEntry, 'at' | 'againMs'>): number {
  return at + againMs
}
