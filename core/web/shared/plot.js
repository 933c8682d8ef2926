/** What all pictures share: the library that draws them, and the colours of the page. */

import { h } from './dom.js'

/**
 * The library, or undefined. It cannot be loaded in a browser without a valid language; pages must work without it.
 * @type {Promise<any>}
 */
// @ts-expect-error It is served beside this file, from its package.
export const plotLibrary = import('./uplot.js').then(
  module => module.default,
  () => undefined,
)

/** Returns the value of a colour of the page, as it is in light or dark at this moment. @param {string} name */
export function color(name) {
  const probe = document.body.appendChild(document.createElement('i'))
  // With forced colours, all would be the colour of text.
  probe.style.forcedColorAdjust = 'none'
  probe.style.color = `var(${name})`
  const shown = getComputedStyle(probe).color
  probe.remove()
  return shown
}

/** Returns the mark of a series in a legend. @param {number} series from 1 on */
export function swatch(series) {
  return h('i.swatch', { vars: { '--color': `var(--series-${series})` } })
}

/** How axes look. */
export function axisStyle() {
  return {
    stroke: color('--muted'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui',
  }
}

/**
 * Keeps a picture as wide as its place, and draws it again when the colours change.
 * @param {HTMLElement} place @param {number} height in pixels
 * @param {(width: number) => any} draw returns a picture of uPlot
 * @returns {{ current: () => any, remove: () => void }}
 */
export function keepDrawn(place, height, draw) {
  const width = () => Math.max(place.clientWidth, 200)
  let picture = draw(width())
  const again = () => {
    picture.destroy()
    picture = draw(width())
  }
  const sized = new ResizeObserver(() => picture.setSize({ width: width(), height }))
  sized.observe(place)
  const themed = new MutationObserver(again)
  themed.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] })
  const scheme = matchMedia('(prefers-color-scheme: dark)')
  scheme.addEventListener('change', again)
  return {
    current: () => picture,
    remove() {
      sized.disconnect()
      themed.disconnect()
      scheme.removeEventListener('change', again)
      picture.destroy()
    },
  }
}
