/** The windows of a plan as agents know them: a short one, and a long one. */
import type { Key } from 'tollgate/plugin'
import { periodOf, usedShare, usualMs, type WindowView } from 'tollgate/plugin/operator'
import { plain, rounded } from './numbers.ts'

const DAY_MS = 86_400_000
const MONTH_MS = 30 * DAY_MS

/** Two windows of a plan. */
export interface TwoWindows {
  /** The shortest window of up to a day. */
  readonly short: WindowView | undefined
  /** The longest one of more than a day. */
  readonly long: WindowView | undefined
}

/** Returns the windows that agents show, of those that count every model. */
export function twoWindows(windows: readonly WindowView[]): TwoWindows {
  const byLength = windows
    .filter(({ window }) => window.models === undefined)
    .sort((one, other) => lengthMs(one) - lengthMs(other))
  const [short] = byLength.filter(view => lengthMs(view) <= DAY_MS)
  return { short, long: byLength.filter(view => lengthMs(view) > DAY_MS).at(-1) }
}

/** Returns the length of a window as agents know it, in milliseconds. */
export function lengthMs({ window }: WindowView): number {
  return usualMs(periodOf(window))
}

/** Returns the end of a window, of its plan or of its key in seconds since the epoch. One that has not begun would end after its length. */
export function resetSeconds(view: WindowView, now: number): number {
  return Math.ceil(Math.min(view.endsAt ?? Infinity, now + lengthMs(view)) / 1000)
}

/** Headers from which Codex shows the balance and the windows. @param balance dollars */
export function codexHeaders(balance: number, windows: readonly WindowView[], now: number): Record<string, string> {
  const { short, long } = twoWindows(windows)
  const of = (name: string, view: WindowView | undefined): Record<string, string> =>
    view
      ? {
          [`x-codex-${name}-used-percent`]: String(rounded(100 * usedShare(view))),
          [`x-codex-${name}-window-minutes`]: String(Math.round(lengthMs(view) / 60_000)),
          [`x-codex-${name}-reset-at`]: String(resetSeconds(view, now)),
        }
      : {}
  return {
    'x-codex-credits-has-credits': String(balance > 0),
    'x-codex-credits-unlimited': 'false',
    'x-codex-credits-balance': plain(balance),
    ...of('primary', short ?? long),
    ...of('secondary', short && long),
  }
}

/** Headers that say that the key may go on, how much of its windows or of its credits is used, and until when they last. */
export function claudeHeaders(
  { granted, expiresAt }: Key,
  balance: bigint,
  windows: readonly WindowView[],
  now: number,
): Record<string, string> {
  const { short, long } = twoWindows(windows)
  const of = (name: string, view: WindowView | undefined): Record<string, string> =>
    view
      ? {
          [`anthropic-ratelimit-unified-${name}-status`]: 'allowed',
          [`anthropic-ratelimit-unified-${name}-utilization`]: String(usedShare(view)),
          [`anthropic-ratelimit-unified-${name}-reset`]: String(resetSeconds(view, now)),
        }
      : {}
  const ends = Math.min(expiresAt ?? now + MONTH_MS, now + MONTH_MS)
  const share = granted > 0n ? 1 - Number((balance * 10_000n) / granted) / 10_000 : 1
  const overage = {
    'anthropic-ratelimit-unified-overage-status': 'allowed',
    'anthropic-ratelimit-unified-overage-utilization': String(rounded(Math.min(1, Math.max(0, share)))),
    'anthropic-ratelimit-unified-overage-reset': String(Math.floor(ends / 1000)),
  }
  // What is used up first is what the client shows.
  const [claim, view] = claimOf(short, long)
  return {
    'anthropic-ratelimit-unified-status': 'allowed',
    'anthropic-ratelimit-unified-representative-claim': claim,
    'anthropic-ratelimit-unified-reset': String(view ? resetSeconds(view, now) : Math.floor(ends / 1000)),
    ...of('5h', short),
    ...of('7d', long),
    ...(view === undefined || granted > 0n ? overage : {}),
  }
}

function claimOf(
  short: WindowView | undefined,
  long: WindowView | undefined,
): readonly [claim: string, view: WindowView | undefined] {
  if (short && (!long || usedShare(short) >= usedShare(long))) return ['five_hour', short]
  return long ? ['seven_day', long] : ['overage', undefined]
}
