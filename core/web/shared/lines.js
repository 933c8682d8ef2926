/** The lines of a statement as a table. */
import { h } from './dom.js'
import { amount, number, time } from './format.js'

const TONES = { charge: '', correction: 'warn', deduction: 'warn', opening: '' }
const COLUMNS = ['No.', 'Booked', 'What', 'Credits', 'Balance']

/** @param {any[]} lines */
export function statementTable(lines) {
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Statement' },
    h(
      'table',
      { class: 'cards' },
      h('caption', {}, 'Statement, newest first'),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          COLUMNS.map((name, at) => h('th', { scope: 'col', class: at !== 1 && at !== 2 && 'num' }, name)),
        ),
      ),
      h('tbody', {}, lines.map(row)),
    ),
  )
}

function row(line) {
  const more = [
    line.model,
    line.reason,
    line.corrects !== null && `corrects no. ${number(line.corrects)}`,
    line.begun_at && line.begun_at.slice(0, 16) !== line.booked_at?.slice(0, 16) && `begun ${time(line.begun_at)}`,
  ].filter(Boolean)
  return h(
    'tr',
    {},
    h('td', { class: 'num', 'data-label': 'No.' }, number(line.number)),
    h('th', { scope: 'row', class: 'nowrap' }, time(line.booked_at)),
    h(
      'td',
      { 'data-label': 'What', title: line.id ?? '' },
      h('span', { class: `chip ${TONES[line.type] ?? 'good'}` }, line.type),
      more.length > 0 && h('span', { class: 'muted break' }, ` ${more.join('; ')}`),
    ),
    h('td', { class: 'num', 'data-label': 'Credits' }, line.type === 'opening' ? '' : amount(line.amount, 9)),
    h('td', { class: 'num', 'data-label': 'Balance' }, amount(line.balance_after, 9)),
  )
}
