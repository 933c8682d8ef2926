/** The keys of a balance, for a key that may create others. */
import { read } from './api.js'
import { askInDialog, confirmed } from './dialog.js'
import { announce, button, field, fill, h, select } from './dom.js'
import { amount, day } from './format.js'
import { showSecrets } from './secrets.js'
import { tableOf } from './table.js'

const PATH = '/api/v1/keys'

/** @param {string} method @param {string} path @param {object} [body] */
function call(method, path, body) {
  const json = body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
  return read(`${PATH}${path}`, { method, ...json })
}

/** @param {Element} panel */
export async function keysPanel(panel) {
  const { data, types } = await read(PATH)
  const reload = () => keysPanel(panel)
  const create = button('Create a key', async () => (await createKey(types)) && reload(), { class: 'button primary' })
  fill(
    panel,
    h(
      'section.card.stack',
      h('p', 'These keys spend from one balance. Each has its own secret, history and limit.'),
      types.length > 0 && h('div', create),
      tableOf('Keys of this balance', columnsOf(reload), data),
    ),
  )
}

/** @param {() => Promise<void>} reload @returns {import('./table.js').Column[]} */
function columnsOf(reload) {
  /** @param {any} key @param {string} label @param {(key: any) => Promise<boolean>} action */
  const change = (key, label, action) =>
    button(label, async () => (await action(key)) && reload(), {
      class: 'button small',
      'aria-label': `${label}: ${key.name || key.hint}`,
    })
  const actions = key => [
    change(key, 'Edit', edit),
    key.status === 'disabled' ? change(key, 'Enable', enable) : change(key, 'Disable', disable),
    change(key, 'Delete', remove),
  ]
  return [
    { name: 'Name', class: 'break', cell: key => key.name || '–' },
    { name: 'Key', class: 'mono', cell: key => key.hint },
    { name: 'Type', cell: key => key.type },
    { name: 'Used', cell: key => amount(key.used) },
    { name: 'Limit', cell: key => (key.cap === null ? 'none' : amount(key.cap)) },
    { name: 'Expires', cell: key => (key.expires_at ? day(key.expires_at) : 'never') },
    { name: 'Status', cell: key => key.status },
    { name: 'Actions', cell: key => (key.created_by_this_key ? h('div.row', actions(key)) : '–') },
  ]
}

/** The fields for the name and the limit of a key. @param {{ name?: string, cap?: number | null }} [key] */
function fields({ name = '', cap = null } = {}) {
  const inputs = {
    name: h('input', { maxlength: '200', value: name }),
    cap: h('input', { inputmode: 'decimal', value: cap === null ? '' : String(cap) }),
  }
  const elements = [
    field('Name', inputs.name),
    field(
      'Limit in credits',
      inputs.cap,
      'The most that the key may use in its life. Empty: no limit but the balance.',
    ),
  ]
  return { elements, values: () => ({ name: inputs.name.value, cap: inputs.cap.value.trim() || null }) }
}

/** @param {string[]} types */
async function createKey(types) {
  const { elements, values } = fields()
  const type = select(types.map(name => [name, name]))
  const days = h('input', { inputmode: 'numeric' })
  let made
  const all = [...elements, field('Type', type), field('Valid for days', days, 'Empty: as long as this key.')]
  const done = await askInDialog('Create a key', all, { label: 'Create' }, async () => {
    const expiry = days.value.trim() === '' ? {} : { expires_in: `${days.value.trim()}d` }
    made = await call('POST', '', { ...values(), type: type.value, ...expiry })
  })
  if (done) await showSecrets('The new key', { rows: [made], member: 'key', columns: ['id', 'key', 'type', 'name'] })
  return done
}

/** @param {any} key */
function edit(key) {
  const { elements, values } = fields(key)
  return askInDialog('Edit', elements, { label: 'Save' }, () => call('PATCH', `/${key.id}`, values()))
}

const disable = key =>
  confirmed('Disable this key?', 'Its requests are refused from the next one on.', 'Disable', () =>
    call('PATCH', `/${key.id}`, { disabled: true }),
  )

async function enable(key) {
  await call('PATCH', `/${key.id}`, { disabled: false })
  announce('The key is enabled.')
  return true
}

const remove = key =>
  confirmed('Delete this key for good?', 'It can never be used again. What it has used stays used.', 'Delete', () =>
    call('DELETE', `/${key.id}`),
  )
