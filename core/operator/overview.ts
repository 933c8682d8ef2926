/** What happens at the moment: sums of today and of the last minute, and the health of the accounts. */
import { orUnavailable } from '../records/unavailable.ts'
import { isoTime } from '../lib/iso-time.ts'
import { kept } from '../lib/kept.ts'
import { COUNTERS, type DayCount, noCount } from '../records/day-sums.ts'
import { dayOf, DAY_MS } from '../records/entry.ts'
import { usageBy } from '../records/usage.ts'
import { type AccountsSeen, accountsView, type AccountView } from './accounts-view.ts'
import { countsView } from './usage-view.ts'

type Counts = ReturnType<typeof countsView>

/** What happens at the moment. Amounts are exact decimals. */
export interface Overview {
  readonly at: string | null
  /** The UTC day so far, of all processes. */
  readonly today: Counts
  /** The last minute, or the part of it that was watched. Undefined at the first look. */
  readonly minute: Counts | undefined
  /** Requests that this process is serving. */
  readonly running: number
  /** Settlements that wait for the store, bytes that wait to be recorded, and accounts that the last audit found wrong. */
  readonly waiting: number
  readonly backlog_bytes: number
  readonly drifted: number
  readonly accounts: readonly AccountView[]
  /** Whether the file has the cost of any model. Without, nothing has a margin. */
  readonly has_costs: boolean
}

interface Sample {
  readonly at: number
  readonly sums: DayCount
}

/** The last samples that are kept, in milliseconds. */
const KEPT_MS = 60_000

/** Reads the overview. Those who ask within a second share one answer. */
export class OverviewFeed {
  /** Returns the overview of this second. @throws GatewayError unavailable, as a rejection */
  readonly read: () => Promise<Overview>
  readonly #parts: Omit<AccountsSeen, 'now'>
  #samples: Sample[] = []

  constructor({ now, ...parts }: Omit<AccountsSeen, 'now'> & { readonly now: () => number }) {
    this.#parts = parts
    this.read = kept(1000, now, at => this.#read(at))
  }

  async #read(now: number): Promise<Overview> {
    const { ledger } = this.#parts
    const today = dayOf(now)
    const [accounts, days] = await Promise.all([
      accountsView({ ...this.#parts, now }),
      orUnavailable(usageBy(ledger.records.database, 'day', { from: today, to: today, count: 1 })),
    ])
    const sums = days[0] ?? noCount()
    // Yesterday's sums say nothing about this minute.
    this.#samples = this.#samples.filter(({ at }) => now - at <= KEPT_MS && Math.floor(at / DAY_MS) === today)
    const [first] = this.#samples
    this.#samples.push({ at: now, sums })
    return {
      at: isoTime(now),
      today: countsView(sums),
      minute: first && countsView(difference(sums, first.sums)),
      running: ledger.live,
      waiting: ledger.waiting,
      backlog_bytes: ledger.background.state.backlogBytes,
      drifted: ledger.drifted,
      accounts,
      has_costs: [...this.#parts.config.upstreams.values()].some(
        ({ cost, dollar }) => cost.size > 0 || dollar !== undefined,
      ),
    }
  }
}

function difference(now: DayCount, before: DayCount): DayCount {
  const counts = Object.fromEntries(COUNTERS.map(name => [name, now.counts[name] - before.counts[name]]))
  return {
    counts: counts as DayCount['counts'],
    durations: less(now.durations, before.durations),
    firstBytes: less(now.firstBytes, before.firstBytes),
  }
}

function less(histogram: DayCount['durations'], other: DayCount['durations']): DayCount['durations'] {
  return new Map([...histogram].map(([bucket, count]) => [bucket, count - (other.get(bucket) ?? 0)]))
}
