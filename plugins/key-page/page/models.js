/** Models with their prices. */
import { fill, h } from './dom.js'
import { amount } from './format.js'
import { tableOf } from './table.js'

/** @param {Element} panel @param {any} info */
export function modelsPanel(panel, info) {
  fill(panel, h('div.stack', h('section.card', h('h2', 'Models and prices'), priceTable(info, info.default_model))))
}

/** The tables of all key types. @param {any[]} types */
export function priceTables(types) {
  return h(
    'div.stack',
    types.map((type, at) =>
      h(
        'details',
        { open: at === 0 },
        h('summary', `${type.key_type} keys: ${type.models.length} models`),
        priceTable(type),
      ),
    ),
  )
}

const RATES = [
  ['Input', 'input'],
  ['Cached input', 'cache_read'],
  ['Cache write', 'cache_write_5m'],
  ['for an hour', 'cache_write_1h'],
  ['Output', 'output'],
]

/** @param {any} info @param {string} [standard] the default model */
function priceTable(info, standard) {
  const columns = [
    { name: 'Model', heading: true, class: 'mono nowrap', cell: price => price.model },
    ...RATES.map(([name, member]) => ({ name, number: true, cell: price => amount(price[member], 6) })),
    { name: 'Note', class: 'muted', cell: price => notes(price, info, standard) },
  ]
  return h(
    'div',
    h('p.muted', 'Credits per million tokens.'),
    tableOf(`Models and prices of ${info.key_type} keys`, columns, info.prices, { class: 'cards' }),
  )
}

function notes(price, info, standard) {
  const alias = info.aliases?.[price.model]
  const parts = [
    price.model === standard && 'default',
    alias && `same as ${alias}`,
    ...(price.tiers ?? []).map(
      tier =>
        `${amount(tier.input)} in, ${amount(tier.output)} out above ${amount(tier.above_input_tokens)} input tokens`,
    ),
    ...Object.entries(price.calls ?? {}).map(([name, fee]) => `${amount(fee)} per ${name.replaceAll('_', ' ')}`),
  ]
  return parts.filter(Boolean).join('; ') || '–'
}
