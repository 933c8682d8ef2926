/** Counts by name. */

/** Adds an amount, which may be negative, to the count of a name. A count that falls to zero is removed. */
export function addTo(counts: Map<string, number>, name: string, amount: number): void {
  const all = (counts.get(name) ?? 0) + amount
  if (all > 0) counts.set(name, all)
  else counts.delete(name)
}
