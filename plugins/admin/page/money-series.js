/** What customers paid, by day, divided into what it cost the operator and what is left. */

/**
 * Returns the series of a chart. Without costs, all of it is one series.
 * @param {number[]} credits by day @param {number[]} cost by day
 * @returns {{ name: string, values: number[] }[]}
 */
export function moneySeries(credits, cost) {
  if (!cost.some(each => each > 0)) return [{ name: 'credits', values: credits }]
  return [
    { name: 'your cost', values: credits.map((each, at) => Math.min(each, cost[at] ?? 0)) },
    { name: 'your margin', values: credits.map((each, at) => Math.max(0, each - (cost[at] ?? 0))) },
  ]
}
