/** Why requests failed. The list has requests that were refused before a hold; the history does not. */
import { field, h } from './dom.js'
import { openDialog } from './dialog.js'
import { number, time } from './format.js'
import { areaLink, pagedList } from './list.js'
import { showStory } from './request.js'

const TONES = { client: '', key: 'warn', gateway: 'bad', account: 'bad', provider: 'bad' }

/** @param {HTMLElement} place */
export function failuresArea(place) {
  const list = h('div')
  const filters = {
    key: h('input', { placeholder: 'All', autocomplete: 'off' }),
    code: h('input', { placeholder: 'All', autocomplete: 'off' }),
  }
  place.replaceChildren(h('h1', 'Failures'), list)
  pagedList(list, {
    path: '/failures',
    caption: 'Why requests failed, newest first',
    address: true,
    filters,
    labels: [field('Key', filters.key), field('Code', filters.code)],
    empty: 'No failure matches.',
    none: 'No request has failed.',
    columns: [
      {
        name: 'Time (UTC)',
        heading: true,
        cell: row =>
          h('button', { type: 'button', class: 'rowlink nowrap', on: { click: () => story(row.id) } }, time(row.at)),
      },
      { name: 'Key', cell: row => areaLink(`#/key/${row.key}`, row.key_name || row.key) },
      { name: 'Who', cell: row => h('span', { class: `chip ${TONES[row.who] ?? ''}` }, row.who) },
      { name: 'Code', cell: row => h('span.mono', row.code) },
      { name: 'Requests', number: true, cell: row => number(row.alike) },
      { name: 'Account', wide: true, cell: row => row.account || '–' },
      {
        name: 'What was said',
        wide: true,
        cell: row => h('div.clip', { title: row.words ?? row.message ?? '' }, row.words ?? row.message ?? '–'),
      },
    ],
  })
}

/** @param {string} id of a request */
function story(id) {
  const { body } = openDialog('Request', { wide: true })
  showStory(body, id)
}
