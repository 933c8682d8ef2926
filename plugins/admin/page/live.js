/** A small picture of the requests of the last hour, minute by minute. */
import { fill, h } from './dom.js'
import { number } from './format.js'
import { axisStyle, color, keepDrawn, plotLibrary, swatch } from './plot.js'

const HEIGHT = 160
const MINUTES = 60
const MINUTE_MS = 60_000
const TITLE = 'The last hour'

const clock = seconds => new Date(seconds * 1000).toISOString().slice(11, 16)

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

/** @returns {{ element: HTMLElement, show: (minutes: any[]) => void, remove: () => void }} */
export function hourChart() {
  const element = h('figure.chart')
  /** @type {{ current: () => any, remove: () => void } | undefined} */
  let drawn
  let turn = 0
  return {
    element,
    show(minutes) {
      const own = ++turn
      const sum = member => minutes.reduce((all, each) => all + each[member], 0)
      const [served, errors] = [sum('served'), sum('errors')]
      const summary =
        served + errors === 0
          ? 'No request ended in this hour.'
          : `${number(served)} requests were served, and ${number(errors)} failed.`
      const plot = h('div.live', { role: 'img', 'aria-label': `${TITLE}. ${summary}` })
      const legend = [h('li', swatch(1), 'served in a minute'), h('li', swatch(5), 'errors')]
      drawn?.remove()
      drawn = undefined
      const isEmpty = served + errors === 0
      fill(
        element,
        h('figcaption', h('strong', TITLE), ' ', h('span.muted', summary)),
        !isEmpty && plot,
        !isEmpty && h('ul.legend', legend),
      )
      if (isEmpty) return
      const last = Math.floor(Date.now() / MINUTE_MS)
      const at = new Map(minutes.map(each => [Date.parse(each.at) / MINUTE_MS, each]))
      const all = Array.from({ length: MINUTES }, (_, index) => last - MINUTES + 1 + index)
      const points = [
        all.map(minute => minute * 60),
        all.map(minute => at.get(minute)?.served ?? 0),
        all.map(minute => at.get(minute)?.errors ?? 0),
      ]
      void plotLibrary.then(UPlot => {
        if (!UPlot) plot.classList.add('absent')
        else if (own === turn) drawn = keepDrawn(plot, HEIGHT, width => new UPlot(optionsOf(width), points, plot))
      })
    },
    remove() {
      turn++
      drawn?.remove()
    },
  }
}
