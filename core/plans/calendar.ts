/**
 * The calendar of windows: those of a day, a week or a month begin at the same local time, also when clocks are changed; those
 * of a purchase begin at the same distance from it.
 */
import { DateTime, type DateTimeUnit } from 'luxon'

/** Windows that begin at a local time of every day, week or month. */
export interface CalendarWindow {
  readonly per: 'day' | 'week' | 'month'
  /** An IANA time zone. */
  readonly zone: string
  /** From 1 for Monday. */
  readonly weekday: number
  /** Of the month. */
  readonly day: number
  readonly hour: number
  readonly minute: number
}

/** The length of windows that begin at a purchase or with a use: of the calendar in a time zone, or in milliseconds. */
export type Period = { readonly per: CalendarWindow['per']; readonly zone: string } | { readonly ms: number }

/** The time of a window, in milliseconds since the epoch. */
export interface Span {
  readonly from: number
  readonly until: number
}

/** The latest window of each calendar, since it is asked for at every request. */
const latest = new WeakMap<CalendarWindow, Span>()

/** Returns the window that a time is in. @param now milliseconds since the epoch, by the store's clock */
export function windowAt(calendar: CalendarWindow, now: number): Span {
  const known = latest.get(calendar)
  if (known && known.from <= now && now < known.until) return known
  const found = windowOf(calendar, now)
  latest.set(calendar, found)
  return found
}

function windowOf(calendar: CalendarWindow, now: number): Span {
  // The date alone decides, so that clock changes near now do not.
  const { year, month, day } = DateTime.fromMillis(now, { zone: calendar.zone })
  const date = DateTime.utc(year, month, day)
  const starts = [-2, -1, 0, 1, 2].map(nth => startOf(calendar, date.plus({ [`${calendar.per}s`]: nth })))
  const next = starts.findIndex(start => start > now)
  return { from: starts[next - 1] ?? now, until: starts[next] ?? now }
}

/** Returns the beginning of the window that begins in the day, the week or the month of a date. */
function startOf({ per, zone, weekday, day: dayOfMonth, hour, minute }: CalendarWindow, date: DateTime): number {
  const unit: DateTimeUnit = per
  const days = { day: 0, week: weekday - 1, month: dayOfMonth - 1 }[per]
  const { year, month, day } = date.startOf(unit).plus({ days })
  const begin = DateTime.fromObject({ year, month, day, hour, minute }, { zone })
  // A local time that comes twice is the first one. One that does not exist is as long after the gap as it is in it.
  return Math.min(...begin.getPossibleOffsets().map(possible => possible.toMillis()))
}

/** Returns the time a number of periods after another. The last days of a month stand for those that it does not have. */
export function after(at: number, period: Period, count: number): number {
  if ('ms' in period) return at + count * period.ms
  return DateTime.fromMillis(at, { zone: period.zone })
    .plus({ [`${period.per}s`]: count })
    .toMillis()
}

/** Returns the window that a time is in, of those that follow each other from a purchase on. The first one begins there. */
export function windowSince(purchasedAt: number, period: Period, now: number): Span {
  let nth = Math.max(0, Math.floor((now - purchasedAt) / usualMs(period)))
  while (nth > 0 && after(purchasedAt, period, nth) > now) nth--
  while (after(purchasedAt, period, nth + 1) <= now) nth++
  return { from: after(purchasedAt, period, nth), until: after(purchasedAt, period, nth + 1) }
}

/** Milliseconds of a usual day, week and month. */
const USUAL_MS = { day: 24 * 3_600_000, week: 168 * 3_600_000, month: 30 * 86_400_000 } as const

/** Returns the time that a period usually takes, in milliseconds. */
export function usualMs(period: Period): number {
  return 'ms' in period ? period.ms : USUAL_MS[period.per]
}

/** Milliseconds of the longest day, week and month, by which windows are compared and found. */
const LONGEST_MS = { day: 25 * 3_600_000, week: 169 * 3_600_000, month: 31 * 86_400_000 + 3_600_000 } as const

/** Returns the longest time that a period may take, in milliseconds. */
export function lengthOf(period: Period): number {
  return 'ms' in period ? period.ms : LONGEST_MS[period.per]
}

/** The parts into which the last hours are divided. What is older than them is forgotten part by part. */
export const ROLLING_PARTS = 60

/** Returns the number of the first part of the last hours that still counts. @param ms of a part */
export function firstPart(now: number, ms: number): number {
  return Math.floor(now / ms) - ROLLING_PARTS + 1
}

/** Returns the length of a part of the last hours, in milliseconds. */
export function partMs(rollingMs: number): number {
  return Math.ceil(rollingMs / ROLLING_PARTS)
}
