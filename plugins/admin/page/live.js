/** A small picture of the requests of the last minutes, which grows while it is watched. */
import { h } from './dom.js'
import { axisStyle, color, keepDrawn, plotLibrary } from './plot.js'

/** Points that are kept: ten minutes. */
const POINTS = 300
const HEIGHT = 160
const TITLE = 'Requests and errors since this page was opened'

const clock = seconds => new Date(seconds * 1000).toISOString().slice(11, 19)

function optionsOf(width) {
  const line = name => ({ stroke: color(name), width: 2, points: { show: false } })
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(5, max * 1.1)] } },
    axes: [
      { ...axisStyle(), grid: { show: false }, size: 28, values: (_, ticks) => ticks.map(clock), space: 90 },
      { ...axisStyle(), size: 44 },
    ],
    series: [{}, line('--series-1'), { ...line('--series-5'), dash: [6, 4] }],
  }
}

/** @returns {{ element: HTMLElement, add: (overview: any) => void, remove: () => void }} */
export function liveChart() {
  const plot = h('div', { class: 'live', role: 'img', 'aria-label': TITLE })
  const legend = [
    ['1', 'requests in two seconds'],
    ['5', 'errors'],
  ].map(([series, name]) => h('li', {}, h('i', { class: `swatch swatch-${series}` }), name))
  const element = h(
    'figure',
    { class: 'chart' },
    h('figcaption', {}, h('strong', {}, TITLE)),
    plot,
    h('ul', { class: 'legend' }, legend),
  )
  /** @type {number[][]} */
  let points = [[], [], []]
  /** @type {any} */
  let before
  /** @type {{ current: () => any, remove: () => void } | undefined} */
  let drawn
  let gone = false
  void plotLibrary.then(UPlot => {
    if (!UPlot) plot.classList.add('absent')
    else if (!gone) drawn = keepDrawn(plot, HEIGHT, width => new UPlot(optionsOf(width), points, plot))
  })
  return {
    element,
    add(overview) {
      const { billed, errors } = overview.today
      if (before && billed >= before.billed) {
        const next = [Date.parse(overview.at) / 1000, billed - before.billed, errors - before.errors]
        points = points.map((each, at) => [...each, next[at] ?? 0].slice(-POINTS))
        drawn?.current().setData(points)
      }
      before = { billed, errors }
    },
    remove() {
      gone = true
      drawn?.remove()
    },
  }
}
