/** What was used in the windows of a plan, from the records, for a store that has lost them. */
import { after, lengthOf, partMs, windowAt, windowSince } from '../../plans/calendar.ts'
import { claimsIn } from '../../plans/claims.ts'
import { periodOf, type Plan } from '../../plans/plan.ts'
import { windowWord } from '../../plans/state.ts'
import { type HistoryEntry, type PlanPart } from '../../records/entry.ts'
import type { Records } from '../../records/records.ts'

/** Entries that are read at once. */
const PAGE = 500

/** What was used in a window, by when it began; in the last hours, by the number of the part. */
type Used = Map<number, bigint>

/**
 * Returns the windows of a plan as the script writes them. Nothing is held of them.
 * @param exchanges when the latest one of the account ended, and the ordinal of the last one that counts
 */
export async function usedWindows(
  { history }: Pick<Records, 'history'>,
  account: string,
  plan: Plan,
  { endedAt, last }: { readonly endedAt: number; readonly last: number },
): Promise<string> {
  const longestMs = Math.max(...plan.windows.map(window => lengthOf(periodOf(window))))
  const used = plan.windows.map((): Used => new Map())
  for (let before = last + 1; ;) {
    const page = await history.entries({ account }, { before, from: endedAt - longestMs, count: PAGE })
    for (const entry of page) if (entry.plan) count(entry, entry.plan, plan, used)
    if (page.length < PAGE) break
    before = page.at(-1)?.ordinal ?? 0
  }
  const words = plan.windows.flatMap((_, place) => textOf(plan, place, used[place] as Used))
  return [plan.shape, ...words].join(' ')
}

/** Adds an entry to the windows in which its hold was taken, as the script charges them. */
function count({ kind, charge }: HistoryEntry, part: PlanPart, plan: Plan, used: readonly Used[]): void {
  const { shape, windows } = claimsIn(part.claims)
  if (shape !== plan.shape) return
  const isCounted = kind === 'settle' || charge + part.covered > 0n
  for (const [place, list] of Map.groupBy(windows, claim => claim.place)) {
    const unit = plan.windows[place]?.unit
    let rest = { credits: part.covered, tokens: BigInt(part.tokens), requests: isCounted ? 1n : 0n }[unit ?? 'credits']
    for (const [index, { from, taken }] of list.entries()) {
      const number = index < list.length - 1 && taken < rest ? taken : rest
      rest -= number
      const sums = used[place]
      sums?.set(from, (sums.get(from) ?? 0n) + number)
    }
  }
}

function textOf({ windows, at, resets }: Plan, place: number, used: Used): string[] {
  const window = windows[place]
  if (!window || used.size === 0) return []
  const { timing } = window
  if (timing.kind === 'rolling') {
    const [from, ends] = [resets?.[place] ?? 0, partMs(timing.ms)]
    const counting = [...used].filter(([part]) => part * ends >= from)
    const parts = counting.map(([part, number]) => `${part}=${number}`).join(',')
    return [windowWord(place, window, { from, ends, used: parts })]
  }
  const from = Math.max(...used.keys())
  const ends = {
    calendar: () => (timing.kind === 'calendar' ? windowAt(timing.calendar, from).until : 0),
    purchase: () => windowSince(at, periodOf(window), from).until,
    'first use': () => after(from, periodOf(window), 1),
  }[timing.kind]()
  return [windowWord(place, window, { from, ends, used: String(used.get(from)) })]
}
