/** The lines of a statement: what each shows. */
import { h } from './dom.js'
import { amount, number, time } from './format.js'

const TONES = { charge: '', correction: 'warn', deduction: 'warn', opening: '' }

/**
 * What a line shows.
 * @type {import('./table.js').Column[]}
 */
export const LINE_COLUMNS = [
  { name: 'No.', number: true, cell: line => number(line.number) },
  { name: 'Booked (UTC)', heading: true, cell: line => h('span.nowrap', time(line.booked_at)) },
  { name: 'What', cell: what },
  {
    name: 'Credits',
    number: true,
    cell: line => (line.type === 'opening' || line.amount === 0 ? '' : amount(line.amount, 9)),
  },
  { name: 'Plan', number: true, cell: line => (line.plan_amount === 0 ? '' : amount(line.plan_amount, 9)) },
  { name: 'Balance', number: true, cell: line => amount(line.balance_after, 9) },
]

function what(line) {
  const more = [
    line.model,
    line.reason,
    line.plan_left && `left of the plan: ${line.plan_left}`,
    line.corrects !== null && `corrects no. ${number(line.corrects)}`,
    line.begun_at && line.begun_at.slice(0, 16) !== line.booked_at?.slice(0, 16) && `begun ${time(line.begun_at)}`,
  ].filter(Boolean)
  return h(
    'span',
    { title: line.id ?? '' },
    h('span', { class: `chip ${TONES[line.type] ?? 'good'}` }, line.type),
    more.length > 0 && h('span.muted.break', ` ${more.join('; ')}`),
  )
}
