/** A charge as a table: what was used, at which price, and what it comes to. */
import { h } from './dom.js'
import { amount, number } from './format.js'
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

/**
 * Shows the products of an entry's charge, and their total. Shows nothing if it was not charged.
 * @param {any} entry
 */
export function chargeTable(entry) {
  const products = (entry.unit_prices ?? []).flatMap(part =>
    part.products.map(product => ({ ...product, model: part.model, factors: part.factors })),
  )
  if (products.length === 0) return undefined
  const foot = h(
    'tr',
    {},
    h('th', { scope: 'row', colspan: '3' }, 'Total, rounded up once'),
    h('td', { class: 'num' }, h('strong', {}, amount(entry.cost, 9))),
  )
  return tableOf('How the charge came about', PRODUCT_COLUMNS, products, { foot })
}

/** Factors apply to tokens, and not to fees. */
function factorsOf(factors, per) {
  if (!factors || per === 'call') return ''
  return Object.values(factors)
    .map(({ name, factor }) => ` × ${amount(factor, 9)} (${name})`)
    .join('')
}
