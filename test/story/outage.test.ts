import t from 'tap'
import { usageBy } from '../../core/records/usage.ts'
import { dayOf } from '../../core/records/entry.ts'
import { operate } from '../admin.ts'
import { ScriptedUpstream } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const BODY = {
  model: 'acme/famC-5.5',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'a secret of the customer' }],
}
const REQUESTS = 40

t.test('in a total outage every page and every count says how many requests failed, and why', async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    void res
      .writeHead(500, { 'content-type': 'application/json' })
      .end(
        '{"error":{"type":"server_error","message":"the cluster is on fire, your prompt was: a secret of the customer"}}',
      )
  const { gateway: g, api } = await operate(
    t,
    {},
    { upstream: upstream.url, edit: file => file.insertBefore('access-log', { metrics: {} }) },
  )
  const key = await g.key('famC')
  const id = await g.id(key)
  for (let request = 0; request < REQUESTS; request++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 502)
  t.equal((await g.call(CHAT, { key, body: { ...BODY, model: 'no/such' } })).status, 404)
  t.equal((await g.call(CHAT, { key: 'sk-unknown', body: BODY })).status, 401)
  t.equal(upstream.requests.length, REQUESTS, "the provider's log")

  t.match((await g.call('/health/ready')).json, { status: 'ready', key_types: { famC: 'failing' } })
  await g.gateway.ledger.background.archiveAll()
  const { records } = g.gateway
  const today = dayOf(Date.now())
  const by = async (group: 'type' | 'key' | 'code') =>
    (await usageBy(records.database, group, { from: today, to: today, count: 9 })).map(({ group, counts }) => [
      group,
      Number(counts.requests),
      Number(counts.errors),
      Number(counts.refused),
    ])
  const { text: metrics } = await g.call('/metrics')
  t.match(metrics, `account="famC/1",code="upstream_failed"} ${REQUESTS}\n`)
  t.match(metrics, '\ntollgate_strangers_total 1\n')
  t.strictSame(await by('code'), [
    ['model_not_found', 1, 0, 1],
    ['upstream_failed', REQUESTS, REQUESTS, 0],
  ])
  t.strictSame(await by('key'), [[id, REQUESTS + 1, REQUESTS, 1]])
  t.match((await api('GET', '/overview')).json.today, { requests: REQUESTS + 1, errors: REQUESTS, refused: 1 })
  const failures = await records.failures.list({ before: undefined, key: id, code: 'upstream_failed' }, 100)
  t.equal(
    failures.reduce((sum, { alike }) => sum + alike, 0),
    REQUESTS,
  )
  t.match(
    failures,
    Array.from({ length: 10 }, () => ({
      who: 'provider',
      words: 'server_error: the cluster is on fire, your prompt was: …',
    })),
  )
})
