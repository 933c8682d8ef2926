/** A charge as a table: what was used, at which price, and what it comes to. */
import { h } from './dom.js'
import { amount, number, ofNano } from './format.js'
import { tableOf } from './table.js'

/** @type {import('./table.js').Column[]} */
const PRODUCT_COLUMNS = [
  {
    name: 'Product',
    heading: true,
    cell: ({ model, name }) => [model, name.replaceAll('_', ' ')].filter(Boolean).join(': '),
  },
  { name: 'Count', number: true, cell: ({ count }) => number(count) },
  {
    name: 'Price in credits',
    number: true,
    cell: ({ price, per, factors }) =>
      `${amount(price, 9)} per ${per === 'call' ? per : 'million'}${factorsOf(factors, per)}`,
  },
  { name: 'Credits', number: true, cell: ({ credits }) => amount(credits, 9) },
]

/** What an entry took from each purse, as names with exact amounts. A refund gives back. @param {any} entry */
export function pursesOf(entry) {
  return [
    ['of the plan', entry.plan_nano],
    ['of the balance', entry.credits_nano],
    ['waived, since an earlier sending was charged', entry.waived_nano],
  ].filter(([, nano]) => nano !== '0')
}

/** Says what was paid, and from where. @param {any} entry */
export function paidWords(entry) {
  const purses = pursesOf(entry).map(([name, nano]) => `${ofNano(nano)} credits ${name}`)
  return purses.length === 0 ? 'nothing' : purses.join(', ')
}

/** What was paid, in a table. @param {any} entry */
export function paidCell(entry) {
  const isOfPlan = entry.paid_from === 'plan' || entry.paid_from === 'both'
  return h('span', { title: paidWords(entry) }, amount(entry.cost, 6), isOfPlan && h('span.muted', ' plan'))
}

/**
 * Shows the products of an entry's charge, and their total. Shows nothing if it was not charged.
 * @param {any} entry
 */
export function chargeTable(entry) {
  const products = (entry.unit_prices ?? []).flatMap(part =>
    part.products.map(product => ({ ...product, model: part.model, factors: part.factors })),
  )
  if (products.length === 0) return undefined
  const line = (name, nano) =>
    h('tr', h('th', { scope: 'row', colspan: '3' }, name), h('td.num', h('strong', ofNano(nano))))
  const purses = pursesOf(entry)
  const isOfBalance = entry.paid_from === 'credits' && purses.length === 1
  const foot = [
    line('Total, rounded up once', entry.total_nano),
    !isOfBalance && purses.map(([name, nano]) => line(name, nano)),
  ]
  return tableOf('How the charge came about', PRODUCT_COLUMNS, products, { foot })
}

/** Factors apply to tokens, and not to fees. */
function factorsOf(factors, per) {
  if (!factors || per === 'call') return ''
  return Object.values(factors)
    .map(({ name, factor }) => ` × ${amount(factor, 9)} (${name})`)
    .join('')
}
