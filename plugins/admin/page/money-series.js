/** What customers paid, by day, divided into what it cost the operator, what is left, and what has no known cost. */

/**
 * Returns the series of a chart. Without costs, all of it is one series.
 * @param {(member: string) => number[]} values returns a member of the days' sums
 * @returns {{ name: string, values: number[] }[]}
 */
export function moneySeries(values) {
  const [credits, cost, unknown] = [values('credits'), values('cost'), values('without_cost')]
  if (!cost.some(each => each > 0)) return [{ name: 'credits', values: credits }]
  const paid = credits.map((each, at) => each - unknown[at])
  return [
    { name: 'your cost', values: paid.map((each, at) => Math.min(each, cost[at])) },
    { name: 'your margin', values: values('margin').map(each => Math.max(0, each)) },
    ...(unknown.some(each => each > 0) ? [{ name: 'without a known cost', values: unknown }] : []),
  ]
}
