/** Redeem codes. */
import { call, onceOnly, read } from './api.js'
import { announce, button, field, fill, h, select } from './dom.js'
import { askInDialog, confirmed } from './dialog.js'
import { amount, number, time, wholeNumber } from './format.js'
import { areaLink, pagedList } from './list.js'
import { showSecrets } from './secrets.js'

const TONES = { unused: 'good', used: '', expired: 'warn', cancelled: 'bad' }

/** @param {HTMLElement} place @param {string[]} _path @param {any} session */
export async function codesArea(place, _path, session) {
  const { data: types } = await read('/key-types')
  const search = h('input', { type: 'search', placeholder: 'Batch, id, key, end of the code', autocomplete: 'off' })
  const filters = {
    search,
    status: select([['', 'All'], ...Object.keys(TONES).map(each => [each, each])]),
    batch: h('input', { placeholder: 'All', autocomplete: 'off' }),
  }
  const listed = h('div')
  fill(place, h('h1', 'Redeem codes'), listed)
  const mayChange = session.token.scope !== 'read'
  const list = pagedList(listed, {
    path: '/codes',
    caption: 'Redeem codes, newest first',
    className: 'keys',
    filters,
    labels: [field('Search', search), field('State', filters.status), field('Batch', filters.batch)],
    actions: mayChange
      ? [
          button('Create codes', async () => (await createCodes(types)) && list.reload(), { class: 'button primary' }),
          button('Cancel a batch', async () => (await cancelBatch(filters.batch.value)) && list.reload()),
        ]
      : [],
    empty: 'No code matches.',
    none: 'There are no codes yet.',
    columns: [
      { name: 'Code', heading: true, cell: row => h('span.mono', row.hint) },
      { name: 'Gives', cell: row => givenBy(row) },
      { name: 'State', cell: row => h('span', { class: `chip ${TONES[row.status]}` }, row.status) },
      { name: 'Batch', cell: row => h('div.clip', { title: row.batch }, row.batch || '–') },
      { name: 'Used by', cell: row => (row.used_by ? areaLink(`#/key/${row.used_by}`, time(row.used_at)) : '–') },
      { name: 'Expires', cell: row => (row.expires_at ? time(row.expires_at).slice(0, 10) : 'never') },
      { name: 'Created', wide: true, cell: row => time(row.created_at).slice(0, 10) },
      ...(mayChange
        ? [
            {
              name: 'Action',
              cell: row =>
                row.status === 'unused' &&
                button('Cancel', async () => (await cancelCode(row)) && list.reload(), {
                  class: 'button small',
                  'aria-label': `Cancel ${row.hint}`,
                }),
            },
          ]
        : []),
    ],
  })
}

function givenBy({ kind, credits, type, key_days: days }) {
  if (kind === 'plan') return `the plan of ${type}`
  if (kind === 'credits') return `${amount(credits)} credits${type ? ` for ${type} keys` : ''}`
  return `a ${type} key with ${amount(credits)} credits${days ? ` for ${days} days` : ''}`
}

const DAYS = 'Days that the new key is valid'

async function createCodes(types) {
  const kind = select([
    ['credits', 'Credits for a key that exists'],
    ['plan', 'A plan for a key that exists'],
    ['key', 'A new key'],
  ])
  const type = select([['', 'Any type'], ...types.map(({ name }) => [name, name])])
  const credits = h('input', { inputmode: 'decimal', value: '10' })
  const count = h('input', { inputmode: 'numeric', value: '10' })
  const days = h('input', { inputmode: 'numeric', placeholder: 'for good' })
  const batch = h('input', { maxlength: '200' })
  const expires = h('input', { type: 'date' })
  const daysField = field(DAYS, days)
  const creditsField = field('Credits of each', credits)
  const adapt = () => {
    daysField.toggleAttribute('hidden', kind.value !== 'key')
    creditsField.toggleAttribute('hidden', kind.value === 'plan')
  }
  kind.addEventListener('change', adapt)
  adapt()
  const send = onceOnly()
  let made
  const done = await askInDialog(
    'Create codes',
    [
      h('div.fields', field('What a code gives', kind), field('Key type', type)),
      h('div.fields', creditsField, field('Number of codes', count)),
      daysField,
      field('Batch', batch, 'A name by which you find these codes again, and cancel those that are not used.'),
      field('The codes expire on', expires, 'Empty: never.'),
    ],
    { label: 'Create' },
    async () => {
      made = await send('/codes', {
        kind: kind.value,
        type: type.value,
        ...(kind.value !== 'plan' && credits.value.trim() !== '' && { credits: credits.value.trim() }),
        count: wholeNumber(count.value, 'Number of codes'),
        batch: batch.value,
        expires_at: expires.value || null,
        key_days: kind.value === 'key' && days.value.trim() !== '' ? wholeNumber(days.value, DAYS) : null,
      })
    },
  )
  if (done)
    await showSecrets(`${number(made.codes.length)} new codes`, {
      rows: made.codes,
      member: 'code',
      columns: ['id', 'code', 'kind', 'type', 'credits', 'key_days', 'batch', 'expires_at'],
    })
  return done
}

function cancelCode({ id, hint }) {
  const text = `${hint} can no longer be redeemed then. This cannot be undone.`
  return confirmed('Cancel a code', text, 'Cancel the code', () => call('POST', `/codes/${id}/cancel`))
}

function cancelBatch(chosen) {
  const batch = h('input', { value: chosen, maxlength: '200' })
  return askInDialog(
    'Cancel a batch',
    [field('Batch', batch), h('p', 'Its codes that are not used yet can no longer be redeemed.')],
    { label: 'Cancel the codes', danger: true },
    async () => {
      const { cancelled } = await call('POST', '/codes/cancel', { batch: batch.value })
      announce(`${number(cancelled)} codes were cancelled.`)
    },
  )
}
