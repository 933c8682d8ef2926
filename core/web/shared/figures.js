/** Numbers at a glance. */
import { h } from './dom.js'
import { number } from './format.js'

/** Shows figures in a row, each with its name and perhaps a note. @param {any[][]} rows of name, value and note */
export function figures(rows) {
  return h(
    'dl.figures',
    rows.map(([name, value, note]) =>
      h('div', h('dt', name), h('dd', typeof value === 'number' ? number(value) : value), note && h('dd.muted', note)),
    ),
  )
}

/** From these shares on, what is used up is shown as a warning, and as a fault. */
const WARN = 0.8
const BAD = 0.95

/** Returns what part of a whole is used, from 0 to 1. @param {number} used @param {number} whole */
export function partOf(used, whole) {
  return whole > 0 ? Math.min(1, Math.max(0, used / whole)) : 1
}

/**
 * Shows a part as a bar.
 * @param {number} used from 0 to 1 @param {{ label?: string, left?: boolean }} [options] `left`: the bar is what is left;
 *   without a label, the bar only repeats what stands beside it
 */
export function meter(used, { label, left = false } = {}) {
  let tone = ''
  if (used >= BAD) tone = 'bad'
  else if (used >= WARN) tone = 'warn'
  const part = `${100 * (left ? 1 - used : used)}%`
  const named = label === undefined ? { 'aria-hidden': 'true' } : { role: 'img', 'aria-label': label }
  return h('div', { class: `meter ${tone}`, ...named }, h('i', { vars: { '--part': part } }))
}
