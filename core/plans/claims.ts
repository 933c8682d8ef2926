/** What a hold has claimed of windows: the text of purses.lua, read. */
import { ROLLING_PARTS } from './calendar.ts'
import { isValid, type Plan } from './plan.ts'

/** What was taken of one window. */
export interface WindowClaim {
  /** Whether it is a window of the plan, and not of the key. */
  readonly isOfPlan: boolean
  readonly place: number
  /** `c` (nano-credits), `r` (requests) or `t` (tokens). */
  readonly unit: string
  readonly isRolling: boolean
  /** When the window began, and when it ends; of the last hours, the number of the part, and its length. */
  readonly from: number
  readonly ends: number
  readonly taken: bigint
}

/** What a hold has claimed. */
export interface HoldClaims {
  /** The shape of the plan's windows. Undefined if nothing was taken from a plan. */
  readonly shape: string | undefined
  /** What was taken from a plan, in nano-credits. */
  readonly ofPlan: bigint
  readonly windows: readonly WindowClaim[]
  /** Of an entry: what was left after it of the windows that were not over, by their places. */
  readonly left: ReadonlyMap<number, bigint>
}

const NONE: HoldClaims = { shape: undefined, ofPlan: 0n, windows: [], left: new Map() }

/** Reads the claims of a hold. @param text `-` for none */
export function claimsIn(text: string): HoldClaims {
  if (text === '-') return NONE
  const [, shape, ofPlan = '0'] = /^p([^:]+):(\d+):/.exec(text) ?? []
  const words = text.matchAll(/([wk])(\d+)([crt])([cur])@(\d+)-(\d+):(\d+)/g)
  const windows = Array.from(words, ([, of, place, unit = '', kind, from, ends, taken = '0']) => ({
    isOfPlan: of === 'w',
    place: Number(place),
    unit,
    isRolling: kind === 'r',
    from: Number(from),
    ends: Number(ends),
    taken: BigInt(taken),
  }))
  const left = Array.from(
    text.matchAll(/\/l(\d+):(\d+)/g),
    ([, place, number = '0']) => [Number(place), BigInt(number)] as const,
  )
  return { shape, ofPlan: BigInt(ofPlan), windows, left: new Map(left) }
}

/**
 * Whether a plan can get back what it has paid: one of the windows that did is not over. Where windows count credits, one of those.
 * @param now by the store's clock
 */
export function canGetBack(plan: Plan | undefined, { shape, windows }: HoldClaims, now: number): boolean {
  if (!plan || !isValid(plan, now) || plan.shape !== shape) return false
  const ofPlan = windows.filter(({ isOfPlan }) => isOfPlan)
  const ofCredits = ofPlan.filter(({ unit }) => unit === 'c')
  return (ofCredits.length > 0 ? ofCredits : ofPlan).some(({ place, isRolling, from, ends }) => {
    const reset = plan.resets?.[place] ?? 0
    return isRolling ? (from + ROLLING_PARTS) * ends > now && (from + 1) * ends > reset : ends > now && from >= reset
  })
}
