/** The accounts of the upstreams: whether they can be asked, and what is left of their quotas. */
import { call, read } from './api.js'
import { announce, button, fill, h } from './dom.js'
import { confirmed } from './dialog.js'
import { meter, partOf } from './figures.js'
import { amount, distance, duration, number, time } from './format.js'

/** A quota with what is used of it. @param {string} account @param {any} quota */
export function quotaLine(account, quota) {
  const part = partOf(Number(quota.used), Number(quota.credits))
  return h(
    'div.stack',
    h(
      'div.row.apart',
      h('span', `${account}: quota ${quota.unit === 'cost' ? 'in cost ' : ''}per ${quota.window}`),
      h('span', `${amount(quota.used)} of ${amount(quota.credits)} credits used`),
    ),
    meter(part, { label: `${Math.round(100 * part)} % used` }),
    quota.resets_at && h('span.muted', `resets ${distance(quota.resets_at)}, on ${time(quota.resets_at)} UTC`),
  )
}

/** The health of an account as a coloured word. @param {any} account */
export function healthChip({ health, simulated }) {
  let tone = 'warn'
  if (health === 'ok') tone = 'good'
  else if (/^(?:refused|failing)/.test(health)) tone = 'bad'
  return [h('span', { class: `chip ${tone}` }, health), simulated && h('span.chip', 'simulated')]
}

/** Shows one account. @param {any} account @param {any} actions what may be done with it; false for nothing */
function accountCard(account, actions) {
  return h(
    'section.card.stack',
    h('div.row.apart', h('h2.break', account.account), h('div.row', healthChip(account))),
    h('p.muted', `${number(account.requests)} requests, ${number(account.failures)} failed; weight ${account.weight}`),
    account.quotas.map(quota => quotaLine(account.account, quota)),
    account.last_failure &&
      h('p.break', h('span.muted', `Last failure, ${distance(account.last_failure_at)}: `), account.last_failure),
    actions &&
      h(
        'div.row',
        account.health === 'disabled'
          ? button('Enable', actions.act(account.account, 'enable', 'The account is asked again.'), {
              class: 'button small',
            })
          : button(
              'Disable',
              async () => {
                await confirmed(
                  `Disable ${account.account}?`,
                  'It is asked no more. If no other account serves its models, their requests are refused.',
                  'Disable',
                  actions.act(account.account, 'disable', 'The account is asked no more.'),
                )
              },
              { class: 'button small' },
            ),
        button('Test', () => actions.test(account.account), { class: 'button small' }),
        account.health !== 'ok' &&
          account.health !== 'disabled' &&
          button('Ask it again', actions.act(account.account, 'reset', 'The account is asked again.'), {
            class: 'button small',
          }),
      ),
  )
}

/** @param {HTMLElement} place @param {string[]} _path @param {any} session */
export async function accountsArea(place, _path, session) {
  const list = h('div.grid')
  fill(place, h('h1', 'Accounts of the upstreams'), list)
  const load = async () => {
    const { data } = await read('/accounts')
    fill(
      list,
      data.map(account => accountCard(account, session.token.scope === 'all' && { act, test })),
    )
  }
  const act = (account, action, words) => async () => {
    await call('POST', `/accounts/${account}/${action}`)
    announce(words)
    return load()
  }
  const test = async account => {
    const { model, ms, failure, simulated } = await call('POST', `/accounts/${account}/test`)
    if (failure !== null) announce(`${account} failed after ${duration(ms)}: ${failure}`, 'error')
    else announce(simulated ? `${account} is simulated.` : `${account} answered in ${duration(ms)} (${model}).`)
    return load()
  }
  await load()
}
