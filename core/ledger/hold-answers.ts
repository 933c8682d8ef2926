/** Reads what the script answers to a hold. */
import type { HoldStanding, Limited } from './hold.ts'

/** Reads why windows or rates have nothing for a hold. Undefined for any other answer. */
export function limitedFrom(answer: readonly string[]): Limited | undefined {
  const [kind, what = '', number = '0', balance = '0', left = '0'] = answer
  if (kind === 'limited') return { kind, what: what as 'requests', waitMs: Number(number), fullInMs: Number(balance) }
  if (kind !== 'used' && kind !== 'filled') return undefined
  const [of, place] = [what[0], Number(what.slice(1))]
  return { kind, isOfKey: of === 'k', place, resetsAt: Number(number), balance: BigInt(balance), left: BigInt(left) }
}

/**
 * Reads the windows and rates of a hold.
 * @param words when requests and tokens are unused again, how many tokens a minute allows, and the windows
 */
export function standingFrom(words: readonly string[]): HoldStanding | undefined {
  const [requests = '-', tokens = '-', , ...windows] = words
  if (windows.length === 0) return undefined
  return { windows: windows.join(' '), requestsFreeAt: timeIn(requests), tokensFreeAt: timeIn(tokens) }
}

function timeIn(text: string): number {
  return text === '-' ? 0 : Number(text)
}
