import t from 'tap'
import keyInfo from '../../plugins/key-info.ts'
import type { Config, KeyType, Quota } from '../../core/config/config.ts'
import type { Reply } from 'tollgate/plugin'
import { NANO } from '../../core/money/credits.ts'
import { drive } from 'tollgate/testing'
import { at, config, hostWith, keyOf, NO_SUMMARY, NOW } from './facts.ts'

async function ask(
  type: string,
  changes?: Partial<Quota>,
  options = {},
  accounts: readonly (readonly Partial<Quota>[])[] = [[changes ?? {}]],
): Promise<any> {
  const reads = {
    limits: () => Promise.resolve({ account: { granted: 10n * NANO, balance: 9n * NANO, held: 0n, settled: NANO } }),
    summary: () => Promise.resolve(NO_SUMMARY),
    quotaShare: () => Promise.resolve({ limit: 250n * NANO, used: 260n * NANO }),
    quotaUsed: () => Promise.resolve({ used: 20n * NANO, resetsAt: NOW }),
  }
  const { given } = await drive(keyInfo, {
    options,
    exchange: at('/api/v1/key-info'),
    facts: { key: keyOf(type) },
    host: hostWith({
      config: withQuotas(accounts),
      ledger: { reads },
      keys: { changes: { record: () => Promise.resolve({ name: 'test', label: 'sk-...abcd', createdAt: NOW }) } },
    }),
  })
  return JSON.parse(String((given as Reply).body))
}

/** The configuration, with the quotas of each account of the editor changed. */
function withQuotas(changes: readonly (readonly Partial<Quota>[])[]): Config {
  const editor = config.keyTypes.get('editor') as KeyType
  const upstreams = editor.upstreams.map(upstream => ({
    ...upstream,
    accounts: changes.flatMap((quotas, nth) =>
      upstream.accounts.map(account => ({
        ...account,
        name: `${account.name} ${nth}`,
        quotas: quotas.flatMap(change => account.quotas.map(quota => ({ ...quota, ...change }))),
      })),
    ),
  }))
  return { ...config, keyTypes: new Map([...config.keyTypes, ['editor', { ...editor, upstreams }]]) }
}

t.test('a key sees its id, label, balance, models and usage, and never its secret', async t => {
  const info = await ask('famC')
  t.match(info, { object: 'key_info', id: 'key_1', label: 'sk-...abcd', name: 'sk-...abcd' })
  t.match(JSON.stringify(info), 'acme/famC-5.5')
  t.notOk('weekly_quota' in info)
})

const RESET_AT = new Date(NOW).toISOString()

t.test('a key sees whether a quota is used up, and not its size', async t => {
  t.same((await ask('editor')).weekly_quota, { used_up: false, reset_at: RESET_AT })
  const [small] = [await ask('editor', { amount: 20n * NANO })]
  t.same(small.weekly_quota, { used_up: true, reset_at: RESET_AT })
})

t.test('an account is used up when one of its quotas is, and a window when all of its accounts are', async t => {
  const spent = { amount: 20n * NANO, unit: 'cost' as const }
  for (const [accounts, usedUp] of [
    [[[{}, spent]], true],
    [[[spent], [{}]], false],
    [[[spent], [spent]], true],
  ] as const) {
    const info = await ask('editor', undefined, {}, accounts)
    t.same(info.weekly_quota, { used_up: usedUp, reset_at: RESET_AT })
  }
})

t.test('a key sees its own share of a quota that is shared fairly', async t => {
  const info = await ask('editor', { fairShare: true })
  const share = { limit: 250, used: 250, remaining: 0 }
  t.same(info.weekly_quota, { share, used_up: false, reset_at: RESET_AT })
})

t.test('with quotas: all, a key sees what all customers have used, except of a quota in cost', async t => {
  const all = { quotas: 'all' }
  const whole = { limit: 500, used: 20, remaining: 480 }
  t.match((await ask('editor', {}, all)).weekly_quota, whole)
  t.match((await ask('editor', { fairShare: true }, all)).weekly_quota, { ...whole, share: { limit: 250 } })
  const cost = await ask('editor', { fairShare: true, unit: 'cost' }, all)
  t.same(
    Object.keys(cost).filter(name => /quota_of|cost/.test(name)),
    [],
  )
  t.same(cost.weekly_quota, { used_up: false, reset_at: RESET_AT })
})
