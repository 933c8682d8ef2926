/** What happens at the moment. */
import { LIVE, read } from './api.js'
import { figures } from './figures.js'
import { fill, h } from './dom.js'
import { amount, duration, number } from './format.js'
import { healthChip, quotaLine } from './accounts.js'
import { liveChart } from './live.js'

/** @param {HTMLElement} place */
export async function overviewArea(place) {
  const state = h('span', { class: 'muted', role: 'status' })
  const minute = h('section', { class: 'card' })
  const today = h('section', { class: 'card' })
  const accounts = h('section', { class: 'card stack' })
  const trouble = h('div', { class: 'stack' })
  const chart = liveChart()
  fill(
    place,
    h('div', { class: 'row apart' }, h('h1', {}, 'Overview'), state),
    trouble,
    minute,
    h('section', { class: 'card' }, chart.element),
    today,
    accounts,
  )

  const show = overview => {
    fill(state, `as of ${overview.at.slice(11, 19)} UTC`)
    fill(
      minute,
      h('h2', {}, 'The last minute'),
      sums(overview.minute ?? overview.today, overview, overview.minute === undefined),
    )
    fill(today, h('h2', {}, 'Today (UTC)'), sums(overview.today))
    fill(accounts, h('h2', {}, 'Accounts of the upstreams'), overview.accounts.map(accountLine))
    fill(trouble, faults(overview))
    chart.add(overview)
  }
  show(await read('/overview'))

  /** @type {EventSource | undefined} */
  let events
  const connect = () => {
    events?.close()
    if (document.hidden) return
    events = new EventSource(LIVE)
    events.addEventListener('overview', event => show(JSON.parse(event.data)))
    events.addEventListener('unavailable', () => fill(state, 'The store or the database does not answer.'))
    events.addEventListener('over', () => void read('/session'))
    // The browser connects again by itself.
    events.addEventListener('error', () => fill(state, 'The connection is lost. Trying again …'))
  }
  connect()
  document.addEventListener('visibilitychange', connect)
  return () => {
    document.removeEventListener('visibilitychange', connect)
    events?.close()
    chart.remove()
  }
}

function sums(counts, overview, starting = false) {
  if (starting) return h('p', { class: 'empty' }, 'Counting begins …')
  return figures([
    ['Requests', number(counts.billed), overview && `${number(overview.running)} running in this process`],
    [
      'Errors',
      number(counts.errors),
      `${counts.billed > 0 ? `${((100 * counts.errors) / counts.billed).toFixed(1)} % of` : 'of'} the requests that were sent on`,
    ],
    ['Credits', amount(counts.credits)],
    // Without costs in the configuration, everything would look like margin.
    ...(Number(counts.cost) > 0
      ? [
          ['Your cost', amount(counts.cost)],
          ['Margin', amount(counts.margin)],
        ]
      : [['Margin', '–', 'no costs are configured']]),
    ['Median time', duration(counts.ms_p50), `95 %: ${duration(counts.ms_p95)}`],
    ['First byte', duration(counts.first_byte_ms_p50), `95 %: ${duration(counts.first_byte_ms_p95)}`],
  ])
}

function accountLine(account) {
  return h(
    'div',
    { class: 'stack' },
    h(
      'div',
      { class: 'row apart' },
      h('strong', { class: 'break' }, account.account),
      h(
        'div',
        { class: 'row' },
        healthChip(account),
        h('span', { class: 'muted' }, `${number(account.requests)} requests, ${number(account.failures)} failed`),
      ),
    ),
    account.quotas.map(quota => quotaLine(account.account, quota)),
  )
}

/** What an operator must look at. */
function faults({ drifted, waiting, backlog_bytes: backlog, accounts }) {
  const out = accounts.filter(({ health }) => health !== 'ok')
  return [
    drifted > 0 && ['bad', `The sums of ${number(drifted)} accounts do not agree. Run npx tollgate audit.`],
    waiting > 0 && ['warn', `${number(waiting)} settlements wait for the store.`],
    backlog > 10_000_000 && [
      'warn',
      `${number(Math.round(backlog / 1_048_576))} MiB of ended requests wait to be recorded.`,
    ],
    out.length > 0 && ['warn', `${out.map(({ account, health }) => `${account}: ${health}`).join('; ')}`],
  ]
    .filter(Boolean)
    .map(([tone, text]) => h('div', { class: `banner ${tone}`, role: 'alert' }, text))
}
