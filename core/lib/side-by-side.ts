/** Works on many items, a few of them at a time. */

/** Runs work for each item, so many at a time. After a failure, no more work begins. @throws the first failure */
export async function sideBySide<T>(
  items: Iterable<T>,
  atOnce: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const left = items[Symbol.iterator]()
  let failed = false
  const results = await Promise.allSettled(
    Array.from({ length: atOnce }, async () => {
      for (let next = left.next(); !next.done && !failed; next = left.next()) {
        try {
          await work(next.value)
        } catch (cause) {
          failed = true
          throw cause
        }
      }
    }),
  )
  for (const result of results) if (result.status === 'rejected') throw result.reason
}
