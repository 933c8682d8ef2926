/** Which models can be used. */
import { fill, h } from './dom.js'
import { themeButton } from './theme.js'

const REFRESH_MS = 30_000
const TONES = { up: 'good', degraded: 'warn', down: 'bad' }

const top = /** @type {HTMLElement} */ (document.getElementById('top'))
const content = /** @type {HTMLElement} */ (document.getElementById('content'))

function show({ title, at, models, key_types: types }) {
  document.title = `Status – ${title}`
  fill(top, h('span.brand', title), h('span.spring'), themeButton())
  const byId = new Map(models.map(each => [each.model, each]))
  const worst = models.filter(({ state }) => state !== 'up')
  fill(
    content,
    h(
      'div.stack',
      h('div.row.apart', h('h1', 'Status'), h('span.muted', `as of ${at.slice(0, 19).replace('T', ' ')} UTC`)),
      h(
        'div',
        { class: `banner ${worst.length === 0 ? 'good' : 'warn'}`, role: 'status' },
        h(
          'strong',
          worst.length === 0 ? 'All models can be used.' : `${worst.length} of ${models.length} models have trouble.`,
        ),
      ),
      types.map(type =>
        h(
          'section.card',
          h('h2', `${type.key_type} keys`),
          h(
            'ul.models',
            type.models.map(id => line(byId.get(id))),
          ),
        ),
      ),
      h(
        'p.muted',
        'Each bar is an hour of the last day: the share of requests that were answered. An empty bar had no request.',
      ),
    ),
  )
}

function line({ model, state, hours }) {
  const shares = hours.filter(share => share !== null)
  const all =
    shares.length === 0 ? 'no requests in the last day' : `worst hour ${Math.round(100 * Math.min(...shares))} %`
  return h(
    'li',
    h('span.mono.break', model),
    h(
      'span.hours',
      { role: 'img', 'aria-label': `${model}: ${all}` },
      hours.map(share => h('i', { class: toneOf(share) })),
    ),
    h('span', { class: `chip ${TONES[state]}` }, state),
  )
}

/** @param {number | null} share of the requests that were answered */
function toneOf(share) {
  if (share === null) return false
  if (share >= 0.95) return 'good'
  return share >= 0.5 ? 'warn' : 'bad'
}

async function load() {
  const response = await fetch('/status', { headers: { accept: 'application/json' }, credentials: 'omit' })
  if (!response.ok) throw new Error('The status cannot be read at the moment.')
  show(await response.json())
}

function failed(thrown) {
  fill(
    content,
    h('div.banner.bad', { role: 'alert' }, thrown instanceof Error ? thrown.message : 'The status cannot be read.'),
  )
}

await load().catch(failed)
setInterval(() => {
  if (!document.hidden) load().catch(failed)
}, REFRESH_MS)
