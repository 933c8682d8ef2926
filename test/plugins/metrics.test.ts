import t from 'tap'
import { Lines } from '../../core/metering/lines.ts'
import { Counts, HourlyCounts } from '../../core/metering/meter-state.ts'
import metrics from '../../plugins/metrics/index.ts'
import type { Reply } from 'tollgate/plugin'
import { drive } from 'tollgate/testing'
import { at, CHAT, hostWith } from './facts.ts'

const TOKEN = 'a-token-of-16-chars'
const host = hostWith({
  ledger: {
    background: { state: { backlogBytes: 0 }, unrecordedMs: 1500 },
    drifted: 1,
    waiting: 2,
    live: 3,
    oldestHoldMs: 2500,
  },
  meter: {
    lines: new Lines(),
    quarantined: 4,
    implausibleAlarms: 5,
    unpriced: 6,
    belowCost: 7,
    unread: new HourlyCounts(),
    served: new HourlyCounts(),
    dropped: new Counts(),
  },
  status: { memory: { taken: 8, total: 9, refused: 10 }, repeated: 11 },
})
const at_ = (authorization: string) => at('/metrics', { headers: { authorization } })

t.test('the metrics require the token', async t => {
  const options = { token: TOKEN }
  t.match((await drive(metrics, { options, exchange: at('/metrics'), host })).thrown, { code: 'invalid_key' })
  t.match((await drive(metrics, { options, exchange: at_('Bearer wrong'), host })).thrown, { code: 'invalid_key' })
  const outside = `Bearer \u00ff${TOKEN.slice(1)}`
  t.match((await drive(metrics, { options, exchange: at_(outside), host })).thrown, { code: 'invalid_key' }, 'any byte')
  const { status, body } = (await drive(metrics, { options, exchange: at_(`Bearer ${TOKEN}`), host })).given as Reply
  t.equal(status, 200)
  for (const line of [
    'ledger_drifted_accounts 1',
    'settlements_waiting 2',
    'holds 3',
    'oldest_hold_seconds 2.5',
    'queue 0',
    'unrecorded_age_seconds 1.5',
    'below_cost_total 7',
  ])
    t.match(String(body), `\ntollgate_${line}\n`)
  await t.rejects(drive(metrics, { options: { token: 'short' }, host }))
})

t.test('exchanges are counted by their outcome; other paths pass', async t => {
  const outcome = { kind: 'broken', by: 'client', status: 200, attempts: [] } as const
  const { stage, given } = await drive(metrics, { exchange: at(CHAT), outcome, host })
  t.equal(given, undefined)
  const reply: unknown = await stage.request?.({ path: '/metrics', headers: {} } as never)
  t.match(String((reply as Reply).body), 'tollgate_exchanges_total{outcome="broken_by_client"} 1')
})
