/** Usage by day, model, key, type, account and status; and single requests. */
import { csvAddress, read } from './api.js'
import { dayChart } from './chart.js'
import { field, fill, h, icon, select } from './dom.js'
import { fromAddress, times, toAddress } from './filters.js'
import { paidCell } from './charge.js'
import { amount, duration, lastDays, number, short, time } from './format.js'
import { areaLink, pagedList } from './list.js'
import { moneySeries } from './money-series.js'
import { requestDialog } from './request.js'
import { tableOf } from './table.js'

const GROUPS = [
  ['model', 'Model'],
  ['key', 'Key'],
  ['type', 'Key type'],
  ['account', 'Upstream account'],
  ['day', 'Day'],
  ['status', 'Result'],
  ['code', 'Error'],
]

/** @param {HTMLElement} place */
export async function usageArea(place) {
  const days = lastDays(30)
  const by = select(GROUPS)
  const from = h('input', { type: 'date', value: days[0] })
  const to = h('input', { type: 'date', value: days.at(-1) })
  const chart = h('section.card')
  const table = h('section.card.stack')
  let removeChart = () => {}
  let turn = 0
  const controls = { by, from, to }
  fromAddress(controls)
  const form = h('form.filters', field('By', by), field('From (UTC)', from), field('To (UTC)', to), times(from, to))
  form.addEventListener('submit', event => event.preventDefault())
  fill(place, h('h1', 'Usage'), h('section.card', form), chart, table)

  const load = async () => {
    const own = ++turn
    const query = new URLSearchParams({ limit: '500', by: by.value, from: from.value, to: to.value })
    const [groups, byDay] = await Promise.all([
      read(`/usage?${query}`),
      read(`/usage?${new URLSearchParams({ limit: '500', by: 'day', from: from.value, to: to.value })}`),
    ])
    if (own !== turn) return
    fill(
      table,
      usageTable(groups.data, by.value),
      h(
        'div.row.end',
        h('a.button.small', { href: csvAddress('/usage', query), download: '' }, icon('download'), 'CSV'),
      ),
    )
    const span = daysBetween(from.value, to.value)
    const rows = new Map(byDay.data.map(each => [each.group, each]))
    const values = member => span.map(each => Number(rows.get(each)?.[member] ?? 0))
    removeChart()
    removeChart = await dayChart(chart, {
      title: 'Credits by day',
      days: span,
      series: moneySeries(values),
    })
  }
  form.addEventListener('input', () => {
    toAddress(controls)
    void load()
  })
  await load()
  return () => removeChart()
}

function daysBetween(from, to) {
  const days = []
  for (let at = Date.parse(from); at <= Date.parse(to) && days.length < 400; at += 86_400_000)
    days.push(new Date(at).toISOString().slice(0, 10))
  return days
}

const ofCost = (row, member) => (Number(row.cost) > 0 ? amount(row[member]) : '–')

const COLUMNS = Object.entries({
  Requests: row => number(row.requests),
  Errors: row => number(row.errors),
  Refused: row => number(row.refused),
  Input: row => short(row.input + row.cache_read + row.cache_write),
  Output: row => short(row.output),
  Credits: row => amount(row.credits),
  'Your cost': row => ofCost(row, 'cost'),
  Margin: row => ofCost(row, 'margin'),
  'Without a cost': row => (Number(row.without_cost) > 0 ? amount(row.without_cost) : '–'),
  Median: row => duration(row.ms_p50),
  '95 %': row => duration(row.ms_p95),
}).map(([name, cell]) => ({ name, number: true, cell }))

function usageTable(rows, by) {
  const [, name = ''] = GROUPS.find(([value]) => value === by) ?? []
  const group = row => (by === 'key' ? areaLink(`#/key/${row.group}`, row.name || row.group) : row.group || '–')
  const columns = [{ name, heading: true, class: 'break', cell: group }, ...COLUMNS]
  return tableOf(`Usage by ${name}`, columns, rows, { class: 'cards', empty: 'Nothing was used in this time.' })
}

/** @param {HTMLElement} place @param {string[]} _path @param {any} session */
export function requestsArea(place, _path, session) {
  const list = h('div')
  fill(place, h('h1', 'Requests'), list)
  requestList(list, { path: '/history', fixed: {}, withKey: true, session })
}

const TONES = { ok: 'good', failed: 'bad', broken: 'bad', client_gone: 'warn', budget: 'warn', disabled: 'warn' }

/** Shows requests. @param {HTMLElement} place @param {{ path: string, fixed: Record<string, string>, withKey: boolean, session: any }} what */
export function requestList(place, { path, fixed, withKey, session }) {
  const filters = {
    model: h('input', { placeholder: 'All', autocomplete: 'off' }),
    status: select([['', 'All'], ...Object.keys(TONES).map(each => [each, each])]),
    from: h('input', { type: 'date' }),
    to: h('input', { type: 'date' }),
    ...(withKey && { account: h('input', { placeholder: 'All', autocomplete: 'off' }) }),
  }
  const list = pagedList(place, {
    path,
    fixed,
    address: true,
    caption: 'Requests, newest first',
    filters,
    labels: [
      field('Model', filters.model),
      field('Result', filters.status),
      field('From (UTC)', filters.from),
      field('To (UTC)', filters.to),
      withKey && field('Account', filters.account),
      times(filters.from, filters.to),
    ],
    empty: 'No request matches.',
    columns: [
      {
        name: 'Time (UTC)',
        heading: true,
        cell: row =>
          h(
            'button',
            {
              type: 'button',
              class: 'rowlink nowrap',
              on: { click: () => requestDialog(row, { session, reload: () => list.reload() }) },
            },
            time(row.created_at),
          ),
      },
      ...(withKey ? [{ name: 'Key', cell: row => areaLink(`#/key/${row.key}`, row.key_name || row.key) }] : []),
      { name: 'Model', cell: row => h('div.clip.mono', { title: row.model }, row.model ?? '–') },
      {
        name: 'Result',
        cell: row =>
          h(
            'span',
            { class: `chip ${TONES[row.status] ?? ''}` },
            row.type === 'credit' ? 'refund' : (row.status ?? row.type),
          ),
      },
      { name: 'Input', number: true, wide: true, cell: row => number(row.input_tokens) },
      { name: 'Output', number: true, wide: true, cell: row => number(row.output_tokens) },
      { name: 'Credits', number: true, cell: paidCell },
      { name: 'Account', wide: true, cell: row => row.upstream ?? '–' },
      { name: 'Took', number: true, wide: true, cell: row => duration(row.duration_ms) },
    ],
  })
}
