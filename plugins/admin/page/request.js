/** One request: what happened and why, what it cost, and what an operator can do about it. */
import { call, read } from './api.js'
import { chargeTable } from './charge.js'
import { announce, button, field, fill, h } from './dom.js'
import { askInDialog, openDialog } from './dialog.js'
import { amount, duration, number, time } from './format.js'
import { copyButton } from './give.js'

const NANO_PLACES = 9

/** Returns an amount in nano-credits as a decimal of credits. @param {string | null} nano */
function credits(nano) {
  if (nano === null) return null
  const digits = nano.replace('-', '').padStart(NANO_PLACES + 1, '0')
  return `${nano.startsWith('-') ? '-' : ''}${digits.slice(0, -NANO_PLACES)}.${digits.slice(-NANO_PLACES)}`
}

/** What is known of a request, as names with values. @param {any} row @param {() => void} close */
function factsOf(row, close) {
  const tokens = [
    ['input', row.input_tokens],
    ['cached', row.cache_read_tokens],
    ['output', row.output_tokens],
    ['reasoning', row.reasoning_tokens],
  ].filter(([, count]) => count > 0)
  const cost = credits(row.operator_cost_nano)
  const margin = row.operator_cost_nano === null ? null : String(BigInt(row.cost_nano) - BigInt(row.operator_cost_nano))
  return [
    ['Key', h('a', { href: `#/key/${row.key}`, on: { click: close } }, row.key_name || row.key)],
    ['Time', `${time(row.created_at)} UTC`],
    ['Model', row.requested_model === row.model ? row.model : `${row.model} (asked for as ${row.requested_model})`],
    ['Answered by', row.served_model === row.model ? '' : row.served_model],
    ['Result', [row.status, row.http_status && `status ${row.http_status}`, row.error_code].filter(Boolean).join(', ')],
    ['Account', row.upstream],
    [
      'Took',
      row.ttft_ms === null
        ? duration(row.duration_ms)
        : `${duration(row.duration_ms)}, first byte after ${duration(row.ttft_ms)}`,
    ],
    ['Tokens', tokens.map(([name, count]) => `${number(count)} ${name}`).join(', ')],
    ['Charge', `${amount(credits(row.cost_nano), NANO_PLACES)} credits`],
    ['Your cost', cost && `${amount(cost, NANO_PLACES)} credits`],
    ['Margin', margin && `${amount(credits(margin), NANO_PLACES)} credits`],
    ['Waived', row.waived_nano !== '0' && `${amount(credits(row.waived_nano), NANO_PLACES)} credits`],
    ['Client', row.address],
    ['Not understood', row.unread.join(', ')],
    ['Without a price', row.unpriced?.join(', ')],
    ['Refund of', row.credits_entry],
    ['Reason', row.credit_reason],
    ['Request id', h('span', { class: 'mono' }, row.request_id)],
  ].filter(([, value]) => value)
}

/** @param {any} row @param {{ session: any, reload: () => unknown }} options */
export function requestDialog(row, { session, reload }) {
  const { body, close } = openDialog('Request', { wide: true })
  const story = h('div', { class: 'stack' })
  const mayRefund =
    session.token.scope !== 'read' && row.type !== 'credit' && !row.cost_nano.startsWith('-') && row.cost_nano !== '0'
  const refundButton =
    mayRefund && button('Refund', async () => (await refund(row)) && (close(), reload()), { class: 'button danger' })
  fill(
    body,
    h(
      'div',
      { class: 'stack' },
      story,
      chargeTable(row),
      h(
        'dl',
        { class: 'facts' },
        factsOf(row, close).map(([name, value]) => [h('dt', {}, name), h('dd', { class: 'break' }, value)]),
      ),
      h(
        'div',
        { class: 'row' },
        refundButton,
        h('a', { class: 'button', href: `#/key/${row.key}`, on: { click: close } }, 'All of this key'),
        copyButton(() => row.request_id, 'Copy the id'),
      ),
    ),
  )
  showStory(story, row.id, ({ refunded }) => refundButton && refunded !== null && refundButton.remove())
}

/**
 * Shows what happened to a request.
 * @param {HTMLElement} place @param {string} id @param {(story: any) => unknown} [then] called with its story
 */
export function showStory(place, id, then = () => {}) {
  fill(place, h('p', { class: 'muted', role: 'status' }, 'Reading what happened …'))
  const told = ({ sentences }) =>
    fill(
      place,
      h('h3', {}, 'What happened'),
      h(
        'ul',
        { class: 'story' },
        sentences.map(each => h('li', { class: 'break' }, each)),
      ),
    )
  void read(`/requests/${id}`).then(
    found => {
      told(found)
      then(found)
    },
    thrown => fill(place, h('p', { class: 'muted' }, thrown instanceof Error ? thrown.message : '')),
  )
}

/** Asks for a reason, and refunds a request. @param {any} row */
function refund(row) {
  const reason = h('input', { maxlength: '200', required: true })
  return askInDialog(
    'Refund this request?',
    [
      h('p', {}, `${amount(credits(row.cost_nano), NANO_PLACES)} credits go back to ${row.key_name || row.key}.`),
      field('Reason', reason, 'The customer sees it.'),
    ],
    { label: 'Refund', danger: true },
    async () => {
      const { refunded } = await call('POST', `/entries/${row.id}/refund`, { reason: reason.value.trim() })
      announce(refunded === '0' ? 'It was refunded before.' : `${amount(refunded, NANO_PLACES)} credits were refunded.`)
    },
  )
}
