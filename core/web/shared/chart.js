/**
 * Charts of days. Each is a picture with a table beside it that has the same numbers: for those who cannot see the
 * picture, and for browsers that cannot draw it.
 */
import { fill, h } from './dom.js'
import { amount, day } from './format.js'
import { axisStyle, color, keepDrawn, plotLibrary, swatch } from './plot.js'
import { tableOf } from './table.js'

/** Most series with a colour of their own. The rest is one series. */
const SERIES_MAX = 6
const HEIGHT = 220

/** @typedef {{ name: string, values: number[] }} Series */

/**
 * Shows amounts by day, stacked by series.
 * @param {Element} host
 * @param {{ title: string, days: string[], series: Series[], unit?: string }} data the oldest day first
 * @returns {Promise<() => void>} a function that removes the chart
 */
export async function dayChart(host, { title, days, series, unit = 'credits' }) {
  const shown = fewer(series, days.length)
  const totals = days.map((_, at) => shown.reduce((sum, { values }) => sum + (values[at] ?? 0), 0))
  const sum = totals.reduce((all, each) => all + each, 0)
  const best = totals.indexOf(Math.max(...totals))
  const summary =
    sum === 0
      ? 'Nothing was used in this time.'
      : `${amount(sum)} ${unit} in ${days.length} days; most on ${day(days[best] ?? '')} with ${amount(totals[best])}.`
  const caption = h('figcaption', h('strong', title), ' ', h('span.muted', summary))
  if (sum === 0) {
    fill(host, h('figure.chart', caption))
    return () => {}
  }
  const plot = h('div.plot', { role: 'img', 'aria-label': `${title}. ${summary}` })
  const legend = h(
    'ul.legend',
    shown.map(({ name }, at) => h('li', swatch(at + 1), name)),
  )
  fill(
    host,
    h(
      'figure.chart',
      caption,
      plot,
      legend,
      h('details', h('summary', 'Show as a table'), daysTable(title, days, shown, totals)),
    ),
  )
  const UPlot = await plotLibrary
  if (!UPlot || !plot.isConnected) {
    plot.classList.add('absent')
    return () => {}
  }
  return draw(UPlot, plot, days, shown)
}

/** @param {Series} series */
function totalOf({ values }) {
  return values.reduce((sum, each) => sum + each, 0)
}

/** @param {Series[]} series @param {number} length @returns {Series[]} */
function fewer(series, length) {
  const sorted = [...series].sort((a, b) => totalOf(b) - totalOf(a))
  if (sorted.length <= SERIES_MAX) return sorted
  const rest = sorted.slice(SERIES_MAX - 1)
  const values = Array.from({ length }, (_, at) => rest.reduce((sum, each) => sum + (each.values[at] ?? 0), 0))
  return [...sorted.slice(0, SERIES_MAX - 1), { name: `${rest.length} others`, values }]
}

function daysTable(title, days, series, totals) {
  const places = days.map((_, at) => at).filter(at => totals[at] > 0)
  const columns = [
    { name: 'Day (UTC)', heading: true, cell: at => days[at] },
    ...[...series, { name: 'All', values: totals }].map(({ name, values }) => ({
      name,
      number: true,
      cell: at => amount(values[at] ?? 0),
    })),
  ]
  return tableOf(title, columns, places.reverse())
}

function draw(UPlot, plot, days, series) {
  // The picture is stacked from the bottom up, so the last series is drawn first, as the sum of all.
  const sums = series.map((_, upTo) =>
    days.map((__, at) => series.slice(0, upTo + 1).reduce((sum, { values }) => sum + (values[at] ?? 0), 0)),
  )
  const order = series.map((_, at) => series.length - 1 - at)
  const dayAt = at => (Number.isInteger(at) ? (days[at] ?? '').slice(5) : '')
  const options = width => ({
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    // Half a day on either side, so that the first and the last bar are whole.
    scales: {
      x: { time: false, range: () => [-0.6, days.length - 0.4] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] },
    },
    axes: [
      { ...axisStyle(), grid: { show: false }, values: (_, ticks) => ticks.map(dayAt), space: 56, size: 30 },
      { ...axisStyle(), size: 56, values: (_, ticks) => ticks.map(each => amount(each, 3)) },
    ],
    series: [
      {},
      ...order.map(at => ({
        fill: color(`--series-${at + 1}`),
        stroke: color(`--series-${at + 1}`),
        width: 0,
        points: { show: false },
        paths: UPlot.paths.bars({ size: [0.72, 28], align: 0 }),
      })),
    ],
  })
  const points = [days.map((_, at) => at), ...order.map(at => sums[at])]
  return keepDrawn(plot, HEIGHT, width => new UPlot(options(width), points, plot)).remove
}
