/** The time windows of quotas. Those of a calendar begin at the same local time, also when clocks are changed. */
import { DateTime, type DateTimeUnit } from 'luxon'
import type { CalendarWindow, Quota } from '../config/config.ts'
import { OF_QUOTAS } from './store-keys.ts'

/** A window, in milliseconds since the epoch. */
export interface QuotaWindow {
  readonly from: number
  readonly until: number
}

/** The latest window of each quota, since it is asked for at every request. */
const latest = new WeakMap<CalendarWindow, QuotaWindow>()

/** Returns the window that a time is in. @param now milliseconds since the epoch, by the store's clock */
export function windowAt(calendar: CalendarWindow, now: number): QuotaWindow {
  const known = latest.get(calendar)
  if (known && known.from <= now && now < known.until) return known
  const found = windowOf(calendar, now)
  latest.set(calendar, found)
  return found
}

function windowOf(calendar: CalendarWindow, now: number): QuotaWindow {
  const { zone } = calendar
  const at = DateTime.fromMillis(now, { zone })
  const starts = [-1, 0, 1, 2].map(nth => startOf(calendar, at.plus({ [`${calendar.per}s`]: nth })))
  const next = starts.findIndex(start => start > now)
  return { from: starts[next - 1] ?? now, until: starts[next] ?? now }
}

/** Returns the beginning of the window that begins in the same day, week or month. */
function startOf({ per, weekday, day, hour, minute }: CalendarWindow, at: DateTime): number {
  const unit: DateTimeUnit = per
  const days = { day: 0, week: weekday - 1, month: day - 1 }[per]
  const begin = at.startOf(unit).plus({ days })
  // A local time that does not exist is the one an hour later.
  return begin.set({ hour, minute }).toMillis()
}

/** The parts into which a rolling window is divided. What is older than the window is forgotten part by part. */
export const ROLLING_PARTS = 60

/** Returns the length of a part of a rolling window, in milliseconds. */
export function partMs(rollingMs: number): number {
  return Math.ceil(rollingMs / ROLLING_PARTS)
}

/** Returns the ledger's name of a quota of an upstream account. Another window is another quota. */
export function quotaAccount(account: string, { name }: Pick<Quota, 'name'>): string {
  return `${OF_QUOTAS}${account}:${name}`
}

/**
 * Returns how much of a quota the share of a key is, and how much of it is used, in nano-credits. The store calculates
 * likewise when it holds.
 * @param shares number of keys that have one
 * @param own what the store has of the key; undefined if it has not asked
 */
export function shareOf(
  { amount, window }: Quota,
  shares: number,
  own: string | undefined,
  now: number,
): { limit: bigint; used: bigint } {
  const limit = amount / BigInt(shares + (own === undefined ? 2 : 1))
  const [began = 0, used = 0, before = 0, held = 0] = own?.split(' ').map(Number) ?? []
  if (!('rollingMs' in window)) {
    const isCurrent = began >= windowAt(window, now).from
    return { limit, used: BigInt(held + (isCurrent ? used : 0)) }
  }
  const length = partMs(window.rollingMs) * ROLLING_PARTS
  const from = Math.floor(now / length) * length
  const left = 1 - (now - from) / length
  if (began >= from) return { limit, used: BigInt(held + used + Math.floor(before * left)) }
  return { limit, used: BigInt(held + (began >= from - length ? Math.floor(used * left) : 0)) }
}
