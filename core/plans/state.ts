/** What the store has of windows: the text of windows.lua, read for people. */
import { firstPart, ROLLING_PARTS, type Span } from './calendar.ts'
import { isValid, KINDS, limitIn, type Plan, spanOf, usableAgainAt } from './plan.ts'
import type { PlanWindow } from './terms.ts'

/** What was used of a window. Numbers are nano-credits, requests or tokens. */
interface WindowState {
  readonly amount: bigint
  readonly from: number
  readonly ends: number
  readonly held: bigint
  readonly used: bigint
  /** What requests have used beyond what they had held and beyond the amount. It counts in the window that follows. */
  readonly over: bigint
  /** Of the last hours: what was used in each part, the oldest first. */
  readonly parts: readonly { readonly at: number; readonly used: bigint }[]
}

/** Returns the word of a window of which nothing is held, as the script writes it. */
export function windowWord(
  place: number,
  { unit, amount, timing }: PlanWindow,
  { from, ends, used }: { readonly from: number; readonly ends: number; readonly used: string },
): string {
  return `${place}:${unit[0]}:${KINDS[timing.kind]}:${amount}:${from}:${ends}:0:${used}`
}

/** Windows as the store has them, by their places. */
export interface WindowStates {
  readonly shape: string
  readonly byPlace: ReadonlyMap<number, WindowState>
}

/** Reads the text of windows. */
export function statesIn(text: string | null | undefined): WindowStates {
  const [shape = '', ...words] = (text ?? '').split(' ')
  const byPlace = new Map(
    words.map(word => {
      const [place = '', , kind, amount = '0', from = '0', ends = '0', held = '0', used = ''] = word.split(':')
      const parts =
        kind === 'r'
          ? used
              .split(',')
              .filter(part => part !== '')
              .map(part => part.split('='))
              .map(([at, number = '0']) => ({ at: Number(at), used: BigInt(number) }))
              .sort((one, other) => one.at - other.at)
          : []
      const [ofAll = '', over = ''] = used.split('+')
      const sum = kind === 'r' ? parts.reduce((all, part) => all + part.used, 0n) : BigInt(ofAll || 0)
      const state = {
        amount: BigInt(amount),
        from: Number(from),
        ends: Number(ends),
        held: BigInt(held),
        used: sum,
        over: BigInt(over || 0),
        parts,
      }
      return [Number(place), state] as const
    }),
  )
  return { shape, byPlace }
}

/** A window as customers and operators see it. Numbers are nano-credits, requests or tokens. */
export interface WindowView {
  readonly place: number
  readonly window: PlanWindow
  readonly limit: bigint
  readonly used: bigint
  readonly held: bigint
  /** What may still be used; at least 0. */
  readonly left: bigint
  /** Undefined for the last hours, and for a window that has not begun. */
  readonly from: number | undefined
  /**
   * When it can be used again: it begins anew, or some of the last hours comes back. Undefined if nothing was used in them, if it
   * has not begun, or if the plan or the key ends before.
   */
  readonly resetsAt: number | undefined
  /** When it begins anew, or its plan or key ends. Undefined if nothing of that is known. */
  readonly endsAt: number | undefined
}

/** Returns the windows of a plan as of now. None if it has ended. @param expiresAt of the key that uses it */
export function windowViews(
  plan: Plan,
  text: string | null | undefined,
  now: number,
  expiresAt?: number,
): readonly WindowView[] {
  if (!isValid(plan, now)) return []
  const states = statesIn(text)
  return plan.windows.map((window, place) => {
    const state = states.shape === plan.shape ? states.byPlace.get(place) : undefined
    const { limit, before } = limitIn(plan, place, now)
    const reset = plan.resets?.[place] ?? 0
    const { held, from, resetsAt, ...since } = current(state, spanOf(plan, place, now) ?? reset, window, now)
    const used = before + since.used
    const left = limit - used - held
    const ends = Math.min(resetsAt ?? Infinity, plan.until ?? Infinity, expiresAt ?? Infinity)
    return {
      place,
      window,
      limit,
      used,
      held,
      left: left > 0n ? left : 0n,
      from,
      resetsAt: usableAgainAt(resetsAt, plan, expiresAt),
      endsAt: ends === Infinity ? undefined : ends,
    }
  })
}

/** Returns what was used and is held of the window of a key's day. @param from when the day began */
export function dayUsed(text: string | null | undefined, from: number): bigint {
  const state = statesIn(text).byPlace.get(0)
  if (state?.from === from) return state.used + state.held
  return state?.ends === from ? state.over : 0n
}

/** Returns which share of a window is used or held, from 0 to 1. */
export function usedShare({ limit, left }: Pick<WindowView, 'limit' | 'left'>): number {
  return limit > 0n ? Number(((limit - left) * 10_000n) / limit) / 10_000 : 1
}

/** Names a window as it is now, other than the one before and the next. Of the last hours, such a window has their length. */
export function nameOf(
  plan: Plan,
  { place, window, from }: Pick<WindowView, 'place' | 'window' | 'from'>,
  now: number,
): string {
  const { timing } = window
  const began = timing.kind === 'rolling' ? now - (now % timing.ms) : from
  return `${plan.at}:${place}:${began}`
}

/** Returns when a plan renews: when its widest window begins anew. Undefined if it ends before, or has only the last hours. */
export function renewsAt({ widest }: Plan, windows: readonly WindowView[]): number | undefined {
  return windows.find(({ place }) => place === widest)?.resetsAt
}

type Current = Pick<WindowView, 'used' | 'held' | 'from' | 'resetsAt'>

/**
 * Returns what counts of a state now. The script calculates likewise when it holds.
 * @param span the time of the window; of the last hours, when they were reset, 0 for never
 */
function current(state: WindowState | undefined, span: Span | number, { timing }: PlanWindow, now: number): Current {
  if (typeof span === 'number' || timing.kind === 'rolling') {
    const first = state ? firstPart(now, state.ends) : 0
    const reset = typeof span === 'number' && state && state.from < span ? span : 0
    const parts = state?.parts.filter(({ at }) => at >= first && at * state.ends >= reset) ?? []
    const [oldest] = parts
    return {
      used: parts.reduce((all, part) => all + part.used, 0n),
      held: state?.held ?? 0n,
      from: undefined,
      resetsAt: state && oldest && (oldest.at + ROLLING_PARTS) * state.ends,
    }
  }
  const { from, until } = span
  if (timing.kind === 'first use') {
    const isRunning = state !== undefined && now < state.ends && state.from >= from
    if (isRunning) return { used: state.used, held: state.held, from: state.from, resetsAt: state.ends }
    const next = state && { from: state.ends, resetsAt: 2 * state.ends - state.from }
    if (next && state.over > 0n && state.from >= from && now < next.resetsAt)
      return { used: state.over, held: 0n, ...next }
    return { used: 0n, held: 0n, from: undefined, resetsAt: undefined }
  }
  if (state?.from === from) return { used: state.used, held: state.held, from, resetsAt: until }
  return { used: state?.ends === from ? state.over : 0n, held: 0n, from, resetsAt: until }
}
