import t from 'tap'
import keyInfo from '../../plugins/key-info.ts'
import type { Config, KeyType } from '../../core/config/config.ts'
import type { Reply } from '../../core/plugin.ts'
import { NANO } from '../../core/money/credits.ts'
import { drive } from '../drive.ts'
import { at, config, hostWith, keyOf, NO_SUMMARY, NOW } from './facts.ts'

async function ask(type: string, fairShare = false): Promise<any> {
  const ledger = {
    balance: () => Promise.resolve({ granted: 10n * NANO, balance: 9n * NANO, held: 0n, settled: NANO }),
    summary: () => Promise.resolve(NO_SUMMARY),
    quotaShare: () => Promise.resolve({ limit: 250n * NANO, used: 260n * NANO }),
    quotaUsed: () => Promise.resolve({ used: 20n * NANO, resetsAt: NOW }),
  }
  const { given } = await drive(keyInfo, {
    exchange: at('/api/v1/key-info'),
    facts: { key: keyOf(type) },
    host: hostWith({
      config: fairShare ? sharing() : config,
      ledger,
      keys: { record: () => Promise.resolve({ name: 'test', label: 'sk-...abcd', createdAt: NOW }) },
    }),
  })
  return JSON.parse(String((given as Reply).body))
}

/** The configuration, with quotas that are shared fairly. */
function sharing(): Config {
  const editor = config.keyTypes.get('editor') as KeyType
  const upstreams = editor.upstreams.map(upstream => ({
    ...upstream,
    accounts: upstream.accounts.map(account => ({
      ...account,
      quotas: account.quotas.map(quota => ({ ...quota, fairShare: true })),
    })),
  }))
  return { ...config, keyTypes: new Map([['editor', { ...editor, upstreams }]]) }
}

t.test('a key sees its id, label, balance, models and usage, and never its secret', async t => {
  const info = await ask('famC')
  t.match(info, { object: 'key_info', id: 'key_1', label: 'sk-...abcd', name: 'sk-...abcd' })
  t.match(JSON.stringify(info), 'acme/famC-5.5')
  t.notOk('weekly_quota' in info)
})

t.test('a key of an upstream with a quota sees the rest of the quota', async t => {
  t.match((await ask('editor')).weekly_quota, { limit: 500, used: 20, remaining: 480, reset_at: /^2030/ })
})

t.test('a key sees its share of a quota that is shared fairly', async t => {
  const info = await ask('editor', true)
  t.match(info.weekly_quota, {
    limit: 500,
    share: { limit: 250, used: 250, remaining: 0, reset_at: /^2030/ },
  })
})
