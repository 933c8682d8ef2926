/** Suggests what somebody may have meant to write. */
import leven from 'leven'

/** Returns the candidate closest to what was written, if it is close enough and no other is equally close. */
export function nearest(written: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined
  let tied = false
  const all = [...candidates]
  // An abbreviation may be further from its full name than from another name.
  const withPrefix = all.filter(candidate => candidate.toLowerCase().startsWith(`${written.toLowerCase()}-`))
  if (withPrefix.length === 1) return withPrefix[0]
  // A candidate that shares no letter is no correction.
  let distance = Math.min(Math.max(2, Math.floor(written.length / 3)) + 1, written.length)
  for (const candidate of all) {
    const d = leven(written.toLowerCase(), candidate.toLowerCase())
    if (d > distance || (d === distance && best === undefined)) continue
    tied = d === distance
    ;[best, distance] = [candidate, d]
  }
  return tied ? undefined : best
}

/** Returns the hint "did you mean …?" for a value. Undefined without a value. */
export function didYouMean(value: string | undefined): string | undefined {
  return value && `did you mean ${value}?`
}

/** Longest list of candidates that is shown. */
const SUGGESTED_MAX = 30

/** Returns "did you mean …?", or a list of all candidates if the list is short and none is close. */
export function suggest(written: string, candidates: Iterable<string>): string | undefined {
  const all = [...candidates]
  const hint = didYouMean(nearest(written, all))
  if (hint !== undefined) return hint
  return all.length > 0 && all.length <= SUGGESTED_MAX ? `known: ${all.join(', ')}` : undefined
}

/** Returns a suggestion as the end of a message; '' without one. */
export function suggestion(written: string, candidates: Iterable<string>): string {
  const hint = suggest(written, candidates)
  return hint === undefined ? '' : `; ${hint}`
}
