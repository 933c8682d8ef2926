/** A charge as a table: what was used, at which price, and what it comes to. */
import { h } from './dom.js'
import { amount, number } from './format.js'

/**
 * Shows the products of an entry's charge, and their total. Shows nothing if it was not charged.
 * @param {any} entry
 */
export function chargeTable(entry) {
  const products = (entry.unit_prices ?? []).flatMap(part =>
    part.products.map(product => ({ ...product, model: part.model, factors: part.factors })),
  )
  if (products.length === 0) return undefined
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'How the charge came about' },
    h(
      'table',
      {},
      h('caption', {}, 'How the charge came about'),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          h('th', { scope: 'col' }, 'Product'),
          ['Count', 'Price in credits', 'Credits'].map(name => h('th', { scope: 'col', class: 'num' }, name)),
        ),
      ),
      h(
        'tbody',
        {},
        products.map(({ name, count, price, per, credits, model, factors }) =>
          h(
            'tr',
            {},
            h('th', { scope: 'row' }, [model, name.replaceAll('_', ' ')].filter(Boolean).join(': ')),
            h('td', { class: 'num' }, number(count)),
            h(
              'td',
              { class: 'num' },
              `${amount(price, 9)} per ${per === 'call' ? per : 'million'}${factorsOf(factors, per)}`,
            ),
            h('td', { class: 'num' }, amount(credits, 9)),
          ),
        ),
      ),
      h(
        'tfoot',
        {},
        h(
          'tr',
          {},
          h('th', { scope: 'row', colspan: '3' }, 'Total, rounded up once'),
          h('td', { class: 'num' }, h('strong', {}, amount(entry.cost, 9))),
        ),
      ),
    ),
  )
}

/** Factors apply to tokens, and not to fees. */
function factorsOf(factors, per) {
  if (!factors || per === 'call') return ''
  return Object.values(factors)
    .map(({ name, factor }) => ` × ${amount(factor, 9)} (${name})`)
    .join('')
}
