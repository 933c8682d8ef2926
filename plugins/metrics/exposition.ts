/** The Prometheus text format: metrics with labels, and histograms. */

/** Labels of a value. */
export type Labels = Readonly<Record<string, string>>

/** A value with its labels as text. */
export type Value = readonly [labels: string, value: number]

/** Returns labels as text, such as `{account="famA/1"}`. */
export function labelled(labels: Labels): string {
  const parts = Object.entries(labels).map(([name, value]) => `${name}="${escapedLabel(value)}"`)
  return parts.length === 0 ? '' : `{${parts.join(',')}}`
}

function escapedLabel(value: string): string {
  return value
    .replaceAll('\\', '\\\\')
    .replaceAll('"', String.raw`\"`)
    .replaceAll('\n', String.raw`\n`)
}

/** Returns the lines of a metric. */
export function metric(
  name: string,
  type: 'counter' | 'gauge' | 'histogram',
  help: string,
  values: Iterable<Value>,
): string[] {
  return [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...Array.from(values, ([labels, value]) => `${name}${labels} ${value}`),
  ]
}

/** Values that are counted by labels. */
export class Counter {
  readonly #values = new Map<string, number>()

  /** Adds one. */
  count(labels: Labels): void {
    const name = labelled(labels)
    this.#values.set(name, (this.#values.get(name) ?? 0) + 1)
  }

  get values(): Iterable<Value> {
    return this.#values
  }
}

interface Observed {
  readonly labels: Labels
  /** How many were at most each bound, and not at most the one before. */
  readonly counts: number[]
  sum: number
}

/** Values that are counted by size. */
export class Histogram {
  readonly #bounds: readonly number[]
  readonly #observed = new Map<string, Observed>()

  /** @param bounds the upper bounds of the buckets, in their order */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
  }

  /** Counts a value. */
  observe(labels: Labels, value: number): void {
    const name = labelled(labels)
    let found = this.#observed.get(name)
    if (!found) {
      found = { labels, counts: Array.from({ length: this.#bounds.length + 1 }, () => 0), sum: 0 }
      this.#observed.set(name, found)
    }
    const at = this.#bounds.findIndex(bound => value <= bound)
    const bucket = at === -1 ? this.#bounds.length : at
    found.counts[bucket] = (found.counts[bucket] ?? 0) + 1
    found.sum += value
  }

  /** Returns the lines of the metric. */
  lines(name: string, help: string): string[] {
    const lines = metric(name, 'histogram', help, [])
    for (const { labels, counts, sum } of this.#observed.values()) {
      let count = 0
      counts.forEach((own, at) => {
        count += own
        lines.push(`${name}_bucket${labelled({ ...labels, le: String(this.#bounds[at] ?? '+Inf') })} ${count}`)
      })
      lines.push(`${name}_sum${labelled(labels)} ${sum}`, `${name}_count${labelled(labels)} ${count}`)
    }
    return lines
  }
}
