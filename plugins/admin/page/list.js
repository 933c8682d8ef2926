/** Lists that come in pages: filters above, a table, and the buttons to the next page. */
import { csvAddress, read } from './api.js'
import { debounced, fill, h, icon } from './dom.js'
import { fromAddress, toAddress } from './filters.js'
import { pager } from './pager.js'
import { classOf, emptyRow, rowOf, scrolling } from './table.js'

const PAGE = 100

/** @typedef {import('./table.js').Column} Column */

/**
 * Shows a list.
 * @param {HTMLElement} place
 * @param {{ path: string, caption: string, columns: Column[], filters?: Record<string, any>, fixed?: Record<string, string>,
 *   labels?: any[], actions?: any[], empty?: string, none?: string, sort?: string, className?: string, csv?: boolean, address?: boolean }} list `filters` has a
 *   control for each member of the query; `address`: they stand in the address
 * @returns {{ reload: () => Promise<void> }}
 */
export function pagedList(place, list) {
  const given = { ...DEFAULTS, ...list }
  const { path, caption, columns, filters, fixed, labels, actions, className, csv, address } = given
  const pages = pager(load, ['Previous', 'Next'])
  let order = list.sort
  /** @type {AbortController | undefined} */
  let running
  const body = h('tbody')
  const foot = h('div.row.end')
  const fault = h('div')
  const heads = columns.map(column => headOf(column, sortBy))
  const table = scrolling(caption, `cards ${className}`, heads, body)

  function sortBy(name) {
    order = order === `-${name}` ? name : `-${name}`
    void first()
  }

  const query = () => queryOf(filters, fixed, order)

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
      fill(fault, h('p.fault', { role: 'alert' }, thrown instanceof Error ? thrown.message : ''))
    } finally {
      if (!signal.aborted) body.removeAttribute('aria-busy')
    }
  }

  function show(page) {
    columns.forEach((column, at) => column.sort && heads[at].setAttribute('aria-sort', directionOf(column.sort, order)))
    const isFiltered = Object.values(filters).some(({ value }) => value.trim() !== '')
    fill(body, rowsOf(page, columns, isFiltered ? given.empty : given.none))
    fill(
      foot,
      h('span.muted', rangeOf(page, pages.pagesBefore)),
      csv && h('a.button.small', { href: csvAddress(path, query()), download: '' }, icon('download'), 'CSV'),
      pages.buttons(page),
    )
  }

  function first() {
    if (address) toAddress(filters)
    return pages.first()
  }

  if (address) fromAddress(filters)
  const form = labels.length > 0 && filterForm(labels, () => void first())
  const buttons = actions.length > 0 && h('div.row', actions)
  fill(place, h('section.card.stack', form, buttons, fault, table, foot))
  void load()
  return { reload: load }
}

const DEFAULTS = {
  filters: {},
  fixed: {},
  labels: [],
  actions: [],
  empty: 'Nothing matches.',
  none: 'There is nothing here yet.',
  className: '',
  csv: true,
  address: false,
}

/** @param {Record<string, any>} filters @param {Record<string, string>} fixed @param {string | undefined} order */
function queryOf(filters, fixed, order) {
  const given = Object.entries(filters).map(([name, control]) => [name, control.value.trim()])
  const all = [...Object.entries(fixed), ...given, ['sort', order ?? '']].filter(([, value]) => value !== '')
  return new URLSearchParams(/** @type {any} */ (all))
}

/** A form that searches again when a filter has changed. @param {any[]} labels @param {() => void} search */
function filterForm(labels, search) {
  const form = h('form.filters', { role: 'search' }, labels)
  form.addEventListener('submit', event => {
    event.preventDefault()
    search()
  })
  form.addEventListener('input', debounced(search))
  return form
}

/** @param {Column} column @param {(name: string) => void} sortBy */
function headOf(column, sortBy) {
  const { sort, name } = column
  const props = { scope: 'col', class: classOf(column) }
  if (!sort) return h('th', props, name)
  const press = h('button', { type: 'button', class: 'sort' }, name)
  press.addEventListener('click', () => sortBy(sort))
  return h('th', { ...props, 'aria-sort': 'none' }, press)
}

/** @param {string} name @param {string | undefined} order */
function directionOf(name, order) {
  return { [name]: 'ascending', [`-${name}`]: 'descending' }[order ?? ''] ?? 'none'
}

/** @param {any} page @param {Column[]} columns @param {string} empty what an empty list says */
function rowsOf(page, columns, empty) {
  if (page.data.length > 0) return page.data.map(row => rowOf(row, columns))
  const words = page.has_more ? 'None among those that were looked at. Go on to older ones.' : empty
  return emptyRow(columns, words)
}

function rangeOf(page, pagesBefore) {
  if (page.data.length === 0) return ''
  const from = pagesBefore * PAGE + 1
  return `${from} to ${from + page.data.length - 1}${page.has_more ? ' of more' : ''}`
}

/** A link to another area that looks like what it names. @param {string} href @param {any} text */
export function areaLink(href, text) {
  return h('a', { href }, text)
}
