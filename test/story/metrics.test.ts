import t from 'tap'
import { startGateway, until } from '../gateway.ts'
import type { Edit } from '../gateway-file.ts'

const TOKEN = 'a-token-of-some-length'

t.test('metrics report on the ledger to the holder of the token, and name no key', async t => {
  const edit: Edit = file =>
    file.insertBefore('access-log', { metrics: { token: TOKEN } }).set('ledger.auditEvery', '20ms')
  const g = await startGateway(t, { edit })
  const key = await g.key('famC')
  const id = await g.id(key)
  t.equal((await g.call('/metrics')).status, 401)
  t.equal((await g.call('/metrics', { key: 'another-token-longer' })).status, 401)
  await g.call('/v1/chat/completions', {
    key,
    body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }] },
  })
  await g.settled(key)
  const read = async (): Promise<string> => (await g.call('/metrics', { key: TOKEN })).text
  t.match(
    await read(),
    /tollgate_ledger_drifted_accounts 0\n[^]*tollgate_settlements_waiting 0\n[^]*tollgate_holds 0\n[^]*tollgate_unpriced_total 0\n[^]*tollgate_below_cost_total 0\n[^]*tollgate_exchanges_total\{outcome="relayed"\} 1\n/,
  )
  t.notMatch(await read(), new RegExp(`sk-|${id}`))
  const { scripts } = g.gateway.ledger
  await scripts.redis.hincrby(scripts.keys.of(id).account, 'bal', 1)
  await until(async () => (await read()).includes('tollgate_ledger_drifted_accounts 1'))
  await scripts.redis.hincrby(scripts.keys.of(id).account, 'bal', -1)
  await until(async () => (await read()).includes('tollgate_ledger_drifted_accounts 0'))
})
