import t from 'tap'
import keyInfo from '../../plugins/key-info.ts'
import type { Reply } from '../../core/plugin.ts'
import { NANO } from '../../core/money/credits.ts'
import { drive } from '../drive.ts'
import { at, hostWith, keyOf, NO_SUMMARY, NOW } from './facts.ts'

async function ask(type: string): Promise<any> {
  const ledger = {
    balance: () => Promise.resolve({ granted: 10n * NANO, balance: 9n * NANO, held: 0n, settled: NANO }),
    summary: () => Promise.resolve(NO_SUMMARY),
    quotaUsed: () => Promise.resolve({ used: 20n * NANO, resetsAt: NOW }),
  }
  const { given } = await drive(keyInfo, {
    exchange: at('/api/v1/key-info'),
    facts: { key: keyOf(type) },
    host: hostWith({ ledger, keys: { record: () => Promise.resolve({ name: 'test', createdAt: NOW }) } }),
  })
  return JSON.parse(String((given as Reply).body))
}

t.test('a key sees its id, label, balance, models and usage, and never its secret', async t => {
  const info = await ask('famC')
  t.match(info, { object: 'key_info', id: 'key_1', label: 'sk-...abcd', name: 'test' })
  t.match(JSON.stringify(info), 'acme/famC-5.5')
  t.notOk('weekly_quota' in info)
})

t.test('a key of an upstream with a quota sees the rest of the quota', async t => {
  t.match((await ask('editor')).weekly_quota, { limit: 500, used: 20, remaining: 480, reset_at: /^2030/ })
})
