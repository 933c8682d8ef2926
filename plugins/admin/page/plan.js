/** The plan of a balance: its windows, and what an operator can do with it. */
import { onceOnly, read } from './api.js'
import { announce, button, field, fill, h, select } from './dom.js'
import { askInDialog } from './dialog.js'
import { distance, time } from './format.js'
import { windowBar } from './windows.js'

/**
 * Shows the plan of a balance.
 * @param {Element} place @param {string} balance its id @param {any} session @param {() => unknown} changed
 */
export async function planCard(place, balance, session, changed) {
  const { plan } = await read(`/balances/${encodeURIComponent(balance)}`)
  const mayChange = session.token.scope !== 'read'
  const act = (label, action) =>
    button(label, async () => {
      const send = onceOnly()
      const path = what => `/balances/${encodeURIComponent(balance)}/plan${what}`
      if (await action({ plan, send: (what, body) => send(path(what), body) })) changed()
    })
  const actions = [act('Set a plan', set)]
  if (plan) {
    if (plan.ends_at) actions.push(act('Extend', extend))
    if (plan.valid) actions.push(act('Reset a window', reset), act('Add to a window', add), act('End', end))
  }
  fill(
    place,
    h('h2', 'Plan'),
    plan ? [h('p', wordsOf(plan)), bars(plan)] : h('p.muted', 'This balance has credits only.'),
    mayChange && h('div.row', { role: 'group', 'aria-label': 'Plan' }, actions),
  )
}

function wordsOf({ type, valid, bought_at: bought, ends_at: ends, renews_at: renews }) {
  const what = type === null ? 'A plan of its own' : `The plan of ${type}`
  const end = ends ? `${valid ? 'ends' : 'ended'} ${distance(ends)}, on ${time(ends)} UTC` : 'does not end'
  return `${what}, since ${time(bought)} UTC; it ${end}${renews ? `, and renews on ${time(renews)} UTC` : ''}.`
}

function bars({ windows }) {
  return windows.map(({ unit, per, models, limit, used, left, resets_at: resetsAt }) =>
    windowBar({ unit, per, models, limit, used, left, resetsAt }),
  )
}

const reasonField = input => field('Reason', input, 'The customer sees it.')

async function set({ plan, send }) {
  const { data: types } = await read('/key-types')
  const withPlan = types.filter(each => each.plan)
  const own = plan?.type === null ? JSON.stringify(plan.terms, null, 2) : ''
  const type = select([...withPlan.map(({ name }) => [name, `The plan of ${name}`]), ['', 'Terms of its own']], {
    value: plan?.type ?? (own === '' ? withPlan[0]?.name : '') ?? '',
  })
  const terms = h('textarea', { rows: '8', class: 'mono', spellcheck: 'false' })
  terms.value = own || '{ "windows": [{ "credits": 20, "per": "month" }], "until": "30d" }'
  const reason = h('input', { maxlength: '200' })
  const termsField = field('Terms', terms, 'As in the file, in JSON.')
  const adapt = () => termsField.toggleAttribute('hidden', type.value !== '')
  type.addEventListener('change', adapt)
  adapt()
  return askInDialog(
    'Set a plan',
    [
      field('Plan', type, 'It begins now, with nothing used, in the place of the one before.'),
      termsField,
      reasonField(reason),
    ],
    { label: 'Set' },
    async () => {
      const given = type.value === '' ? { plan: jsonIn(terms.value, 'The terms') } : { type: type.value }
      await send('', { ...given, ...(reason.value !== '' && { reason: reason.value }) })
      announce('The plan is set.')
    },
  )
}

/** Reads JSON that a person has written. @param {string} text @param {string} what it is */
export function jsonIn(text, what) {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error(`${what} are not JSON.`)
  }
}

function extend({ send }) {
  const reason = h('input', { maxlength: '200' })
  return askInDialog(
    'Extend by one period',
    [h('p', 'A plan that has ended begins again now.'), reasonField(reason)],
    { label: 'Extend' },
    async () => {
      const { plan } = await send('/extend', reason.value === '' ? {} : { reason: reason.value })
      announce(`The plan ends on ${time(plan.ends_at)} UTC.`)
    },
  )
}

function windowSelect({ windows }) {
  return select(windows.map(({ window, unit, per, limit }) => [String(window), `${limit} ${unit} per ${per}`]))
}

function reset({ plan, send }) {
  const window = windowSelect(plan)
  const reason = h('input', { maxlength: '200' })
  return askInDialog(
    'Reset a window',
    [field('Window', window, 'It begins anew now, with nothing used.'), reasonField(reason)],
    { label: 'Reset' },
    () => send('/reset', { window: Number(window.value), reason: reason.value }),
  )
}

function add({ plan, send }) {
  const window = windowSelect(plan)
  const more = h('input', { inputmode: 'decimal' })
  const reason = h('input', { maxlength: '200' })
  return askInDialog(
    'Add to a window',
    [
      field('Window', window),
      field('Amount', more, 'In what the window counts. It is there until the window begins anew.'),
      reasonField(reason),
    ],
    { label: 'Add' },
    () => send('/add', { window: Number(window.value), amount: more.value.trim(), reason: reason.value }),
  )
}

function end({ send }) {
  const reason = h('input', { maxlength: '200' })
  return askInDialog(
    'End the plan?',
    [
      h('p', 'Requests use credits from now on, or are refused. Running requests end as they are.'),
      reasonField(reason),
    ],
    { label: 'End', danger: true },
    () => send('/end', { reason: reason.value }),
  )
}
