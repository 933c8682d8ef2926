/** The requests of a key, newest first. */
import { send } from './api.js'
import { button, field, fill, h, icon, select } from './dom.js'
import { openDialog } from './dialog.js'
import { amount, number, time } from './format.js'
import { chargeTable, paidCell, paidWords } from './charge.js'
import { save } from './give.js'
import { took } from './overview.js'
import { pages } from './pages.js'
import { tableOf } from './table.js'

const STATUS = {
  ok: ['ok', 'good'],
  failed: ['failed', 'bad'],
  client_gone: ['you left', 'warn'],
  broken: ['broken off', 'bad'],
  budget: ['credits used up', 'warn'],
  disabled: ['key disabled', 'warn'],
}

/** @param {Element} panel @param {any} info */
export function historyPanel(panel, info) {
  const models = [...new Set([...info.model_stats.map(({ model }) => model), ...info.models])]
  const filters = {
    model: select([['', 'All models'], ...models.map(id => [id, id])]),
    status: select([['', 'All'], ...Object.entries(STATUS).map(([value, [label]]) => [value, label])]),
    from: h('input', { type: 'date' }),
    to: h('input', { type: 'date' }),
  }
  const query = (more = {}) => {
    const wanted = Object.entries(filters).map(([name, { value }]) => [name, value])
    const all = [...wanted, ...Object.entries(more)].filter(([, value]) => value)
    return new URLSearchParams(/** @type {any} */ (all)).toString()
  }
  const list = pages(
    more => `/api/v1/key-info/history?${query(more)}`,
    page =>
      page.data.length === 0
        ? h('p.empty', emptyWords(page))
        : tableOf('Requests, newest first', COLUMNS, page.data, { class: 'cards' }),
  )
  const form = h(
    'form.fields',
    field('Model', filters.model),
    field('Result', filters.status),
    field('From (UTC)', filters.from),
    field('To (UTC)', filters.to),
  )
  form.addEventListener('submit', event => event.preventDefault())
  form.addEventListener('change', () => void list.first())
  const csv = button([icon('download'), 'Download as CSV'], async () => {
    const response = await send(`/api/v1/key-info/history?${query({ format: 'csv' })}`, {
      headers: { accept: 'text/csv' },
    })
    save('history.csv', await response.blob(), 'text/csv')
  })
  fill(panel, h('section.card.stack', form, h('div.row', csv, h('span.muted', 'All times are UTC.')), list.element))
  void list.first()
}

function emptyWords({ has_more: hasMore }) {
  return hasMore ? 'None among the newest. Older ones may match.' : 'No request matches.'
}

/** @type {import('./table.js').Column[]} */
const COLUMNS = [
  {
    name: 'Time',
    heading: true,
    class: 'nowrap',
    cell: entry =>
      h('button', { type: 'button', class: 'rowlink', on: { click: () => details(entry) } }, time(entry.created_at)),
  },
  { name: 'Model', class: 'mono clip', title: entry => entry.model, cell: entry => entry.model ?? '–' },
  { name: 'Result', cell: resultOf },
  { name: 'Input', number: true, wide: true, cell: entry => number(entry.input_tokens) },
  { name: 'Output', number: true, wide: true, cell: entry => number(entry.output_tokens) },
  { name: 'Credits', number: true, cell: paidCell },
  { name: 'Left', number: true, wide: true, cell: entry => amount(entry.balance_after) },
  { name: 'Time taken', class: 'nowrap', wide: true, cell: took },
]

function resultOf(entry) {
  const [label, tone] =
    entry.type === 'credit' ? ['refund', 'good'] : (STATUS[entry.status] ?? [entry.status ?? entry.type, ''])
  return h('span', { class: `chip ${tone}` }, label)
}

/** What a customer is told of a request that failed, by the code of its error. */
const FAILED = {
  upstream_failed: 'The provider failed.',
  upstream_timeout: 'The provider did not answer in time.',
  overloaded: 'The provider is overloaded.',
  upstream_rejected: 'The provider rejected the request.',
  unavailable: 'The gateway could not serve it.',
  internal: 'The gateway failed.',
}

/** @param {any} entry */
function outcome(entry) {
  const { status, http_status: httpStatus, error_code: code, cost, type } = entry
  if (type === 'credit' || status === 'ok') return undefined
  const words = FAILED[code] ?? (status === 'broken' ? 'The reply broke off.' : undefined)
  const charge = cost === 0 ? 'You were not charged.' : `You were charged ${paidWords(entry)} for what you received.`
  return words && h('p', `${words} ${charge}`, httpStatus ? h('span.muted', ` (status ${httpStatus})`) : '')
}

/** Shows how a charge came about. */
function details(entry) {
  const { body } = openDialog('Request', { wide: true })
  const facts = [
    ['Request id', entry.request_id],
    ['Time', `${time(entry.created_at)} UTC`],
    ['Endpoint', entry.endpoint],
    [
      'Model',
      entry.requested_model === entry.model ? entry.model : `${entry.model} (asked for as ${entry.requested_model})`,
    ],
    ['Answered by', entry.served_model === entry.model ? '' : entry.served_model],
    [
      'Result',
      [entry.status, entry.http_status && `status ${entry.http_status}`, entry.error_code].filter(Boolean).join(', '),
    ],
    ['Time taken', took(entry)],
    ['Counted by', entry.usage_source === 'estimated' ? 'an estimate of the gateway' : 'the provider'],
    ['Charge', paidWords(entry)],
    ['Credits left after it', amount(entry.balance_after, 9)],
    ['Refund', entry.credit_reason],
  ].filter(([, value]) => value)
  fill(
    body,
    outcome(entry),
    h(
      'dl.stack',
      facts.map(([name, value]) => h('div.row.apart', h('dt.muted', name), h('dd.break', value))),
    ),
    chargeTable(entry),
  )
}
