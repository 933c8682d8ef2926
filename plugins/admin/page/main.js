/** The operators' page: signs in, and shows one area at a time. */
import { accountsArea } from './accounts.js'
import { call, read, useSession } from './api.js'
import { auditArea, configurationArea, tokensArea } from './office.js'
import { codesArea } from './codes.js'
import { closeDialogs } from './dialog.js'
import { announceFaults, button, field, fill, h } from './dom.js'
import { failuresArea } from './failures.js'
import { keysArea } from './keys.js'
import { keyArea } from './key.js'
import { overviewArea } from './overview.js'
import { themeButton } from './theme.js'
import { requestsArea, usageArea } from './usage.js'

const content = /** @type {HTMLElement} */ (document.getElementById('content'))
const top = /** @type {HTMLElement} */ (document.getElementById('top'))
const side = /** @type {HTMLElement} */ (document.getElementById('side'))

/**
 * The areas: the first part of the address behind the number sign. Each returns a function that ends what it began.
 * @type {Record<string, { name?: string, show: (place: HTMLElement, path: string[], session: any) => any }>}
 */
const AREAS = {
  overview: { name: 'Overview', show: overviewArea },
  keys: { name: 'Keys', show: keysArea },
  key: { show: keyArea },
  codes: { name: 'Redeem codes', show: codesArea },
  usage: { name: 'Usage', show: usageArea },
  requests: { name: 'Requests', show: requestsArea },
  failures: { name: 'Failures', show: failuresArea },
  accounts: { name: 'Accounts', show: accountsArea },
  audit: { name: 'Audit log', show: auditArea },
  tokens: { name: 'Tokens', show: tokensArea },
  configuration: { name: 'Configuration', show: configurationArea },
}

/** @type {any} */
let session
/** @type {() => void} */
let leave = () => {}
let turn = 0

async function showArea() {
  if (!session) return
  const own = ++turn
  const [name = '', ...path] = (location.hash.replace(/^#\/?/, '').split('?')[0] ?? '').split('/').map(decoded)
  const area = Object.hasOwn(AREAS, name) ? name : 'overview'
  leave()
  leave = () => {}
  const current = area === 'key' ? 'keys' : area
  for (const link of side.querySelectorAll('a'))
    if (link.dataset['area'] === current) {
      link.setAttribute('aria-current', 'page')
      // On a phone, the row of areas is wider than the screen.
      link.scrollIntoView({ block: 'nearest', inline: 'center' })
    } else link.removeAttribute('aria-current')
  document.title = `${AREAS[current]?.name} – Tollgate admin`
  const place = h('div.stack')
  fill(content, place)
  try {
    const ended = await AREAS[area]?.show(place, path, session)
    if (own === turn) leave = ended ?? leave
    else ended?.()
  } catch (thrown) {
    if (own !== turn) return
    const text = thrown instanceof Error ? thrown.message : 'Something went wrong.'
    fill(place, h('div.banner.bad', { role: 'alert' }, text), button('Try again', showArea))
  }
}

function showShell() {
  fill(
    top,
    h('span.brand', 'Tollgate'),
    h('span.spring'),
    h('span.muted.wide', `${session.token.name} (${session.token.scope})`),
    button('Sign out', signOut, { class: 'button small' }),
    themeButton(),
  )
  fill(
    side,
    Object.entries(AREAS)
      .filter(([, { name }]) => name)
      .map(([area, { name }]) => h('a', { href: `#/${area}`, 'data-area': area }, name)),
  )
}

/** @param {string} part of an address that anybody can have typed */
function decoded(part) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

async function signOut() {
  await call('DELETE', '/session')
  ended('You are signed out.')
}

/** @param {string} [why] */
function ended(why = 'Your session is over. Sign in again.') {
  leave()
  leave = () => {}
  turn++
  session = undefined
  // A dialog may show a secret.
  closeDialogs()
  showSignIn(why)
}

/** @param {string} [why] */
function showSignIn(why) {
  document.title = 'Tollgate admin'
  fill(top, h('span.brand', 'Tollgate admin'), h('span.spring'), themeButton())
  fill(side)
  const token = h('input', {
    type: 'password',
    autocomplete: 'current-password',
    spellcheck: 'false',
    placeholder: 'tga-…',
  })
  const fault = h('p.fault', { role: 'alert' })
  const submit = h('button', { type: 'submit', class: 'button primary' }, 'Sign in')
  const form = h(
    'form',
    { novalidate: true },
    h('h1', 'Sign in'),
    why && h('p', { role: 'status' }, why),
    field('Token', token, 'Create one with: npx tollgate tokens create --name NAME'),
    fault,
    h('div', submit),
  )
  form.addEventListener('submit', async event => {
    event.preventDefault()
    if (submit.getAttribute('aria-busy')) return
    submit.setAttribute('aria-busy', 'true')
    try {
      begin(await call('POST', '/session', { token: token.value }))
    } catch (thrown) {
      fill(fault, thrown instanceof Error ? thrown.message : '')
      token.focus()
    } finally {
      submit.removeAttribute('aria-busy')
    }
  })
  fill(content, h('section.card.sign-in', form))
  token.focus()
}

/** @param {any} begun */
function begin(begun) {
  session = begun
  useSession(begun.csrf, () => session && ended())
  showShell()
  void showArea()
}

window.addEventListener('hashchange', () => void showArea())
announceFaults()

await read('/session').then(begin, () => showSignIn())
