/** One key: what is left, how it was used, and everything that an operator can do with it. */
import { call, onceOnly, read } from './api.js'
import { dayChart } from './chart.js'
import { announce, button, field, fill, h } from './dom.js'
import { askInDialog, confirmed } from './dialog.js'
import { figures } from './figures.js'
import { amount, day, distance, lastDays, time } from './format.js'
import { copyButton } from './give.js'
import { expiryField, leftWords, statusChip, usedWords } from './keys.js'
import { LINE_COLUMNS } from './lines.js'
import { pagedList } from './list.js'
import { showSecrets } from './secrets.js'
import { seriesOf } from './series.js'
import { jsonIn, planCard } from './plan.js'
import { requestList } from './usage.js'

const DAYS = 30

/** @param {HTMLElement} place @param {string[]} path the id of the key @param {any} session */
export async function keyArea(place, [id = ''], session) {
  const base = `/keys/${encodeURIComponent(id)}`
  const days = lastDays(DAYS)
  const head = h('div.stack')
  const plan = h('section.card.stack')
  const chart = h('section.card')
  const statement = h('div')
  const requests = h('div')
  fill(place, head, plan, chart, h('h2', 'Statement'), statement, h('h2', 'Requests'), requests)
  let removeChart = () => {}

  async function showHead() {
    const key = await read(base)
    const focused = head.contains(document.activeElement) ? document.activeElement?.textContent : undefined
    await planCard(plan, key.balance_id, session, () => reload())
    fill(head, header(key), h('section.card.stack', sums(key), facts(key), actions(key)))
    // Who works by keyboard stays where they were.
    if (focused) [...head.querySelectorAll('button')].find(({ textContent }) => textContent === focused)?.focus()
  }

  const lines = pagedList(statement, {
    path: `${base}/statement`,
    caption: 'Statement, newest first',
    columns: LINE_COLUMNS,
    none: 'Nothing is booked yet.',
  })
  const reload = () => Promise.all([showHead(), lines.reload()])

  function actions(key) {
    if (session.token.scope === 'read' || key.status === 'deleted') return undefined
    const change = (label, action, props) => button(label, async () => (await action(key)) && reload(), props)
    return h(
      'div.row',
      { role: 'group', 'aria-label': 'Actions' },
      change('Top up', () => changeCredits(key, 'topup'), { class: 'button primary' }),
      change('Deduct', () => changeCredits(key, 'deduct')),
      change('Edit', edit),
      change('Move', move),
      key.status === 'disabled' ? change('Enable', enable) : change('Disable', disable),
      change('Rotate', rotate),
      change('Delete', remove, { class: 'button danger' }),
    )
  }

  await showHead()
  requestList(requests, { path: `${base}/history`, fixed: {}, withKey: false, session })
  void read(`${base}/usage?from=${days[0]}&to=${days.at(-1)}`)
    .then(({ data }) =>
      dayChart(chart, { title: `Credits by day and model, last ${DAYS} days`, days, series: seriesOf(days, data) }),
    )
    .then(remove => (removeChart = remove))
  return () => removeChart()
}

function header(key) {
  return h(
    'div.row.apart',
    h(
      'div.row',
      h('a', { href: `#/keys/${encodeURIComponent(key.type)}` }, 'Keys'),
      h('h1.break', key.name || key.hint),
      statusChip(key.status),
    ),
    copyButton(() => key.id, 'Copy the id'),
  )
}

function sums(key) {
  return figures([
    ['Left', amount(key.left), leftWords(key)],
    ['Used', usedWords(key)],
    ['Held', amount(key.held), 'for running requests'],
    ['Last used', key.last_used_at ? distance(key.last_used_at) : 'never'],
    ['Expires', key.expires_at ? day(key.expires_at) : 'never', key.expires_at && distance(key.expires_at)],
  ])
}

function facts(key) {
  const rows = [
    ['Id', h('span.mono', key.id)],
    ['Key', h('span.mono', key.hint)],
    ['Type', key.type],
    ['Label', key.label],
    ['Batch', key.batch || '–'],
    ['Balance', h('span.mono', key.balance_id)],
    ['Cap', key.cap === null ? 'none' : `${amount(key.cap)} credits`],
    ['Limits', key.limits === null ? 'those of its type' : h('span.mono', JSON.stringify(key.limits))],
    ['Manages keys', key.manage ? 'yes' : 'no'],
    ['Created', `${time(key.created_at)} UTC`],
  ]
  return h(
    'dl.facts',
    rows.map(([name, value]) => [h('dt', name), h('dd.break', value)]),
  )
}

/** What an operator may do with credits: the words of its dialog and of what was done. */
const CREDITING = {
  topup: {
    words: ['Top up', 'Note', 'For you, such as the number of an invoice.'],
    limit: () => '',
    press: { label: 'Add' },
    done: credited => `${amount(credited, 9)} credits were added.`,
  },
  deduct: {
    words: ['Deduct', 'Reason', 'The customer sees it.'],
    limit: key => `At most ${amount(key.balance, 9)}.`,
    press: { label: 'Take back', danger: true },
    done: () => 'The credits were taken back.',
  },
}

/** @param {any} key @param {'topup' | 'deduct'} action */
function changeCredits(key, action) {
  const { words, limit, press, done } = CREDITING[action]
  const [title = '', name = '', hint] = words
  const credits = h('input', { inputmode: 'decimal' })
  const reason = h('input', { maxlength: '200' })
  const send = onceOnly()
  const fields = [field('Credits', credits, limit(key)), field(name, reason, hint)]
  return askInDialog(title, fields, press, async () => {
    const wish = { credits: credits.value.trim(), reason: reason.value }
    announce(done((await send(`/keys/${key.id}/${action}`, wish)).credited))
  })
}

function edit(key) {
  const labelBefore = key.label === key.hint ? '' : key.label
  const name = h('input', { maxlength: '200', value: key.name })
  const label = h('input', { maxlength: '200', value: labelBefore })
  const before = key.expires_at?.slice(0, 10) ?? ''
  const expiry = expiryField('Expiry', before)
  const cap = h('input', { inputmode: 'decimal', value: key.cap ?? '' })
  const limitsBefore = key.limits === null ? '' : JSON.stringify(key.limits)
  const limits = h('input.mono', { spellcheck: 'false', value: limitsBefore })
  return askInDialog(
    'Edit',
    [
      field('Name', name, 'For you. Customers do not see it.'),
      field('Label', label, 'What the customer sees instead of the key. Empty: the end of the key.'),
      expiry.element,
      field('Cap', cap, 'The most that the key may use in its life. Empty: no limit but the balance.'),
      field('Limits', limits, 'In JSON, such as {"requestsPerMinute": 60}, beside those of its type. Empty: none.'),
    ],
    { label: 'Save' },
    // What was not changed is not sent, so that nobody's change is overwritten.
    () =>
      call('PATCH', `/keys/${key.id}`, {
        ...(name.value !== key.name && { name: name.value }),
        ...(label.value !== labelBefore && { label: label.value }),
        ...(expiry.input.value !== before && { expires_at: expiry.input.value || null }),
        ...(limits.value.trim() !== limitsBefore && { limits: jsonIn(limits.value.trim() || 'null', 'The limits') }),
        ...(cap.value.trim() !== (key.cap ?? '') && { cap: cap.value.trim() || null }),
      }),
  )
}

function move(key) {
  const balance = h('input.mono', { value: key.balance_id })
  return askInDialog(
    'Move to another balance',
    [field('Balance', balance, 'Its id. Requests that run end on the balance before, and history stays there.')],
    { label: 'Move' },
    () => call('POST', `/keys/${key.id}/move`, { balance_id: balance.value.trim() }),
  )
}

const disable = key =>
  confirmed('Disable this key?', 'Its requests are refused from the next one on. The balance is kept.', 'Disable', () =>
    call('POST', `/keys/${key.id}/disable`),
  )

async function enable(key) {
  await call('POST', `/keys/${key.id}/enable`)
  announce('The key is enabled.')
  return true
}

const remove = key =>
  confirmed(
    'Delete this key for good?',
    `It can never be used again, and its ${amount(key.balance)} credits are lost to the customer. Its history stays.`,
    'Delete',
    () => call('DELETE', `/keys/${key.id}`),
  )

async function rotate(key) {
  let made
  const send = onceOnly()
  const done = await confirmed(
    'Give this key a new secret?',
    'The old secret stops working at once. Balance and history stay.',
    'Rotate',
    async () => {
      made = await send(`/keys/${key.id}/rotate`, {})
    },
  )
  if (done) await showSecrets('The new secret', { rows: [made], member: 'key', columns: ['id', 'key', 'type', 'name'] })
  return done
}
