/** The quotas of upstream accounts: their names in the ledger, and the shares of keys. */
import type { Quota } from '../config/config.ts'
import { firstPart, partMs, ROLLING_PARTS, windowAt } from '../plans/calendar.ts'
import { statesIn } from '../plans/state.ts'
import { OF_QUOTAS } from './script/store-keys.ts'

/** Returns the ledger's name of a quota of an upstream account. Another window or unit is another quota. */
export function quotaAccount(account: string, { name, unit }: Pick<Quota, 'name' | 'unit'>): string {
  return `${OF_QUOTAS}${account}:${unit === 'cost' ? 'cost-' : ''}${name}`
}

/** Returns the window of a quota, as the script asks for it. @param now by the store's clock */
export function quotaAsked({ amount, window }: Pick<Quota, 'amount' | 'window'>, now: number): string {
  if ('rollingMs' in window) return `q 0:c:r:${amount}:0:${partMs(window.rollingMs)}`
  const { from, until } = windowAt(window, now)
  return `q 0:c:c:${amount}:${from}:${until}`
}

/**
 * Returns how much of a quota is used, in nano-credits, and when that begins to change.
 * @param stored its window and what it holds, as the store has them
 */
export function quotaUse(
  { window }: Pick<Quota, 'window'>,
  { windows, held }: { readonly windows: string | null; readonly held: bigint },
  now: number,
): { used: bigint; resetsAt: number } {
  const state = statesIn(windows).byPlace.get(0)
  if (!('rollingMs' in window)) {
    const { from, until } = windowAt(window, now)
    return { used: held + (state?.from === from ? state.used : 0n), resetsAt: until }
  }
  const length = partMs(window.rollingMs)
  const first = firstPart(now, length)
  const parts = state?.ends === length ? state.parts.filter(({ at }) => at >= first) : []
  const used = parts.reduce((sum, part) => sum + part.used, held)
  return { used, resetsAt: ((parts[0]?.at ?? first) + ROLLING_PARTS) * length }
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
