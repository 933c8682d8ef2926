import t from 'tap'
import { NANO } from '../../core/money/credits.ts'
import { startGateway, type TestGateway } from '../gateway.ts'
import { json } from '../upstream.ts'
import { scene } from '../scene.ts'

/** The look-ups of other tools: each is read as its tool reads it, in our own words. */

/** Keys in every state in which a tool may ask. */
async function states(g: TestGateway): Promise<Map<string, string>> {
  const used = await g.key('famC', 10n)
  await g.call('/v1/chat/completions', {
    key: used,
    body: { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 500 },
  })
  await g.settled(used)
  const { keys, ledger } = g.gateway
  const exhausted = await g.key('famC', 1n)
  await ledger.accounts.grant(await g.id(exhausted), { id: 'taken', amount: -NANO, notes: {} })
  const soon = await keys.changes.create({ type: 'famC', name: 'n', credits: NANO, expiresAt: Date.now() + 1 })
  return new Map([
    ['healthy', await g.key('famC', 10n)],
    ['used', used],
    ['exhausted', exhausted],
    ['expired', soon.secret],
  ])
}

const isFiniteNumber = (value: unknown): boolean => typeof value === 'number' && Number.isFinite(value)

/** CodexBar’s reader of /v1/usage: a wrong type anywhere fails the whole look-up. */
function codexBarUsage(body: any): { balance: number | undefined; percent: number | undefined } {
  const optional = (value: unknown, type: string, name: string): void => {
    if (value === undefined || value === null) return
    if (typeof value !== type || (type === 'number' && !Number.isFinite(value)))
      throw new Error(`${name} has an invalid type`)
  }
  for (const name of ['mode', 'status', 'planName', 'unit']) optional(body[name], 'string', name)
  for (const name of ['remaining', 'balance']) optional(body[name], 'number', name)
  optional(body.isValid, 'boolean', 'isValid')
  if (body.isValid === false) throw new Error('rejected the API key')
  if (body.subscription) throw new Error('a subscription hides the quota')
  let percent: number | undefined
  if (body.quota) {
    for (const name of ['limit', 'used', 'remaining']) if (!isFiniteNumber(body.quota[name])) throw new Error(name)
    if (body.quota.limit > 0) percent = Math.min(100, Math.max(0, (100 * body.quota.used) / body.quota.limit))
  }
  for (const each of body.rate_limits ?? []) if (typeof each.window !== 'string') throw new Error('window')
  for (const count of [body.usage?.today, body.usage?.total]) {
    for (const name of ['requests', 'total_tokens'])
      if (count && count[name] !== undefined && !Number.isInteger(count[name])) throw new Error(name)
    optional(count?.actual_cost, 'number', 'actual_cost')
  }
  if (body.expires_at && Number.isNaN(Date.parse(body.expires_at))) throw new Error('expires_at')
  return { balance: body.balance, percent }
}

/** The script that sub2api gives to cc-switch, and cc-switch’s check of its result. */
function ccSwitchUsage(body: any): object {
  if (!body || body.error || body.isValid === false || body.is_active === false)
    return { isValid: false, invalidMessage: String(body?.message) }
  const { limit, used, remaining, unit } = body.quota
  const result = { planName: body.planName, remaining, used, total: limit, unit: unit || 'USD' }
  for (const name of ['remaining', 'used', 'total'] as const) if (!isFiniteNumber(result[name])) throw new Error(name)
  return result
}

/** A strict schema of an editor for OpenRouter’s key: everything is required. */
function editorKey({ data }: any): number {
  if (typeof data.label !== 'string' || !isFiniteNumber(data.usage)) throw new Error('label or usage')
  for (const name of ['is_free_tier', 'is_provisioning_key']) if (typeof data[name] !== 'boolean') throw new Error(name)
  if (!Number.isInteger(data.rate_limit.requests) || typeof data.rate_limit.interval !== 'string')
    throw new Error('rate')
  if (data.limit !== null && !isFiniteNumber(data.limit)) throw new Error('limit')
  return data.limit - data.usage
}

t.test('each tool reads the balance of a key in every state', async t => {
  const g = await startGateway(t)
  for (const [state, key] of await states(g)) {
    const look = async (path: string, method = 'GET') => {
      const reply = await g.call(path, { key, method })
      t.equal(reply.status, 200, `${path} of a key that is ${state}`)
      t.equal(reply.headers.get('cache-control'), 'no-store')
      return reply.json
    }
    const { balance, used, total } = await g.balance(key)
    const close = (found: number | undefined, wanted: number, name: string): void =>
      void t.ok(Math.abs((found ?? NaN) - wanted) < 0.000_002, `${name}: ${found} is ${wanted}`)
    const usage = await look('/v1/usage?days=30&timezone=Europe%2FParis')
    close(codexBarUsage(usage).balance, balance, 'CodexBar')
    t.match(ccSwitchUsage(usage), state === 'expired' ? {} : { planName: 'famC', unit: 'USD' })
    const wanted = { healthy: 'active', used: 'active', exhausted: 'quota_exhausted', expired: 'expired' }
    t.equal(usage.status, wanted[state as keyof typeof wanted])
    const token = await look('/api/usage/token/')
    t.match(token, { code: true, success: true, data: { object: 'token_usage', unlimited_quota: false } })
    for (const name of ['total_granted', 'total_used', 'total_available', 'expires_at'])
      t.ok(Number.isInteger(token.data[name]), name)
    t.equal(token.data.total_granted, token.data.total_used + token.data.total_available)
    close(token.data.total_available / 500_000, balance, 'new-api')
    t.equal(token.data.expires_at > 0, state === 'expired')
    const self = await look('/api/user/self')
    close(self.data.quota / 500_000, balance, 'cc-switch’s template for new-api')
    const subscription = await look('/v1/dashboard/billing/subscription')
    t.equal(subscription.object, 'billing_subscription')
    const billed = await look('/v1/dashboard/billing/usage?start_date=2026-11-01&end_date=2026-11-30')
    close(subscription.hard_limit_usd - billed.total_usage / 100, balance, 'one-api’s clients')
    close(editorKey(await look('/api/v1/key')), balance, 'an editor')
    const credits = await look('/api/v1/credits')
    close(credits.data.total_credits - credits.data.total_usage, balance, 'OpenRouter’s clients')
    const both = await look('/user/balance')
    t.same(
      Object.values(both.balance_infos[0]).map(value => typeof value),
      ['string', 'string', 'string', 'string'],
      'DeepSeek’s amounts are texts',
    )
    close(Number(both.balance_infos[0].total_balance), Math.round(balance * 100) / 100, 'DeepSeek’s clients')
    close(both.balance, balance, 'cc-switch’s template')
    t.equal(both.is_active, state === 'healthy' || state === 'used')
    t.same(await look('/api/usage', 'POST'), both)
    const claude = await look('/api/oauth/usage')
    t.equal(claude.five_hour, null)
    t.equal(claude.extra_usage.used_credits, Math.round(used * 100))
    const codex = await look('/api/codex/usage')
    t.match(codex, { plan_type: 'pro', rate_limit: null, credits: { unlimited: false, balance: /^\d+\.\d\d$/ } })
    t.equal(codex.credits.has_credits, balance > 0)
    t.equal(total > 0 || state === 'exhausted', true)
  }
})

t.test('a path is answered with /v1 once or twice before it, and with a slash at its end', async t => {
  const g = await startGateway(t)
  const key = await g.key('famC')
  for (const path of [
    '/v1/usage',
    '/v1/v1/usage',
    '/v1/usage/',
    '/v1/user/balance',
    '/v1/key',
    '/v1/v1/credits',
    '/v1/dashboard/billing/usage',
    '/dashboard/billing/usage',
    '/api/usage/token',
    '/v1/api/usage/token/',
  ])
    t.equal((await g.call(path, { key })).status, 200, path)
  for (const path of ['/usage', '/key'])
    t.equal((await g.call(path, { key })).status, 404, `${path} is too common a name`)
})

t.test('a wrong key gets a short error, and a key cannot look up without end', async t => {
  const g = await startGateway(t, { edit: file => file.stage('compat-lookups', { perMinute: 3 }) })
  const wrong = await g.call('/v1/usage', { key: 'sk-wrong' })
  t.equal(wrong.status, 401)
  t.ok(wrong.text.length < 250)
  const key = await g.key('famC')
  for (let times = 0; times < 3; times++) await g.call('/v1/usage', { key })
  t.match(await g.call('/user/balance', { key }), { status: 429, json: { error: { code: 'rate_limit_exceeded' } } })
})

t.test('credits are shown as dollars at the rate of the operator', async t => {
  const g = await startGateway(t, { edit: file => file.stage('compat-lookups', { creditsPerDollar: 10 }) })
  const key = await g.key('famC', 50n)
  t.match((await g.call('/v1/usage', { key })).json, { balance: 5, quota: { limit: 5 } })
})

t.test('replies tell agents the balance, and none of the provider’s own limits', async t => {
  const { g, upstream } = await scene(t)
  const reply = {
    id: 'r',
    object: 'response',
    status: 'completed',
    output: [],
    usage: { input_tokens: 1, output_tokens: 1 },
  }
  upstream.script = (_received, res) =>
    json(res, reply, 200, {
      'x-codex-primary-used-percent': '99',
      'x-codex-credits-balance': '0',
      'anthropic-ratelimit-unified-status': 'rejected',
    })
  const key = await g.key('famC', 10n)
  const { headers } = await g.call('/v1/responses', { key, body: { model: 'acme/famC-5.5', input: 'Hi' } })
  t.equal(headers.get('x-codex-primary-used-percent'), null)
  t.equal(headers.get('x-codex-credits-has-credits'), 'true')
  t.equal(headers.get('x-codex-credits-unlimited'), 'false')
  t.equal(headers.get('x-codex-credits-balance'), '10.00')
  t.equal(headers.get('anthropic-ratelimit-unified-status'), 'allowed')
  t.match(headers.get('anthropic-ratelimit-unified-overage-utilization'), /^0(?:\.\d+)?$/)
  const reset = Number(headers.get('anthropic-ratelimit-unified-reset')) * 1000
  t.ok(reset > Date.now() && reset < Date.now() + 365 * 86_400_000)
})
