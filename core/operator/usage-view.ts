/** Usage as operators see it: one row for each group, with the operator's own cost. */
import { formatCredits } from '../money/credits.ts'
import { percentile } from '../records/histogram.ts'
import type { DayCount } from '../records/day-sums.ts'
import type { Usage } from '../records/usage.ts'

/** Returns sums as a row. Amounts are exact decimals. The margin is that of what has a known cost; `without_cost` is the rest. */
export function countsView({ counts, durations, firstBytes }: DayCount) {
  const { charge, cost, costed, ...numbers } = counts
  return {
    ...(Object.fromEntries(Object.entries(numbers).map(([each, number]) => [each, Number(number)])) as {
      [name in keyof typeof numbers]: number
    }),
    credits: formatCredits(charge),
    cost: formatCredits(cost),
    margin: formatCredits(costed - cost),
    without_cost: formatCredits(charge - costed),
    ms_p50: percentile(durations, 0.5) ?? null,
    ms_p95: percentile(durations, 0.95) ?? null,
    first_byte_ms_p50: percentile(firstBytes, 0.5) ?? null,
    first_byte_ms_p95: percentile(firstBytes, 0.95) ?? null,
  }
}

/** Returns a group as a row. */
export function usageView(usage: Usage) {
  return { group: usage.group, ...(usage.name !== undefined && { name: usage.name }), ...countsView(usage) }
}
