import t from 'tap'
import { startGateway } from '../gateway.ts'
import { BODY, CHAT, REPLY, withSpare } from '../pooled.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { scene } from '../scene.ts'

/** A quota of one account that several keys share. */

/** A reply that uses up its output limit, so that it costs what was held for it. */
const WHOLE = { ...REPLY, usage: { prompt_tokens: 10, completion_tokens: 100 } }
const QUOTA = { credits: 0.05, per: '5h', fairShare: true }

t.test('a greedy key cannot take the share of another one, and both see their shares', async t => {
  const { g, upstream } = await scene(t, file =>
    file
      .set('upstreams.famC.accounts', [{ name: 'main', key: 'main-secret-0123456789', quota: QUOTA }])
      .set('keyTypes.famC.limits.concurrency', 100)
      .stage('key-info', { quotas: 'all' }),
  )
  upstream.script = (_received, res) => json(res, WHOLE)
  const [greedy, modest] = [await g.key('famC'), await g.key('famC')]
  t.equal((await g.call(CHAT, { key: modest, body: BODY })).status, 200)
  const [{ cost_nano }] = (await g.settled(modest)) as unknown as [{ cost_nano: string }]
  const cost = Number(cost_nano)

  const replies = await Promise.all(Array.from({ length: 60 }, () => g.call(CHAT, { key: greedy, body: BODY })))
  const refused = replies.filter(({ status }) => status !== 200)
  for (const reply of refused) {
    t.match(reply, { status: 429, json: { error: { code: 'rate_limit_exceeded' } } })
    // Some of them would fit without the running ones.
    t.match(
      reply.text,
      /This key has used up its share of the quota of this model. The quota renews at 20|Running requests/,
    )
  }
  await g.settled(greedy)
  const { quota_of_5h: quota } = (await g.call('/api/v1/key-info', { key: greedy })).json
  t.match(quota, { limit: 0.05, share: { limit: 0.016666666 } })
  t.ok(quota.used > 0.02 && quota.used < 0.04, `${quota.used} is more than the share, and not all`)
  t.equal(quota.share.remaining, quota.share.limit - quota.share.used)

  t.comment('The other key still has its whole share.')
  const share = Math.floor(16_666_666 / cost)
  const own = await Promise.all(Array.from({ length: share - 2 }, () => g.call(CHAT, { key: modest, body: BODY })))
  for (const { status } of own) t.equal(status, 200)
  const served = replies.length - refused.length + own.length + 1
  t.equal(upstream.requests.length, served, 'what was refused was not sent')
  await g.settled(modest)
  const [account] = g.gateway.config.upstreams.get('famC')?.accounts ?? []
  const [used] = account?.quotas ?? []
  if (!account || !used) throw new Error('no quota')
  t.equal((await g.gateway.ledger.reads.quotaUsed(account.name, used, Date.now())).used, BigInt(served * cost))
})

t.test('a key that has used up its share is served by the next account', async t => {
  const [first, spare] = [await ScriptedUpstream.start(t), await ScriptedUpstream.start(t)]
  for (const each of [first, spare]) each.script = (_received, res) => json(res, WHOLE)
  const g = await startGateway(t, {
    upstream: first.url,
    edit: file =>
      withSpare(file, spare).set('upstreams.famC.accounts', [
        { name: 'main', key: 'main-secret-0123456789', quota: { ...QUOTA, credits: 0.01 } },
      ]),
  })
  const key = await g.key('famC')
  for (let nth = 0; nth < 20; nth++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  await g.settled(key)
  t.ok(first.requests.length > 1 && spare.requests.length > 1, `${first.requests.length} ${spare.requests.length}`)
})
