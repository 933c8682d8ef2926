/** Tables. */
import { h } from './dom.js'

/**
 * A column: its name, and what it shows of a row. A heading names the row, and a wide column is left out on a phone. `sort` is
 * the order by which a list in pages can be sorted.
 * @typedef {{ name: string, number?: boolean, heading?: boolean, wide?: boolean, class?: string, sort?: string,
 *   title?: (row: any) => string, cell: (row: any) => any }} Column
 */

/**
 * Shows rows.
 * @param {string} caption @param {readonly Column[]} columns @param {readonly any[]} rows
 * @param {{ class?: string, foot?: any, empty?: string }} [more] with the class `cards`, each row is a card on a phone
 */
export function tableOf(caption, columns, rows, { class: className = '', foot, empty = '' } = {}) {
  const body = rows.length === 0 && empty !== '' ? emptyRow(columns, empty) : rows.map(row => rowOf(row, columns))
  return scrolling(caption, className, columns.map(headOf), h('tbody', body), foot && h('tfoot', foot))
}

/** @param {string} caption @param {string} className @param {any[]} heads @param {any[]} parts */
export function scrolling(caption, className, heads, ...parts) {
  const head = h('thead', h('tr', heads))
  return h(
    'div.scroll',
    { tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', { class: className || false }, h('caption', caption), head, parts),
  )
}

/** @param {Column} column */
export function classOf(column) {
  return [column.number && 'num', column.wide && 'wide'].filter(Boolean).join(' ') || false
}

/** @param {Column} column */
function headOf(column) {
  return h('th', { scope: 'col', class: classOf(column) }, column.name)
}

/** @param {any} row @param {readonly Column[]} columns */
export function rowOf(row, columns) {
  return h(
    'tr',
    columns.map(column => {
      const { name, heading, title, cell } = column
      const own = [classOf(column), column.class].filter(Boolean).join(' ')
      const props = { class: own || false, title: title?.(row) ?? false }
      return heading
        ? h('th', { ...props, scope: 'row' }, cell(row))
        : h('td', { ...props, 'data-label': name }, cell(row))
    }),
  )
}

/** @param {readonly Column[]} columns @param {string} words */
export function emptyRow(columns, words) {
  return h('tr', h('td.empty', { colspan: String(columns.length) }, words))
}
