/** The statement of a key: everything that changed its balance, newest first. */
import { read, send } from './api.js'
import { button, fill, h, icon } from './dom.js'
import { amount } from './format.js'
import { save } from './give.js'
import { statementTable } from './lines.js'

const PATH = '/api/v1/key-info/history?kind=all'
const PAGE = 50

/** @param {Element} panel */
export function statementPanel(panel) {
  const list = h('div', {})
  const sums = h('p', { class: 'muted' })
  /** @type {(string | undefined)[]} the cursors of the pages before */
  const back = []
  let cursor
  const load = async () => {
    list.setAttribute('aria-busy', 'true')
    try {
      const query = new URLSearchParams({ page_size: String(PAGE), ...(cursor && { cursor }) })
      show(await read(`${PATH}&${query}`))
    } catch (thrown) {
      fill(list, h('p', { class: 'fault', role: 'alert' }, thrown instanceof Error ? thrown.message : ''))
    } finally {
      list.removeAttribute('aria-busy')
    }
  }
  const show = page => {
    const { booked, balance, held, not_booked: open } = page.sums
    fill(
      sums,
      `${amount(booked)} credits are booked: ${amount(balance)} can be spent`,
      held > 0 && `, ${amount(held)} are held for running requests`,
      open !== 0 && `, ${amount(open)} are not booked yet`,
      '.',
    )
    const newer = button(
      'Newer',
      () => {
        cursor = back.pop()
        return load()
      },
      { class: 'button small', disabled: back.length === 0 },
    )
    const older = button(
      'Older',
      () => {
        back.push(cursor)
        cursor = page.next_cursor
        return load()
      },
      { class: 'button small', disabled: !page.has_more },
    )
    fill(
      list,
      page.data.length === 0 ? h('p', { class: 'empty' }, 'Nothing is booked yet.') : statementTable(page.data),
      h('div', { class: 'row end' }, newer, older),
    )
  }
  const csv = button([icon('download'), 'Download as CSV'], async () => {
    const response = await send(`${PATH}&format=csv`, { headers: { accept: 'text/csv' } })
    save('statement.csv', await response.blob(), 'text/csv')
  })
  fill(
    panel,
    h(
      'section',
      { class: 'card stack' },
      sums,
      h('div', { class: 'row' }, csv, h('span', { class: 'muted' }, 'All times are UTC.')),
      list,
    ),
  )
  void load()
}
