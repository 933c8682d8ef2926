/** What was used in the windows of a plan, from the records: for a store that has lost it, and for the audit. */
import { firstPart, lengthOf, partMs } from '../../plans/calendar.ts'
import { claimsIn } from '../../plans/claims.ts'
import { periodOf, type Plan, spanOf } from '../../plans/plan.ts'
import { statesIn, windowWord } from '../../plans/state.ts'
import { type HistoryEntry, type PlanPart } from '../../records/entry.ts'
import type { PlanWindow } from '../../plans/terms.ts'
import type { HistoryRange } from '../../records/history.ts'
import type { Records } from '../../records/records.ts'

/** Entries that are read at once. */
const PAGE = 500

/** What was used in a window, by when it began; in the last hours, by the number of the part. */
type Used = Map<number, bigint>

/** Reads entries of one account, newest first. */
export type Entries = (range: HistoryRange) => Promise<HistoryEntry[]>

/** Which entries count: up to an ordinal, and when the latest one of the account ended. */
interface Counting {
  readonly endedAt: number
  readonly last: number
}

/** Returns the windows of a plan as the script writes them. Nothing is held of them. */
export async function usedWindows(
  { history }: Pick<Records, 'history'>,
  account: string,
  plan: Plan,
  counting: Counting,
): Promise<string> {
  const { used } = await usedIn(range => history.entries({ account }, range), plan, counting)
  const words = plan.windows.flatMap((_, place) => textOf(plan, place, used[place] as Used))
  return [plan.shape, ...words].join(' ')
}

/** What the store has of windows, compared with entries. */
export interface ComparedWindows {
  /** The windows that differ, each with both numbers: nano-credits, requests or tokens. Empty if none does. */
  readonly findings: readonly string[]
  /** The text with what the entries have used. */
  readonly corrected: string
}

/**
 * Compares the open windows of a plan in the store with the claims of entries. A window may have more than its entries: it
 * takes over what was used beyond the one before, and entries may have been lost or deleted. It never has less.
 * @param text of the windows in the store
 * @param now by the store's clock, when the text was read
 * @param since from when on entries are kept
 */
export async function comparedWindows(
  entries: Entries,
  plan: Plan,
  text: string | null,
  { now, since, last }: { readonly now: number; readonly since: number; readonly last: number },
): Promise<ComparedWindows> {
  const { used, areAllKnown } = await usedIn(entries, plan, { endedAt: now, last })
  const { shape, byPlace } = statesIn(text)
  const isSame = shape === plan.shape
  const words = new Map(
    isSame ? text?.split(' ').map(word => [word.split(':', 1)[0], word]) : [[plan.shape, plan.shape]],
  )
  const findings: string[] = []
  for (const [place, window] of plan.windows.entries()) {
    const state = isSame ? byPlace.get(place) : undefined
    const isRolling = window.timing.kind === 'rolling'
    const ofEntries = used[place] as Used
    const inStore: Used = new Map(
      isRolling ? state?.parts.map(part => [part.at, part.used]) : state && [[state.from, state.used]],
    )
    const latest = Math.max(...ofEntries.keys(), ...inStore.keys())
    const isOpen = openOf(plan, place, latest, now)
    const openIn = (sums: Used): Used => new Map([...sums].filter(([from]) => isOpen(from)))
    const due = openIn(ofEntries)
    const [dueSum, hasSum] = [sumOf(due), sumOf(openIn(inStore))]
    const mayTakeOver = !isRolling && latest > plan.at && latest !== plan.resets?.[place]
    const began = isRolling ? now - lengthOf(periodOf(window)) : latest
    if (hasSum === dueSum || (hasSum > dueSum && (mayTakeOver || began < since || !areAllKnown))) continue
    findings.push(
      `window ${place + 1} of the plan: used = the sum of the claims of its entries: ${hasSum} is not ${dueSum}`,
    )
    const ofLatest = isRolling || state?.from === latest ? words.get(String(place)) : undefined
    const [word = ''] = ofLatest ? [ofLatest.replace(/[^:]*$/, usedText(window, due))] : textOf(plan, place, due)
    words.set(String(place), word)
  }
  return { findings, corrected: [...words.values()].join(' ') }
}

function sumOf(used: Used): bigint {
  return used.values().reduce((all, number) => all + number, 0n)
}

/**
 * Returns whether a window, or a part of the last hours, is open now and a moment later. A part that had begun when they were
 * reset may count or not.
 */
function openOf(plan: Plan, place: number, latest: number, now: number): (from: number) => boolean {
  const window = plan.windows[place] as PlanWindow
  if (window.timing.kind !== 'rolling') return from => from === latest && now < endOf(plan, place, from)
  const [ms, reset] = [partMs(window.timing.ms), plan.resets?.[place] ?? 0]
  return part => part > firstPart(now, ms) && part * ms >= reset
}

/** Adds up what entries have used of windows that were open when the latest one ended, by the places of the windows. */
async function usedIn(
  entries: Entries,
  plan: Plan,
  { endedAt, last }: Counting,
): Promise<{ readonly used: readonly Used[]; readonly areAllKnown: boolean }> {
  const longestMs = Math.max(...plan.windows.map(window => lengthOf(periodOf(window))))
  const used = plan.windows.map((): Used => new Map())
  let areAllKnown = true
  for await (const entry of entriesBack(entries, { last, from: endedAt - longestMs })) {
    if (entry.plan) count(entry, entry.plan, plan, used)
    // One entry stands for all that the database has lost: only their sum is known.
    if (entry.kind === 'settle' && entry.notes.model === '') areAllKnown = false
  }
  return { used, areAllKnown }
}

/** Iterates over entries, newest first. @param last the ordinal to begin with; undefined for the newest */
export async function* entriesBack(
  entries: Entries,
  { last, from }: { readonly last?: number; readonly from?: number },
): AsyncGenerator<HistoryEntry> {
  for (let before = last === undefined ? undefined : last + 1; ;) {
    const page = await entries({ before, from, count: PAGE })
    yield* page
    const oldest = page.at(-1)
    // Another page than the newest may be short: an exchange that has ended again has a newer ordinal, and leaves its old place.
    if (!oldest || (before === undefined && page.length < PAGE)) return
    before = oldest.ordinal
  }
}

/** Adds an entry to the windows in which its hold was taken, as the script charges them. */
function count({ kind, charge }: HistoryEntry, part: PlanPart, plan: Plan, used: readonly Used[]): void {
  const { shape, windows } = claimsIn(part.claims)
  if (shape !== plan.shape) return
  const isRefund = kind === 'credit'
  const isCounted = isRefund || kind === 'settle' || charge + part.covered > 0n
  const sign = isRefund ? -1n : 1n
  for (const [place, list] of Map.groupBy(windows, claim => claim.place)) {
    const unit = plan.windows[place]?.unit
    const { covered: credits, tokens } = part
    let rest = { credits: sign * credits, tokens: sign * BigInt(tokens), requests: isCounted ? 1n : 0n }[
      unit ?? 'credits'
    ]
    for (const [index, { from, taken }] of list.entries()) {
      const number = index < list.length - 1 && taken < rest ? taken : rest
      rest -= number
      const sums = used[place]
      sums?.set(from, (sums.get(from) ?? 0n) + sign * number)
    }
  }
}

function textOf(plan: Plan, place: number, used: Used): string[] {
  const { windows, resets } = plan
  const window = windows[place]
  if (!window || used.size === 0) return []
  const { timing } = window
  if (timing.kind === 'rolling') {
    const [from, ends] = [resets?.[place] ?? 0, partMs(timing.ms)]
    const counting = [...used].filter(([part]) => part * ends >= from)
    return [windowWord(place, window, { from, ends, used: usedText(window, new Map(counting)) })]
  }
  const from = Math.max(...used.keys())
  return [windowWord(place, window, { from, ends: endOf(plan, place, from), used: String(used.get(from)) })]
}

/** Writes what was used as the script does: of the last hours, each part. */
function usedText({ timing }: PlanWindow, used: Used): string {
  return timing.kind === 'rolling'
    ? [...used].map(([part, number]) => `${part}=${number}`).join(',')
    : String(sumOf(used))
}

/** Returns when a window of a calendar, of a purchase or of a first use ends that began at a time. */
function endOf(plan: Plan, place: number, from: number): number {
  return spanOf(plan, place, from)?.until ?? Infinity
}
