/** Turns the usage of a key into the series of a chart. */

/** @param {string[]} days @param {any[]} data the usage by day, with models */
export function seriesOf(days, data) {
  const byDay = new Map(data.map(each => [each.day, each]))
  const names = new Set(data.flatMap(each => each.models.map(({ model }) => model)))
  const series = [...names].map(name => ({
    name,
    values: days.map(each => Number(byDay.get(each)?.models.find(({ model }) => model === name)?.credits ?? 0)),
  }))
  // Sums by model are kept only since a later version than those by day.
  const rest = days.map((each, at) => {
    const known = series.reduce((sum, { values }) => sum + (values[at] ?? 0), 0)
    return Math.max(0, Number(byDay.get(each)?.credits ?? 0) - known)
  })
  return rest.some(each => each > 1e-9) ? [...series, { name: 'not by model', values: rest }] : series
}
