/**
 * Returns a function that reads something, and gives the same answer again for a while. A failed read is not kept.
 * @param ms how long an answer is kept
 * @param now milliseconds since the epoch
 * @param read gets the time of the call
 */
export function kept<T>(ms: number, now: () => number, read: (now: number) => Promise<T>): () => Promise<T> {
  let latest: { readonly at: number; readonly answer: Promise<T> } | undefined
  return () => {
    const at = now()
    if (latest && at - latest.at < ms) return latest.answer
    const own = { at, answer: read(at) }
    latest = own
    own.answer.catch(() => {
      if (latest === own) latest = undefined
    })
    return own.answer
  }
}
