/** Redeeming a code: for credits, or for a new key. */
import { read } from './api.js'
import { closeDialogs } from './dialog.js'
import { announce, banner, button, field, fill, h } from './dom.js'
import { amount, day } from './format.js'
import { showSecrets } from './secrets.js'

/**
 * @param {{ hasKey?: boolean, onCredits?: () => void, onKey?: (key: string) => void }} options
 */
export function redeemForm({ hasKey = false, onCredits = () => {}, onKey = () => {} }) {
  const code = h('input', {
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'TG-XXXXX-XXXXX-XXXXX-XXXXX-XXXXX',
    class: 'mono',
  })
  const result = h('div', { 'aria-live': 'polite' })
  // A repeated request with the same key gets the same answer, so that a lost answer loses nothing.
  let request = ''
  const submit = h('button', { type: 'submit', class: 'button' }, 'Redeem')
  const hint = hasKey
    ? 'Case and dashes do not matter.'
    : 'A code becomes a new key. A code for credits needs your key first.'
  const form = h('form.stack', { novalidate: true }, field('Code', code, hint), h('div', submit), result)
  code.addEventListener('input', () => (request = ''))
  form.addEventListener('submit', async event => {
    event.preventDefault()
    if (code.value.trim() === '' || submit.getAttribute('aria-busy')) return
    submit.setAttribute('aria-busy', 'true')
    request ||= randomText()
    try {
      const redeemed = await read('/api/v1/redeem', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': request },
        body: JSON.stringify({ code: code.value }),
      })
      if (redeemed.kind !== 'key') {
        const [words, more] = wordsOf(redeemed)
        fill(result, banner('good', words, more))
        announce(words)
        code.value = ''
        request = ''
        onCredits()
      } else {
        code.value = ''
        request = ''
        fill(result)
        await showNewKey(redeemed, onKey)
      }
    } catch (thrown) {
      fill(result, h('p.fault', { role: 'alert' }, thrown instanceof Error ? thrown.message : 'That did not work.'))
    } finally {
      submit.removeAttribute('aria-busy')
    }
  })
  return form
}

/** Says what a code gave to a key that exists. */
function wordsOf({ kind, credits, balance }) {
  if (kind === 'plan') return ['Your plan is valid for one more period.', 'It is shown above.']
  return [`${amount(credits)} credits were added.`, `You have ${amount(balance)} credits now.`]
}

/** Shows a new key until it was copied, or its owner leaves twice. */
async function showNewKey(redeemed, onKey) {
  const until = redeemed.expires_at ? `, valid until ${day(redeemed.expires_at)}` : ''
  const use = button('Show this key', () => {
    closeDialogs()
    onKey(redeemed.key)
  })
  const columns = ['id', 'key', 'type', 'credits', 'expires_at']
  await showSecrets(
    'Your new key',
    { rows: [redeemed], member: 'key', columns },
    {
      words: [h('p', `A ${redeemed.type} key with ${amount(redeemed.credits)} credits${until}.`)],
      actions: [use],
    },
  )
}

function randomText() {
  return Array.from(crypto.getRandomValues(new Uint8Array(24)), byte => byte.toString(16).padStart(2, '0')).join('')
}
