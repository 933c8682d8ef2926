/** What is left of a key, until when, and how it was used. */
import { read } from './api.js'
import { dayChart } from './chart.js'
import { banner, button, fill, h } from './dom.js'
import { seriesOf } from './series.js'
import { figures, meter, partOf } from './figures.js'
import { windowBar } from './windows.js'
import { amount, day, distance, duration, lastDays, number, percent, short, time } from './format.js'
import { tableOf } from './table.js'

const DAY_MS = 86_400_000
/** From so many days on before its end, the time that is left is shown as a warning. */
const SOON_DAYS = 7

/** The answer to what everybody asks first. @param {any} info @param {any} contact */
export function standing(info, contact) {
  const part = partOf(info.used, info.total)
  const state = stateOf(info)
  // A customer with a plan need not have credits.
  const hasCredits = !info.plan || info.total > 0 || info.balance > 0
  const until = info.expires_at
    ? [`valid until ${day(info.expires_at)}, ${info.expires_at.slice(11, 16)} UTC`, ` (${distance(info.expires_at)})`]
    : ['never expires']
  return h(
    'section.card.answer',
    h(
      'div.row.apart',
      h('h1.mono', info.label),
      h('span', { class: `chip ${TONES[state] ?? 'bad'}` }, WORDS[state] ?? state),
    ),
    info.plan && planPart(info.plan),
    hasCredits && [
      h('p.left', `${amount(info.balance)} of ${amount(info.total)} credits left`),
      meter(part, { label: `${percent(part)} of the credits are used`, left: true }),
    ],
    h(
      'p.muted',
      until,
      `; ${amount(info.usage.total.cost)} used`,
      info.held > 0 && `, ${amount(info.held)} held for running requests`,
      hasCredits && `; ${percent(part)} of the credits are used`,
    ),
    advice(info, state, contact),
  )
}

/** The windows of a plan, and until when it is valid. @param {any} plan */
function planPart(plan) {
  const { ends_at: ends, renews_at: renews } = plan
  const end = plan.valid ? 'Your plan is valid until' : 'Your plan ended on'
  const words = [
    ends && `${end} ${time(ends)} UTC (${distance(ends)}).`,
    renews && `It renews on ${time(renews)} UTC.`,
    plan.valid && plan.then === 'credits' && 'When it is used up, your credits are used.',
  ]
  return [
    h(
      'div.stack',
      { role: 'group', 'aria-label': 'Plan' },
      plan.windows.map(({ window, unit, models, limit, used, remaining: left, reset_at: resetsAt }) =>
        windowBar({ unit, per: window, models, limit, used, left, resetsAt }),
      ),
    ),
    h('p.muted', words.filter(Boolean).join(' ')),
  ]
}

/**
 * Until when what the key may use is used up: windows of its plan that count every model, or its credits of a day. Undefined
 * if it is not, or if only more credits would help.
 * @param {any} info
 */
function usedUpUntil(info) {
  const { balance, held, plan, smallest_request: smallest } = info
  const hasCredits = balance >= smallest
  if (!plan?.valid && !hasCredits) return undefined
  const goesOn = hasCredits && plan?.then !== 'refuse'
  const full = goesOn ? [] : plan.windows.filter(({ remaining, models }) => remaining === 0 && !models)
  // What running requests hold may come back.
  const day = ownLimits(info).filter(({ window, remaining }) => window === '1d' && remaining < smallest && held === 0)
  const times = [...full, ...day].map(({ reset_at: resetsAt }) => resetsAt)
  // What does not begin anew is used up until the plan or the key ends.
  return times.includes(null) ? undefined : times.sort().at(-1)
}

const WORDS = {
  active: 'active',
  low: 'active',
  expired: 'expired',
  exhausted: 'used up',
}
const TONES = { active: 'good', low: 'warn' }
/** Less than so many days of usual use is little. */
const LOW_DAYS = 3

/** What a key used on a day in the mean, since its first use in the last thirty days. @param {any} info */
function usedDaily({ daily_usage: days }) {
  const first = days.at(-1)?.date
  if (first === undefined) return 0
  const since = Math.floor((Date.now() - Date.parse(first)) / DAY_MS) + 1
  return days.reduce((sum, { cost }) => sum + cost, 0) / Math.max(1, since)
}

/** The status of a key; `low` if its credits do not last for the next days. */
function stateOf(info) {
  if (info.status !== 'active') return info.status
  if (usedUpUntil(info)) return 'exhausted'
  if (info.plan?.valid) return info.status
  return info.balance < LOW_DAYS * usedDaily(info) ? 'low' : 'active'
}

/** Says what to do about a key that cannot buy, or soon cannot. */
function advice(info, state, contact) {
  const ask = ['Ask ', contact, ' to extend it.']
  const buy = ['Redeem a code below, or buy credits from ', contact, '.']
  if (state === 'expired')
    return banner(
      'bad',
      `This key expired on ${day(info.expires_at)}.`,
      `Your requests are refused; ${amount(info.balance)} credits are left on it. `,
      ask,
    )
  const again = usedUpUntil(info)
  if (state === 'exhausted' && again)
    return banner(
      'bad',
      `What this key may use is used up until ${time(again)} UTC, ${distance(again)}.`,
      'Your requests are refused until then. For more, ask ',
      contact,
      '.',
    )
  if (state === 'exhausted') {
    const least = amount(info.smallest_request, 6)
    const words =
      info.balance > 0
        ? `What is left is too little for one request, which needs at least ${least} credits.`
        : 'The credits of this key are used up.'
    return banner('bad', words, 'Your requests are refused. ', buy)
  }
  const left = info.expires_at ? (Date.parse(info.expires_at) - Date.now()) / DAY_MS : Infinity
  if (left < SOON_DAYS) return banner('warn', `This key expires ${distance(info.expires_at)}.`, ask)
  if (state === 'low')
    return banner('warn', `At your usual use, ${amount(info.balance)} credits last for ${lasts(info)}.`, buy)
  return undefined
}

/** For how long the credits of a key last. @param {any} info */
function lasts(info) {
  const hours = (24 * info.balance) / usedDaily(info)
  return hours < 24 ? `${Math.max(1, Math.round(hours))} hours` : `${Math.round(hours / 24)} days`
}

/** @param {Element} panel @param {any} info */
export async function overviewPanel(panel, info) {
  const chart = h('div')
  let shown = 0
  const choose = async days => {
    const turn = ++shown
    for (const each of spans) each.setAttribute('aria-pressed', String(each.textContent === `${days} days`))
    const all = lastDays(days)
    const { data } = await read(`/api/v1/key-info/usage?from=${all[0]}&to=${all.at(-1)}`)
    if (turn !== shown) return
    await dayChart(chart, {
      title: `Credits by day and model, last ${days} days`,
      days: all,
      series: seriesOf(all, data),
    })
  }
  const spans = [7, 30, 90].map(days => button(`${days} days`, () => choose(days), { class: 'button small' }))
  const { today, total } = info.usage
  fill(
    panel,
    h(
      'div.stack',
      h(
        'section.card',
        figures([
          ['Today', `${amount(today.cost)}`, `${number(today.requests)} requests (UTC)`],
          ['This week', amount(info.data.usage_weekly), 'credits, from Monday'],
          ['This month', amount(info.data.usage_monthly), 'credits'],
          ['In total', amount(total.cost), `${number(total.requests)} requests`],
          [
            'Tokens in total',
            short(total.total_tokens),
            `${short(total.input_tokens)} in, ${short(total.output_tokens)} out`,
          ],
        ]),
      ),
      h('section.card.stack', h('div.row', { role: 'group', 'aria-label': 'Time' }, spans), chart),
      h('div.grid', models(info), limits(info)),
    ),
  )
  await choose(30).catch(thrown => fill(chart, h('p.empty', thrown.message)))
}

const MODEL_COLUMNS = [
  { name: 'Model', heading: true, class: 'break', cell: each => each.model },
  { name: 'Requests', number: true, cell: each => number(each.requests) },
  { name: 'Tokens', number: true, cell: each => short(each.total_tokens) },
  { name: 'Credits', number: true, cell: each => amount(each.cost) },
]

function models(info) {
  const rows = [...info.model_stats].sort((a, b) => b.cost - a.cost)
  return h(
    'section.card',
    h('h2', 'By model'),
    rows.length === 0
      ? h('p.empty', 'No request yet. The tab “Set up” shows how to send the first one.')
      : tableOf('Usage by model, in total', MODEL_COLUMNS, rows),
  )
}

const QUOTAS = { daily_quota: 'per day', weekly_quota: 'per week', monthly_quota: 'per month' }

function limits(info) {
  const quotas = Object.entries(info)
    .filter(([name]) => QUOTAS[name] || name.startsWith('quota_of_'))
    .map(([name, quota]) => ({
      window: QUOTAS[name] ?? `in ${name.slice('quota_of_'.length)}`,
      own: quota.share,
      shown: quota.share ?? (quota.limit === undefined ? undefined : quota),
      usedUp: quota.used_up,
      resetAt: quota.reset_at,
    }))
  return h(
    'section.card',
    h('h2', 'Limits'),
    h(
      'ul.stack',
      quotas.map(({ window, own, shown, usedUp, resetAt }) =>
        h(
          'li',
          h(
            'div.row.apart',
            h('span', own ? `Your share ${window}` : `All customers together ${window}`),
            h('strong', left(shown, usedUp)),
          ),
          resetAt && h('p.muted', `resets ${distance(resetAt)}, on ${time(resetAt)} UTC`),
        ),
      ),
      ownLimits(info).map(limitLine),
      h(
        'li.row.apart',
        h('span', 'Largest request'),
        h('strong', `${Math.round(info.max_request_bytes / 1_048_576)} MiB`),
      ),
      quotas.length === 0 &&
        !info.plan &&
        h('li.muted', 'This key has no limits by day or week; only its credits count.'),
    ),
  )
}

/** The limits without the windows of the plan, which stand above. @param {any} info */
function ownLimits({ rate_limits: all, plan }) {
  return all.slice(0, all.length - (plan?.windows.length ?? 0))
}

const LENGTHS = { '1m': 'per minute', '1d': 'per day (UTC)', concurrent: 'at the same time' }

/** A limit of the key, with what is left of it. @param {any} limit */
function limitLine({ window, unit, limit, remaining }) {
  const shown = value => (unit === 'credits' ? amount(value) : number(value))
  let words = limit === null ? 'no limit' : shown(limit)
  if (remaining !== undefined) words = `${shown(remaining)} of ${words} left`
  return h(
    'li.row.apart',
    h('span', `${unit[0]?.toUpperCase()}${unit.slice(1)} ${LENGTHS[window] ?? `per ${window}`}`),
    h('strong', words),
  )
}

/** What is left of a quota. @param {any} quota undefined if its size is not shown @param {boolean} usedUp */
function left(quota, usedUp) {
  if (quota) return `${amount(quota.remaining)} of ${amount(quota.limit)} left`
  return usedUp ? 'used up' : 'not used up'
}

/** How long a request took. @param {any} entry */
export function took(entry) {
  return entry.ttft_ms === null
    ? duration(entry.duration_ms)
    : `${duration(entry.duration_ms)} (first ${duration(entry.ttft_ms)})`
}
