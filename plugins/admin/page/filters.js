/** Filters that stand in the address, so that a reload and a link show the same; and times that are asked for often. */
import { h } from './dom.js'
import { lastDays } from './format.js'

/** How many days each covers, and how many days ago it ends. @type {[string, number, number][]} */
const TIMES = [
  ['Today', 1, 0],
  ['Yesterday', 1, 1],
  ['7 days', 7, 0],
  ['30 days', 30, 0],
]

/** Buttons that set the first and the last day. @param {any} from @param {any} to both are inputs of a day */
export function times(from, to) {
  const buttons = TIMES.map(([name, days, ago]) => {
    const element = h('button', { type: 'button', class: 'button small' }, name)
    element.addEventListener('click', () => {
      const all = lastDays(days + ago).slice(0, days)
      from.value = all[0]
      to.value = all.at(-1)
      from.dispatchEvent(new Event('input', { bubbles: true }))
    })
    return element
  })
  return h('div.times', { role: 'group', 'aria-label': 'Time' }, buttons)
}

/** Sets controls to what the address says. @param {Record<string, any>} controls by name */
export function fromAddress(controls) {
  for (const [name, value] of new URLSearchParams(location.hash.split('?')[1] ?? ''))
    if (Object.hasOwn(controls, name)) controls[name].value = value
}

/** Writes what controls say into the address. @param {Record<string, any>} controls by name */
export function toAddress(controls) {
  const given = Object.entries(controls).map(([name, control]) => [name, control.value.trim()])
  const query = new URLSearchParams(/** @type {any} */ (given.filter(([, value]) => value !== ''))).toString()
  const [area = ''] = location.hash.split('?')
  history.replaceState(null, '', query === '' ? area : `${area}?${query}`)
}
