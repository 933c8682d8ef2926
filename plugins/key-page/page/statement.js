/** The statement of a key: everything that changed its balance, newest first. */
import { send } from './api.js'
import { button, fill, h, icon } from './dom.js'
import { amount } from './format.js'
import { save } from './give.js'
import { LINE_COLUMNS } from './lines.js'
import { pages } from './pages.js'
import { tableOf } from './table.js'

const PATH = '/api/v1/key-info/history?kind=all'

/** @param {Element} panel */
export function statementPanel(panel) {
  const sums = h('p.muted')
  const list = pages(
    query => `${PATH}&${new URLSearchParams(query)}`,
    page => {
      const { booked, balance, held, not_booked: open, plan_left: planLeft } = page.sums
      fill(
        sums,
        planLeft && `Left of your plan: ${planLeft}. `,
        `${amount(booked)} credits are booked: ${amount(balance)} can be spent`,
        held > 0 && `, ${amount(held)} are held for running requests`,
        open !== 0 && `, ${amount(open)} are not booked yet`,
        '.',
      )
      return page.data.length === 0
        ? h('p.empty', 'Nothing is booked yet.')
        : tableOf('Statement, newest first', LINE_COLUMNS, page.data, { class: 'cards' })
    },
  )
  const csv = button([icon('download'), 'Download as CSV'], async () => {
    const response = await send(`${PATH}&format=csv`, { headers: { accept: 'text/csv' } })
    save('statement.csv', await response.blob(), 'text/csv')
  })
  fill(panel, h('section.card.stack', sums, h('div.row', csv, h('span.muted', 'All times are UTC.')), list.element))
  void list.first()
}
