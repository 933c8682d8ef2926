/** Tokens, the audit log, and the configuration in force. */
import { call, onceOnly, read } from './api.js'
import { announce, button, field, fill, h, select } from './dom.js'
import { askInDialog, confirmed } from './dialog.js'
import { distance, time } from './format.js'
import { showSecrets } from './secrets.js'
import { areaLink, pagedList } from './list.js'
import { tableOf } from './table.js'

const SCOPES = [
  ['read', 'read: sees everything, changes nothing'],
  ['keys', 'keys: also keys and redeem codes, for a shop'],
  ['all', 'all: also accounts and tokens'],
]

/** @param {HTMLElement} place @param {string[]} _path @param {any} session */
export async function tokensArea(place, _path, session) {
  const list = h('section.card.stack')
  fill(place, h('h1', 'Tokens of operators and programs'), list)
  const may = session.token.scope === 'all'
  const load = async () => {
    const { data } = await read('/tokens')
    fill(
      list,
      may &&
        h(
          'div.row',
          button('Create a token', async () => (await createToken()) && load(), { class: 'button primary' }),
        ),
      tableOf('Tokens, newest first', columns, data, { class: 'cards' }),
    )
  }
  const stateOf = token => {
    if (token.revoked_at) return h('span.chip.bad', 'revoked')
    if (!may) return h('span.chip.good', 'valid')
    const props = { class: 'button small danger', 'aria-label': `Revoke ${token.name}` }
    return button('Revoke', async () => (await revoke(token)) && load(), props)
  }
  const columns = [
    { name: 'Name', heading: true, class: 'break', cell: token => token.name },
    { name: 'Token', class: 'mono', cell: token => token.hint },
    { name: 'Scope', cell: token => token.scope },
    { name: 'Last used', cell: token => (token.used_at ? distance(token.used_at) : 'never') },
    { name: 'Created', cell: token => time(token.created_at).slice(0, 10) },
    { name: 'State', cell: stateOf },
  ]
  await load()
}

async function createToken() {
  const name = h('input', { maxlength: '200' })
  const scope = select(SCOPES, { value: 'keys' })
  const send = onceOnly()
  let made
  const done = await askInDialog(
    'Create a token',
    [field('Name', name, 'Who uses it: a person or a program.'), field('Scope', scope)],
    { label: 'Create' },
    async () => {
      made = await send('/tokens', { name: name.value, scope: scope.value })
    },
  )
  if (done)
    await showSecrets('The new token', { rows: [made], member: 'token', columns: ['id', 'token', 'name', 'scope'] })
  return done
}

function revoke(token) {
  return confirmed(
    `Revoke ${token.name}?`,
    'It stops working at once, and its sessions end. This cannot be undone.',
    'Revoke',
    async () => {
      await call('DELETE', `/tokens/${token.id}`)
      announce('The token is revoked.')
    },
  )
}

/** @param {HTMLElement} place */
export function auditArea(place) {
  const filters = {
    actor: h('input', { type: 'search', placeholder: 'Everybody', autocomplete: 'off' }),
    action: h('input', { placeholder: 'All, or such as key.topup', autocomplete: 'off' }),
    target: h('input', { placeholder: 'All, or an id', autocomplete: 'off' }),
  }
  const list = h('div')
  fill(place, h('h1', 'Audit log'), list)
  pagedList(list, {
    path: '/audit',
    caption: 'Who changed what, newest first',
    filters,
    labels: [field('Who', filters.actor), field('Action', filters.action), field('Target', filters.target)],
    empty: 'No change matches.',
    columns: [
      { name: 'Time (UTC)', heading: true, cell: row => h('span.nowrap', time(row.at)) },
      { name: 'Who', cell: row => h('div.break', row.actor) },
      { name: 'From', cell: row => row.address || '–' },
      { name: 'Action', cell: row => h('span.mono', row.action) },
      {
        name: 'Target',
        cell: row =>
          row.target.startsWith('key_')
            ? areaLink(`#/key/${row.target}`, `…${row.target.slice(-6)}`)
            : row.target || '–',
      },
      {
        name: 'Details',
        cell: row => h('code.break', Object.keys(row.details).length === 0 ? '–' : JSON.stringify(row.details)),
      },
    ],
  })
}

/** @param {HTMLElement} place */
export async function configurationArea(place) {
  const { file, text } = await read('/config')
  fill(
    place,
    h('h1', 'Configuration in force'),
    h('p.muted', 'Edit the file; a running gateway applies a valid one by itself. Credentials are hidden here.'),
    h(
      'div.code',
      h('header', h('span.break', file)),
      h('pre.config', { tabindex: '0', 'aria-label': 'The text of the configuration' }, text),
    ),
  )
}
