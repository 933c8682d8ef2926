/** What happens at the moment. */
import { LIVE, read } from './api.js'
import { dayChart } from './chart.js'
import { figures } from './figures.js'
import { fill, h } from './dom.js'
import { amount, duration, lastDays, number, percent } from './format.js'
import { healthChip, quotaLine } from './accounts.js'
import { hourChart } from './live.js'
import { moneySeries } from './money-series.js'

/** How often the days and the last hour are read again, in milliseconds. */
const TREND_EVERY_MS = 60_000

/** @param {HTMLElement} place */
export async function overviewArea(place) {
  const state = h('span.muted', { role: 'status' })
  const minute = h('section.card')
  const today = h('section.card')
  const days = h('section.card')
  const accounts = h('section.card.stack')
  const trouble = h('div.stack')
  const soon = h('div')
  const attention = h('section.card.stack', h('h2', 'Needs attention'), trouble, soon)
  const chart = hourChart()
  let removeDays = () => {}
  /** @type {any} */
  let yesterday
  const head = h('div.row.apart', h('h1', 'Overview'), state)
  fill(place, head)

  const show = overview => {
    fill(state, `as of ${overview.at.slice(11, 19)} UTC`)
    const { minute: last, running, has_costs: hasCosts } = overview
    const counted = last ? sums(last, { running, hasCosts }) : h('p.empty', 'Counting begins …')
    fill(minute, h('h2', 'The last minute'), counted)
    fill(today, h('h2', 'Today (UTC)'), sums(overview.today, { yesterday, hasCosts }))
    fill(accounts, h('h2', 'Accounts of the upstreams'), overview.accounts.map(accountLine))
    fill(trouble, faults(overview))
  }
  const showTrend = async trend => {
    const all = lastDays(30)
    const byDay = new Map(trend.days.map(each => [each.day, each]))
    yesterday = byDay.get(all.at(-2))
    chart.show(trend.hour)
    fill(soon, soonTable(trend))
    const values = member => all.map(each => Number(byDay.get(each)?.[member] ?? 0))
    removeDays()
    removeDays = await dayChart(days, {
      title: 'Revenue of the last 30 days',
      days: all,
      series: moneySeries(values).reverse(),
    })
  }
  const readTrend = () => read('/overview/trend')
  const [trend, overview] = await Promise.all([readTrend(), read('/overview')])
  // All sections appear at once, so that none moves another.
  fill(place, head, today, days, attention, minute, h('section.card', chart.element), accounts)
  const shown = showTrend(trend)
  show(overview)
  await shown
  const again = setInterval(
    () =>
      document.hidden ||
      void readTrend()
        .then(showTrend)
        .catch(() => {}),
    TREND_EVERY_MS,
  )

  const disconnect = listen(show, words => fill(state, words))
  return () => {
    disconnect()
    clearInterval(again)
    removeDays()
    chart.remove()
  }
}

/**
 * Listens to the overview while the page is visible.
 * @param {(overview: any) => void} show @param {(words: string) => void} say
 * @returns a function that stops listening
 */
function listen(show, say) {
  /** @type {EventSource | undefined} */
  let events
  const connect = () => {
    events?.close()
    if (document.hidden) return
    events = new EventSource(LIVE)
    events.addEventListener('overview', event => show(JSON.parse(event.data)))
    events.addEventListener('unavailable', () => say('The store or the database does not answer.'))
    events.addEventListener('over', () => void read('/session'))
    // The browser connects again by itself.
    events.addEventListener('error', () => say('The connection is lost. Trying again …'))
  }
  connect()
  document.addEventListener('visibilitychange', connect)
  return () => {
    document.removeEventListener('visibilitychange', connect)
    events?.close()
  }
}

/** The keys that are used up soon, and what providers report that is not understood. */
function soonTable({ running_out: keys, unread }) {
  return h(
    'div.stack',
    keys.length === 0 && unread.length === 0 && h('p.empty', 'No key is used up within a week.'),
    h(
      'ul.stack',
      keys.map(({ key, name, hint, balance, daily, days }) =>
        h(
          'li.row.apart',
          h('a.break', { href: `#/key/${key}` }, name || hint),
          h(
            'span',
            Number(balance) > 0 ? `${amount(balance)} credits last ${days} days at ${amount(daily)} a day` : 'used up',
          ),
        ),
      ),
      unread.map(({ upstream, model, count }) =>
        h(
          'li',
          `${number(count)} replies of ${upstream} for ${model} reported usage that was understood only in part.`,
        ),
      ),
    ),
  )
}

/** Says what is not in a margin, since its cost is not known. Undefined for nothing. @param {any} counts */
function withoutCost({ without_cost: unknown }) {
  return Number(unknown) > 0 ? `beside ${amount(unknown)} without a known cost` : undefined
}

/** @param {any} counts @param {{ running?: number, yesterday?: any, hasCosts: boolean }} beside */
function sums(counts, { running, yesterday: before, hasCosts }) {
  return figures([
    ['Credits', amount(counts.credits), before && `yesterday ${amount(before.credits)}`],
    ...(hasCosts
      ? [
          ['Your cost', amount(counts.cost), before && `yesterday ${amount(before.cost)}`],
          ['Margin', amount(counts.margin), withoutCost(counts) ?? (before && `yesterday ${amount(before.margin)}`)],
        ]
      : [['Margin', '–', 'no costs are configured']]),
    [
      'Requests',
      number(counts.requests),
      running !== undefined
        ? `${number(running)} running in this process`
        : before && `yesterday ${number(before.requests)}`,
    ],
    [
      'Errors',
      number(counts.errors),
      counts.requests > 0 && `${percent(counts.errors / counts.requests)} of the requests`,
    ],
    ['Refused', number(counts.refused), 'because of client or key'],
    ['Median time', duration(counts.ms_p50), `95 %: ${duration(counts.ms_p95)}`],
    ['First byte', duration(counts.first_byte_ms_p50), `95 %: ${duration(counts.first_byte_ms_p95)}`],
  ])
}

function accountLine(account) {
  return h(
    'div.stack',
    h(
      'div.row.apart',
      h('strong.break', account.account),
      h(
        'div.row',
        healthChip(account),
        h('span.muted', `${number(account.requests)} requests, ${number(account.failures)} failed`),
      ),
    ),
    account.quotas.map(quota => quotaLine(account.account, quota)),
  )
}

/** What an operator must look at. */
function faults({ drifted, waiting, backlog_bytes: backlog, accounts }) {
  const out = accounts.filter(({ health }) => health !== 'ok')
  const banner = (tone, text) => h('div', { class: `banner ${tone}`, role: 'alert' }, text)
  const mebibytes = number(Math.round(backlog / 1_048_576))
  return [
    drifted > 0 && banner('bad', `The sums of ${number(drifted)} accounts do not agree. Run npx tollgate audit.`),
    waiting > 0 && banner('warn', `${number(waiting)} settlements wait for the store.`),
    backlog > 10_000_000 && banner('warn', `${mebibytes} MiB of ended requests wait to be recorded.`),
    out.length > 0 && banner('warn', out.map(({ account, health }) => `${account}: ${health}`).join('; ')),
  ]
}
