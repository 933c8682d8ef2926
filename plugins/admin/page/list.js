/** Lists that come in pages: filters above, a table, and the buttons to the next page. */
import { csvAddress, read } from './api.js'
import { debounced, fill, h, icon } from './dom.js'
import { fromAddress, toAddress } from './filters.js'
import { pager } from './pager.js'

const PAGE = 100

/**
 * @typedef {{ name: string, sort?: string, number?: boolean, cell: (row: any) => any, heading?: boolean, wide?: boolean }} Column
 */

/**
 * Shows a list.
 * @param {HTMLElement} place
 * @param {{ path: string, caption: string, columns: Column[], filters?: Record<string, any>, fixed?: Record<string, string>,
 *   labels?: any[], actions?: any[], empty?: string, none?: string, sort?: string, className?: string, csv?: boolean, address?: boolean }} list `filters` has a
 *   control for each member of the query; `address`: they stand in the address
 * @returns {{ reload: () => Promise<void> }}
 */
export function pagedList(
  place,
  {
    path,
    caption,
    columns,
    filters = {},
    fixed = {},
    labels = [],
    actions = [],
    empty = 'Nothing matches.',
    none = 'There is nothing here yet.',
    sort,
    className = '',
    csv = true,
    address = false,
  },
) {
  const pages = pager(load, ['Previous', 'Next'])
  let order = sort
  /** @type {AbortController | undefined} */
  let running
  const body = h('tbody', {})
  const foot = h('div', { class: 'row end' })
  const fault = h('div', {})
  const heads = columns.map(column => headOf(column))
  const table = h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { class: `cards ${className}` }, h('caption', {}, caption), h('thead', {}, h('tr', {}, heads)), body),
  )

  function headOf(column) {
    const props = { scope: 'col', class: [column.number && 'num', column.wide && 'wide'].filter(Boolean).join(' ') }
    if (!column.sort) return h('th', props, column.name)
    const press = h('button', { type: 'button', class: 'sort' }, column.name)
    press.addEventListener('click', () => {
      order = order === `-${column.sort}` ? column.sort : `-${column.sort}`
      void first()
    })
    return h('th', { ...props, 'aria-sort': 'none' }, press)
  }

  function query() {
    const given = Object.entries(filters).map(([name, control]) => [name, control.value.trim()])
    const all = [...Object.entries(fixed), ...given, ['sort', order ?? '']].filter(([, value]) => value !== '')
    return new URLSearchParams(/** @type {any} */ (all))
  }

  async function load() {
    running?.abort()
    running = new AbortController()
    const { signal } = running
    body.setAttribute('aria-busy', 'true')
    const wanted = query()
    wanted.set('limit', String(PAGE))
    if (pages.cursor) wanted.set('cursor', pages.cursor)
    try {
      show(await read(`${path}?${wanted}`, signal))
      fill(fault)
    } catch (thrown) {
      if (signal.aborted) return
      fill(fault, h('p', { class: 'fault', role: 'alert' }, thrown instanceof Error ? thrown.message : ''))
    } finally {
      if (!signal.aborted) body.removeAttribute('aria-busy')
    }
  }

  function show(page) {
    columns.forEach((column, at) => {
      if (!column.sort) return
      const direction = { [column.sort]: 'ascending', [`-${column.sort}`]: 'descending' }[order ?? ''] ?? 'none'
      heads[at].setAttribute('aria-sort', direction)
    })
    if (page.data.length === 0)
      fill(body, h('tr', {}, h('td', { class: 'empty', colspan: String(columns.length) }, emptyWords(page))))
    else fill(body, page.data.map(rowOf))
    const from = pages.pagesBefore * PAGE + 1
    const range =
      page.data.length === 0 ? '' : `${from} to ${from + page.data.length - 1}${page.has_more ? ' of more' : ''}`
    fill(
      foot,
      h('span', { class: 'muted' }, range),
      csv && h('a', { class: 'button small', href: csvAddress(path, query()), download: '' }, icon('download'), 'CSV'),
      pages.buttons(page),
    )
  }

  function emptyWords(page) {
    if (page.has_more) return 'None among those that were looked at. Go on to older ones.'
    return Object.values(filters).some(({ value }) => value.trim() !== '') ? empty : none
  }

  function rowOf(row) {
    return h(
      'tr',
      {},
      columns.map(column => {
        const props = { class: [column.number && 'num', column.wide && 'wide'].filter(Boolean).join(' ') || false }
        return column.heading
          ? h('th', { ...props, scope: 'row' }, column.cell(row))
          : h('td', { ...props, 'data-label': column.name }, column.cell(row))
      }),
    )
  }

  function first() {
    if (address) toAddress(filters)
    return pages.first()
  }

  if (address) fromAddress(filters)
  const form = h('form', { class: 'filters', role: 'search' }, labels)
  const later = debounced(() => void first())
  form.addEventListener('submit', event => {
    event.preventDefault()
    void first()
  })
  form.addEventListener('input', later)
  fill(
    place,
    h(
      'section',
      { class: 'card stack' },
      labels.length > 0 && form,
      actions.length > 0 && h('div', { class: 'row' }, actions),
      fault,
      table,
      foot,
    ),
  )
  void load()
  return { reload: load }
}

/** A link to another area that looks like what it names. @param {string} href @param {any} text */
export function areaLink(href, text) {
  return h('a', { href }, text)
}
