/** Keys: a tab for each type, a table of them, and the dialogs that make new ones. */
import { call, onceOnly, read } from './api.js'
import { button, field, fill, h, select } from './dom.js'
import { askInDialog } from './dialog.js'
import { meter, partOf } from './figures.js'
import { amount, distance, number, time, wholeNumber } from './format.js'
import { areaLink, pagedList } from './list.js'
import { quotaLine } from './accounts.js'
import { showSecrets } from './secrets.js'
import { tabRow } from './tabs.js'

const STATUS = {
  active: 'good',
  disabled: 'warn',
  expired: 'warn',
  exhausted: 'bad',
  deleted: '',
  no_type: 'bad',
}

/** The state of a key as a coloured word. @param {string} status */
export function statusChip(status) {
  return h('span', { class: `chip ${STATUS[status] ?? ''}` }, status === 'no_type' ? 'type is missing' : status)
}

/** @param {HTMLElement} place @param {string[]} path the type, if one is chosen @param {any} session */
export async function keysArea(place, [type = ''], session) {
  const { data: types } = await read('/key-types')
  const all = types.reduce((sum, { keys }) => sum + keys, 0)
  const tabs = tabRow(
    [
      { id: 'all', label: 'All', count: number(all), show: panel => keysPanel(panel, types, undefined, session) },
      ...types.map(each => ({
        id: each.name,
        label: each.name,
        count: number(each.keys),
        show: panel => keysPanel(panel, types, each, session),
      })),
    ],
    {
      label: 'Key types',
      chosen: type === '' ? 'all' : type,
      onChoice: id => history.replaceState(null, '', id === 'all' ? '#/keys' : `#/keys/${encodeURIComponent(id)}`),
    },
  )
  fill(place, h('h1', 'Keys'), tabs.element)
}

async function keysPanel(panel, types, type, session) {
  const search = h('input', {
    type: 'search',
    placeholder: 'Name, label, batch, id, end of the key, or all of it',
    autocomplete: 'off',
  })
  const filters = {
    search,
    status: select([
      ['', 'All but deleted'],
      ...['active', 'disabled', 'expired', 'exhausted', 'deleted'].map(each => [each, each]),
    ]),
    batch: h('input', { placeholder: 'All', autocomplete: 'off' }),
  }
  const mayChange = session.token.scope !== 'read'
  const facts = h('div')
  const place = h('div')
  fill(panel, h('div.stack', facts, place))
  const list = pagedList(place, {
    path: '/keys',
    caption: type ? `${type.name} keys` : 'Keys of all types',
    className: 'keys',
    sort: '-created',
    fixed: type ? { type: type.name } : {},
    filters,
    labels: [field('Search', search), field('State', filters.status), field('Batch', filters.batch)],
    actions: mayChange
      ? [
          button('Create keys', async () => (await createKeys(types, type)) && list.reload(), {
            class: 'button primary',
          }),
        ]
      : [],
    empty: 'No key matches.',
    none: 'There are no keys yet.',
    columns: [
      { name: 'Key', heading: true, cell: row => areaLink(`#/key/${row.id}`, h('span.mono', row.hint)) },
      { name: 'Name', cell: row => h('div.clip', { title: row.name }, row.name || '–') },
      ...(type ? [] : [{ name: 'Type', cell: row => row.type }]),
      { name: 'State', cell: row => statusChip(row.status) },
      { name: 'Left', number: true, sort: 'balance', cell: leftCell },
      { name: 'Used', number: true, sort: 'used', cell: usedWords },
      { name: 'Batch', wide: true, cell: row => h('div.clip', { title: row.batch }, row.batch || '–') },
      {
        name: 'Expires',
        sort: 'expires',
        cell: row => (row.expires_at ? nowrap(time(row.expires_at).slice(0, 10)) : 'never'),
      },
      {
        name: 'Last used',
        sort: 'active',
        cell: row => (row.last_used_at ? nowrap(distance(row.last_used_at)) : 'never'),
      },
      { name: 'Created', sort: 'created', wide: true, cell: row => nowrap(time(row.created_at).slice(0, 10)) },
    ],
  })
  search.addEventListener('input', () => void findSecret(search, session.prefixes))
  if (type) fill(facts, await typeFacts(type))
}

/** A pasted secret must not become part of an address, so it is sent in a body. */
/** @param {HTMLInputElement} input @param {string[]} prefixes what secrets begin with */
async function findSecret(input, prefixes) {
  const secret = new RegExp(`(?<![\\w-])(?:${prefixes.join('|')})[\\w-]{20,}`).exec(input.value)?.[0]
  if (!secret) return
  input.value = ''
  const key = await call('POST', '/keys/find', { key: secret })
  location.hash = `#/key/${key.id}`
}

/** What a key has used: of its plan first. @param {any} key */
export function usedWords({ used, used_of_plan: ofPlan }) {
  if (ofPlan === null) return amount(used)
  return Number(used) === 0 ? `${amount(ofPlan)} of the plan` : `${amount(ofPlan)} of the plan, ${amount(used)}`
}

/** Says of how much credits are left: of the plan first. @param {any} key */
export function leftWords({ left_of: all, used_of_plan: ofPlan, balance }) {
  if (ofPlan === null) return `of ${amount(all)} credits`
  const more = Number(balance) === 0 ? '' : `, and ${amount(balance)} credits`
  return `of ${amount(all)} of the plan${more}`
}

function leftCell(row) {
  const [left, all] = [Number(row.left), Number(row.left_of)]
  const used = all > 0 ? partOf(all - left, all) : 1
  return h(
    'div.left-cell',
    h('span', { title: `${amount(row.left)} ${leftWords(row)}` }, `${amount(row.left)} of ${amount(row.left_of)}`),
    meter(used, { left: true }),
  )
}

/** What is true for all keys of a type: its accounts with their quotas. */
async function typeFacts(type) {
  const { data } = await read('/accounts')
  const own = data.filter(({ upstream }) => type.upstreams.includes(upstream))
  return h(
    'section.card',
    h(
      'div.row.apart',
      h('strong', `Requests go through ${own.map(({ account }) => account).join(', ')}`),
      h('span.muted', `${type.models.length} models, default ${type.default_model}`),
    ),
    own.flatMap(account => account.quotas.map(quota => quotaLine(account.account, quota))),
  )
}

/** A date that is never broken into lines. @param {string} text */
function nowrap(text) {
  return h('span.nowrap', text)
}

const EXPIRIES = [
  ['Never', 0],
  ['30 days', 30],
  ['90 days', 90],
  ['1 year', 365],
]

const DAY_MS = 86_400_000

/** The first day (UTC) whose beginning is so many whole days away. @param {number} days from now on */
function dayAfter(days) {
  return new Date(Date.now() + (days + 1) * DAY_MS - 1).toISOString().slice(0, 10)
}

/** A field for a day in the future, with the usual choices. @param {string} label @param {string} value */
export function expiryField(label, value = '') {
  const input = h('input', { type: 'date', value })
  const quick = h(
    'div.quick',
    EXPIRIES.map(([name, days]) =>
      button(
        name,
        () => {
          input.value = days === 0 ? '' : dayAfter(Number(days))
        },
        { class: 'button small' },
      ),
    ),
  )
  return {
    input,
    element: h(
      'div.field',
      field(
        label,
        input,
        'The key ends at the beginning of this day (UTC). Empty: never. The buttons count from now on.',
      ),
      quick,
    ),
  }
}

/** The fields for keys that spend from one balance. */
function sharedFields() {
  const balance = h('input.mono', { maxlength: '64' })
  const cap = h('input', { inputmode: 'decimal' })
  const element = h(
    'details',
    h('summary', 'Several keys on one balance'),
    h(
      'div.fields',
      field('Balance', balance, 'The id of a balance from which they spend, instead of credits of their own.'),
      field('Cap of each', cap, 'The most that a key may use in its life. Empty: no limit but the balance.'),
    ),
  )
  /** @param {string} credits those of a balance of its own */
  const members = credits => ({
    ...(balance.value.trim() !== '' ? { balance_id: balance.value.trim() } : credits !== '' && { credits }),
    ...(cap.value.trim() !== '' && { cap: cap.value.trim() }),
  })
  return { element, members }
}

async function createKeys(types, type) {
  const kind = select(
    types.map(({ name }) => [name, name]),
    { value: type?.name ?? types[0]?.name },
  )
  const credits = h('input', { inputmode: 'decimal', value: '25' })
  const count = h('input', { inputmode: 'numeric', value: '1' })
  const name = h('input', { maxlength: '200' })
  const label = h('input', { maxlength: '200' })
  const batch = h('input', { maxlength: '200' })
  const shared = sharedFields()
  const expiry = expiryField('Expiry')
  const send = onceOnly()
  let made
  const done = await askInDialog(
    'Create keys',
    [
      h(
        'div.fields',
        field('Type', kind),
        field('Credits of each', credits, 'May be empty for a type with a plan.'),
        field('Number of keys', count),
      ),
      field('Name', name, 'For you. Customers do not see it.'),
      field(
        'Label',
        label,
        'What the customer sees instead of the key, such as “Summer offer”. Empty: the end of the key.',
      ),
      field('Batch', batch, 'A name by which you find these keys again.'),
      expiry.element,
      shared.element,
    ],
    { label: 'Create' },
    async () => {
      made = await send('/keys', {
        type: kind.value,
        ...shared.members(credits.value.trim()),
        count: wholeNumber(count.value, 'Number of keys'),
        name: name.value,
        label: label.value,
        batch: batch.value,
        expires_at: expiry.input.value || null,
      })
    },
  )
  if (done)
    await showSecrets(made.keys.length === 1 ? 'Your new key' : `${number(made.keys.length)} new keys`, {
      rows: made.keys,
      member: 'key',
      columns: ['id', 'key', 'type', 'credits', 'name', 'label', 'batch', 'expires_at'],
    })
  return done
}
