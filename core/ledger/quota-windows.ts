/** The time windows of quotas. Those of a calendar begin at the same local time, also when clocks are changed. */
import { DateTime, type DateTimeUnit } from 'luxon'
import type { CalendarWindow, Quota } from '../config/config.ts'
import { OF_QUOTAS } from './script/store-keys.ts'

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

/** Returns the ledger's name of a quota of an upstream account. Another window or unit is another quota. */
export function quotaAccount(account: string, { name, unit }: Pick<Quota, 'name' | 'unit'>): string {
  return `${OF_QUOTAS}${account}:${unit === 'cost' ? 'cost-' : ''}${name}`
}

/**
 * Returns how much of a quota the share of a key is, and how much of it is used, in nano-credits. The store calculates
 * likewise when it holds.
 * @param shares what the store has of each key
 */
export function shareOf(
  { amount, window }: Quota,
  shares: Readonly<Record<string, string>>,
  key: string,
  now: number,
): { limit: bigint; used: bigint } {
  const { from, length, isRolling } = shareWindow(window, now)
  const left = isRolling ? 1 - (now - from) / length : 0
  /** Returns what a key uses of its share. Undefined if it has none any more. */
  function useOf(text: string): number | undefined {
    const [began = 0, used = 0, before = 0, held = 0] = text.split(' ').map(Number)
    if (began >= from) return held + used + Math.floor(before * left)
    if (began > from - 1.5 * length) return held + Math.floor(used * left)
    return held > 0 ? held : undefined
  }
  const others = Object.keys(shares).filter(each => each !== key && useOf(shares[each] ?? '') !== undefined)
  return { limit: amount / BigInt(others.length + 2), used: BigInt(useOf(shares[key] ?? '') ?? 0) }
}

/** The window in which shares are used: one of the quota, or for a rolling one a fixed one of its length. */
function shareWindow(window: Quota['window'], now: number): { from: number; length: number; isRolling: boolean } {
  if (!('rollingMs' in window)) {
    const { from, until } = windowAt(window, now)
    return { from, length: until - from, isRolling: false }
  }
  const length = partMs(window.rollingMs) * ROLLING_PARTS
  return { from: Math.floor(now / length) * length, length, isRolling: true }
}
