/** The windows of a plan: what is used of each, and when it begins anew. */
import { h } from './dom.js'
import { meter, partOf } from './figures.js'
import { amount, distance, number, time } from './format.js'

/** How long a window is, in words. */
const LENGTHS = { day: 'per day', '1d': 'per day', week: 'per week', '7d': 'per week', month: 'per month' }

/** Names what a window counts. @param {{ unit: string, per: string, models?: string[] | null }} window */
function nameOf({ unit, per, models }) {
  const which = models ? ` of ${models.join(', ')}` : ''
  return `${unit[0]?.toUpperCase()}${unit.slice(1)}${which} ${LENGTHS[per] ?? `in ${per}`}`
}

/**
 * Shows a window as a bar.
 * @param {{ unit: string, per: string, models?: string[] | null, limit: string | number, used: string | number,
 *   left: string | number, resetsAt: string | null }} window
 */
export function windowBar(window) {
  const { unit, limit, used, left, resetsAt } = window
  const shown = value => (unit === 'credits' ? amount(value) : number(Number(value)))
  const part = partOf(Number(used), Number(limit))
  return h(
    'div.stack',
    h('div.row.apart', h('span.break', nameOf(window)), h('strong', `${shown(left)} of ${shown(limit)} left`)),
    meter(part, { label: `${Math.round(100 * part)} % of ${nameOf(window)} used`, left: true }),
    resetsAt && h('span.muted', `resets ${distance(resetsAt)}, on ${time(resetsAt)} UTC`),
  )
}
