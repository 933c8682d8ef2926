import t from 'tap'
import balance from '../../plugins/balance.ts'
import type { Reply } from 'tollgate/plugin'
import { NANO } from '../../core/money/credits.ts'
import { drive } from 'tollgate/testing'
import { at, hostWith, keyOf, NO_SUMMARY } from './facts.ts'

t.test('the balance is in credits, with exact nano-credits beside it, and must not be cached', async t => {
  const sums = { granted: 10n * NANO, balance: 7n * NANO + 1n, held: NANO, settled: 2n * NANO - 1n }
  const host = hostWith({
    ledger: { reads: { limits: () => Promise.resolve({ account: sums }), summary: () => Promise.resolve(NO_SUMMARY) } },
  })
  const { given } = await drive(balance, {
    exchange: at('/api/v1/keys/lookup/balance'),
    facts: { key: keyOf('famC') },
    host,
  })
  const { headers, body } = given as Reply
  t.equal(headers['cache-control'], 'no-store')
  t.match(JSON.parse(String(body)), { isValid: true, exact: { balance: '7000000001', granted: '10000000000' } })
})
