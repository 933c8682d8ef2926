import t from 'tap'
import { keepsTable } from '../tables.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
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

t.test('metrics count requests by key type, model, account and code, and docs/operating.md lists them all', async t => {
  const upstream = await ScriptedUpstream.start(t)
  let status = 200
  upstream.script = (_received, res) =>
    json(res, { choices: [{ finish_reason: 'stop' }], usage: { prompt_tokens: 30, completion_tokens: 10 } }, status)
  const edit: Edit = file => file.insertBefore('access-log', { metrics: {} })
  const g = await startGateway(t, { upstream: upstream.url, edit })
  const key = await g.key('famC')
  const body = { model: 'acme/famC-5.5', max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] }
  const chat = (more: object = {}, of = key) => g.call('/v1/chat/completions', { key: of, body: { ...body, ...more } })
  t.equal((await chat()).status, 200)
  t.equal((await chat()).status, 200)
  status = 500
  t.equal((await chat()).status, 502)
  t.equal((await chat({ model: 'none' })).status, 404)
  t.equal((await chat({}, 'sk-nobody')).status, 401)
  await g.settled(key)
  const { text } = await g.call('/metrics')
  const of = 'key_type="famC",model="acme/famC-5.5",account="famC/1"'
  const gen = 'gen_ai_operation_name="chat",gen_ai_provider_name="famC",gen_ai_request_model="acme/famC-5.5"'
  const lines = new Set(text.split('\n'))
  for (const line of [
    `tollgate_requests_total{${of},code="ok"} 2`,
    `tollgate_requests_total{${of},code="upstream_failed"} 1`,
    'tollgate_requests_total{key_type="famC",model="",account="",code="model_not_found"} 1',
    'tollgate_strangers_total 1',
    `tollgate_tokens_total{${of},class="input"} 60`,
    `tollgate_tokens_total{${of},class="output"} 20`,
    `gen_ai_server_request_duration_seconds_count{${gen}} 2`,
    `gen_ai_server_request_duration_seconds_count{${gen},error_type="upstream_failed"} 1`,
    `gen_ai_server_request_duration_seconds_bucket{${gen},le="+Inf"} 2`,
    `gen_ai_server_time_to_first_token_seconds_count{${gen}} 2`,
    'tollgate_overhead_seconds_count 3',
    `tollgate_credits_total{${of}} 0.00048`,
    `tollgate_credits_without_cost_total{${of}} 0.00048`,
    `tollgate_cost_credits_total{${of}} 0`,
  ])
    t.ok(lines.has(line), line)
  const told = [...text.matchAll(/^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$/gm)]
  const rows = told.map(([, name = '', help = '', type = '']) => [`\`${name}\``, type, help.replace(/\.$/, '')])
  keepsTable(t, new URL('../../docs/operating.md', import.meta.url), 'metric', rows)
})
