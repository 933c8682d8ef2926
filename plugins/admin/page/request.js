/** One request: what happened and why, what it cost, and what an operator can do about it. */
import { call, read } from './api.js'
import { chargeTable, paidWords } from './charge.js'
import { announce, button, field, fill, h } from './dom.js'
import { askInDialog, openDialog } from './dialog.js'
import { amount, duration, number, ofNano, time } from './format.js'
import { copyButton } from './give.js'

/** What is known of a request, as names with values. @param {any} row @param {() => void} close */
function factsOf(row, close) {
  const tokens = [
    ['input', row.input_tokens],
    ['cached', row.cache_read_tokens],
    ['output', row.output_tokens],
    ['reasoning', row.reasoning_tokens],
  ].filter(([, count]) => count > 0)
  const exact = nano => nano !== null && `${ofNano(nano)} credits`
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
    ['Charge', paidWords(row)],
    ['Your cost', exact(row.operator_cost_nano)],
    ['Margin', exact(row.margin_nano)],
    ['Client', row.address],
    ['Not understood', row.unread.join(', ')],
    ['Without a price', row.unpriced?.join(', ')],
    ['Refund of', row.credits_entry],
    ['Reason', row.credit_reason],
    ['Request id', h('span.mono', row.request_id)],
  ].filter(([, value]) => value)
}

/** @param {any} row @param {{ session: any, reload: () => unknown }} options */
export function requestDialog(row, { session, reload }) {
  const { body, close } = openDialog('Request', { wide: true })
  const story = h('div.stack')
  const mayRefund =
    session.token.scope !== 'read' && row.type !== 'credit' && !row.cost_nano.startsWith('-') && row.cost_nano !== '0'
  const refundButton =
    mayRefund && button('Refund', async () => (await refund(row)) && (close(), reload()), { class: 'button danger' })
  fill(
    body,
    h(
      'div.stack',
      story,
      chargeTable(row),
      h(
        'dl.facts',
        factsOf(row, close).map(([name, value]) => [h('dt', name), h('dd.break', value)]),
      ),
      h(
        'div.row',
        refundButton,
        h('a.button', { href: `#/key/${row.key}`, on: { click: close } }, 'All of this key'),
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
  fill(place, h('p.muted', { role: 'status' }, 'Reading what happened …'))
  const told = ({ sentences }) =>
    fill(
      place,
      h('h3', 'What happened'),
      h(
        'ul.story',
        sentences.map(each => h('li.break', each)),
      ),
    )
  void read(`/requests/${id}`).then(
    found => {
      told(found)
      then(found)
    },
    thrown => fill(place, h('p.muted', thrown instanceof Error ? thrown.message : '')),
  )
}

/** Asks for a reason, and refunds a request. @param {any} row */
function refund(row) {
  const reason = h('input', { maxlength: '200', required: true })
  const asCredits = h('input', { type: 'checkbox' })
  return askInDialog(
    'Refund this request?',
    [
      h('p', `${paidWords({ ...row, waived_nano: '0' })} go back, for a request of ${row.key_name || row.key}.`),
      field('Reason', reason, 'The customer sees it.'),
      row.plan_nano !== '0' && h('label', asCredits, ' Give back as credits what the plan has paid.'),
    ],
    { label: 'Refund', danger: true },
    async () => {
      const wish = { reason: reason.value.trim(), ...(asCredits.checked && { as: 'credits' }) }
      const { refunded } = await call('POST', `/entries/${row.id}/refund`, wish)
      announce(refunded === '0' ? 'It was refunded before.' : `${amount(refunded, 9)} credits were refunded.`)
    },
  )
}
