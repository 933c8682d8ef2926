/** Works on many items, a few of them at a time. */

/** Runs work for each item, for so many at the same time. Rejects with the first failure. */
export async function sideBySide<T>(
  items: Iterable<T>,
  atOnce: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const left = items[Symbol.iterator]()
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let next = left.next(); !next.done; next = left.next()) await work(next.value)
    }),
  )
}
