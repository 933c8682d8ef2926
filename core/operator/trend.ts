/** What an operator looks at first: yesterday and the last days, the last hour, and keys that are used up soon. */
import type { Ledger } from '../ledger/ledger.ts'
import { orUnavailable } from '../records/unavailable.ts'
import type { MeterState } from '../metering/meter-state.ts'
import { isoTime } from '../lib/iso-time.ts'
import { kept } from '../lib/kept.ts'
import { formatCredits } from '../money/credits.ts'
import { dayOf } from '../records/entry.ts'
import { boundOf } from '../records/months.ts'
import { lastHour, type RunningOut, runningOut } from '../records/running-out.ts'
import { usageBy } from '../records/usage.ts'
import { usageView } from './usage-view.ts'

/** Days whose sums are shown, today included. */
const DAYS = 30
/** A key is listed if its balance lasts for less than so many days. */
const SOON_DAYS = 7
/** The most keys that are listed. */
const SOON_KEYS = 10
const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000
/** For how long an answer is given again, in milliseconds. */
const KEPT_MS = 60_000

/** Returns a key that is used up soon as a row. Amounts are exact decimals. */
export function runningOutView({ id, name, hint, balance, daily }: RunningOut) {
  return {
    key: id,
    name,
    hint,
    balance: formatCredits(balance),
    daily: formatCredits(daily),
    days: daily > 0n && balance > 0n ? Math.floor((10 * Number(balance)) / Number(daily)) / 10 : 0,
  }
}

/** Reads the trend. Callers share one answer a minute, because a read adds up the days of all keys. */
export class Trend {
  readonly #ledger: Ledger
  readonly #meter: Pick<MeterState, 'unread'>
  /** Returns the trend of this minute. @throws GatewayError unavailable, as a rejection */
  readonly latest: () => ReturnType<Trend['read']>

  /** @param now milliseconds since the epoch */
  constructor(ledger: Ledger, meter: Pick<MeterState, 'unread'>, now: () => number) {
    this.#ledger = ledger
    this.#meter = meter
    this.latest = kept(KEPT_MS, now, at => this.read(at))
  }

  /** @param now milliseconds since the epoch */
  async read(now: number) {
    const { database } = this.#ledger.records
    const today = dayOf(now)
    const [days, minutes, soon] = await orUnavailable(
      Promise.all([
        usageBy(database, 'day', { from: today - DAYS + 1, to: today, count: DAYS }),
        lastHour(database, Buffer.from(boundOf(now - HOUR_MS), 'hex')),
        runningOut(database, now, SOON_DAYS, SOON_KEYS),
      ]),
    )
    return {
      days: days.map(usageView).map(({ group: day, requests, errors, credits, cost, margin, without_cost }) => ({
        day,
        requests,
        errors,
        credits,
        cost,
        margin,
        without_cost,
      })),
      hour: minutes.map(({ minute, served, errors }) => ({ at: isoTime(minute * MINUTE_MS), served, errors })),
      running_out: soon.map(runningOutView),
      unread: [...this.#meter.unread.all].map(({ upstream, model, count }) => ({ upstream, model, count })),
    }
  }
}
