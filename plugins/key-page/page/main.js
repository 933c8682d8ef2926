/** The customer's page: asks for a key, and shows what belongs to it. */
import { currentKey, forgetKey, isKept, keyIn, keysWith, read, Refusal, useKey } from './api.js'
import { announce, announceFaults, banner, button, field, fill, h, icon } from './dom.js'
import { historyPanel } from './history.js'
import { keysPanel } from './keys.js'
import { modelsPanel, priceTables } from './models.js'
import { overviewPanel, standing } from './overview.js'
import { redeemForm } from './redeem.js'
import { setupPanel } from './setup.js'
import { statementPanel } from './statement.js'
import { tabRow } from './tabs.js'
import { themeButton } from './theme.js'

const top = /** @type {HTMLElement} */ (document.getElementById('top'))
const content = /** @type {HTMLElement} */ (document.getElementById('content'))

/** @type {any} what the operator has set for this page */
let settings = { title: 'Tollgate', contact: 'your reseller', base_url: '', key_types: [], prefixes: ['sk-'] }

/** Numbers of the shown states, so that a late answer does not replace a newer one. */
let shown = 0

/** Shows what is left now. */
let refreshHeadline = () => {}

function showTop() {
  const forget = button(
    'Forget key',
    () => {
      forgetKey()
      announce('The key is forgotten.')
      void showAsk()
    },
    { class: 'button small' },
  )
  fill(top, h('span.brand', settings.title), h('span.spring'), currentKey() && forget, themeButton())
}

/** Whom to ask, as a link if it is one. */
function contact() {
  const { contact: text } = settings
  if (/^https:\/\/[^\s]+$/.test(text)) return h('a', { href: text, rel: 'noopener noreferrer' }, text)
  if (/^[^\s@]+@[^\s@]+$/.test(text)) return h('a', { href: `mailto:${text}` }, text)
  return h('span', text)
}

/** The address for the customers' clients, without a slash at its end. */
function baseUrl() {
  return settings.base_url || location.origin
}

/** The field for the key, which can show what is typed. */
function keyField() {
  const input = h('input', {
    type: 'password',
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'sk-…',
    required: true,
  })
  const eye = button(
    icon('eye'),
    () => {
      const hidden = input.type === 'password'
      input.type = hidden ? 'text' : 'password'
      eye.setAttribute('aria-pressed', String(hidden))
    },
    { class: 'button icon-only', 'aria-label': 'Show the key', 'aria-pressed': 'false' },
  )
  const own = field(
    'Your API key',
    input,
    'It is sent to this gateway only, in a header, and never becomes part of an address.',
  )
  const secret = h('div.secret')
  input.replaceWith(secret)
  secret.append(input, eye)
  return { own, input }
}

/** @param {any} [problem] why the last key was not accepted */
async function showAsk(problem) {
  shown++
  refreshHeadline = () => {}
  showTop()
  document.title = `Your API key – ${settings.title}`
  const { own, input } = keyField()
  const keep = h('input', { type: 'checkbox', checked: true })
  const form = h(
    'form',
    { novalidate: true },
    own,
    h('label.check', keep, 'Keep it until this tab is closed'),
    problem,
    h('div', h('button', { type: 'submit', class: 'button primary' }, 'Show my key')),
  )
  form.addEventListener('submit', event => {
    event.preventDefault()
    const key = keyIn(input.value, settings.prefixes)
    if (key === '') return input.focus()
    useKey(key, keep.checked)
    void showKey()
  })
  const redeem = redeemForm({
    onKey: key => useNewKey(key, keep.checked),
  })
  fill(
    content,
    h(
      'div.stack',
      h('section.card.ask', h('h1', 'What is left of your key?'), form),
      h('section.card.ask', h('h2', 'You have a code?'), redeem),
      settings.key_types?.length > 0 &&
        h('section.card', h('h2', 'Models and prices'), priceTables(settings.key_types)),
    ),
  )
  input.focus()
}

/** @param {string} key @param {boolean} [keep] */
function useNewKey(key, keep = isKept()) {
  useKey(key, keep)
  void showKey()
}

async function showKey() {
  const turn = ++shown
  showTop()
  fill(content, h('p.empty', { role: 'status' }, 'Asking the gateway …'))
  try {
    const info = await read('/api/v1/key-info')
    if (turn === shown) showInfo(info)
  } catch (thrown) {
    if (turn === shown) await showRefusal(thrown, turn)
  }
}

/** @param {unknown} thrown @param {number} turn of the key that was refused */
async function showRefusal(thrown, turn) {
  if (!(thrown instanceof Refusal) || thrown.status !== 401) {
    const text = thrown instanceof Error ? thrown.message : 'Something went wrong.'
    fill(
      content,
      h(
        'div.stack.ask',
        banner('bad', 'Your key cannot be shown at the moment.', text),
        button('Try again', showKey, { class: 'button primary' }),
      ),
    )
    return
  }
  const { key } = await read('/page/settings').catch(() => ({ key: 'unknown' }))
  if (turn !== shown) return
  if (key === 'disabled' || key === 'deleted') return showDisabled(key === 'deleted')
  forgetKey()
  await showAsk(
    banner(
      'bad',
      'This gateway does not know this key.',
      `Check that you have pasted all of it: a key begins with ${settings.prefixes.join(' or ')}. If it was replaced, use the new one. Otherwise ask `,
      contact(),
      '.',
    ),
  )
}

/** @param {boolean} isDeleted */
function showDisabled(isDeleted) {
  refreshHeadline = () => {}
  showTop()
  fill(
    content,
    h(
      'div.stack.ask',
      isDeleted
        ? banner('bad', 'This key was deleted.', 'It cannot be used any more. Ask ', contact(), ' for another one.')
        : banner(
            'bad',
            'This key is disabled.',
            'Your requests are refused. Your balance is kept. Ask ',
            contact(),
            ' why, and whether the key can be enabled again.',
          ),
      button('Use another key', () => {
        forgetKey()
        void showAsk()
      }),
    ),
  )
}

/** @param {any} info */
function showInfo(info) {
  document.title = `${info.label} – ${settings.title}`
  const turn = shown
  const headline = h('div', standing(info, contact()))
  // What is below stays: it may have an answer that a person still reads.
  const refresh = async () => {
    try {
      const now = await read('/api/v1/key-info')
      if (turn === shown) fill(headline, standing(now, contact()))
    } catch (thrown) {
      const isGone = thrown instanceof Refusal && thrown.status === 401
      if (turn === shown && isGone && !document.querySelector('dialog')) await showRefusal(thrown, turn)
    }
  }
  refreshHeadline = () => void refresh()
  const tabs = tabRow(
    [
      { id: 'usage', label: 'Usage', show: panel => overviewPanel(panel, info) },
      {
        id: 'setup',
        label: 'Set up',
        show: panel =>
          setupPanel(panel, info, { base: baseUrl(), key: currentKey() ?? '', title: settings.title }, refreshHeadline),
      },
      { id: 'models', label: 'Models and prices', show: panel => modelsPanel(panel, info) },
      { id: 'history', label: 'Requests', show: panel => historyPanel(panel, info) },
      { id: 'statement', label: 'Statement', show: panel => statementPanel(panel) },
      ...(info.manages_keys ? [{ id: 'keys', label: 'Keys', show: panel => keysPanel(panel) }] : []),
      {
        id: 'redeem',
        label: 'Redeem',
        show: panel =>
          fill(
            panel,
            h(
              'section.card',
              h('h2', 'Redeem a code'),
              redeemForm({ hasKey: true, onCredits: refreshHeadline, onKey: useNewKey }),
            ),
          ),
      },
    ],
    {
      label: 'Your key',
      chosen: location.hash.slice(1),
      onChoice: id => history.replaceState(null, '', `#${id}`),
    },
  )
  fill(content, h('div.stack', headline, tabs.element))
}

/** A key in the address would be in the history of the browser and in the logs of every proxy. */
function cleanAddress() {
  if (!keysWith(settings.prefixes).test(location.href)) return
  history.replaceState(null, '', location.pathname)
  announce('A key was in the address. It was removed there; replace the key if others may have seen it.', 'error')
}

document.addEventListener('visibilitychange', () => document.hidden || refreshHeadline())

announceFaults()
cleanAddress()
showTop()
settings = { ...settings, ...(await read('/page/settings').catch(() => ({}))) }
// Only now is it known what keys begin with here.
cleanAddress()
if (currentKey()) await showKey()
else await showAsk()
