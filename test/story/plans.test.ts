/** Plans: what a customer may use in windows, beside prepaid credits. */
import t, { type Test } from 'tap'
import { audit } from '../../core/ledger/audit.ts'
import { FIELDS } from '../../core/ledger/script/names.ts'
import { statesIn } from '../../core/plans/state.ts'
import { startGateway, type TestGateway, until } from '../gateway.ts'
import { boughtEarlier } from '../bought-earlier.ts'
import { edited } from '../gateway-file.ts'
import { ScriptedUpstream } from '../upstream.ts'

const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'

async function planned(t: Test, plan: object, more: Record<string, unknown> = {}): Promise<TestGateway> {
  const upstream = await ScriptedUpstream.start(t)
  return startGateway(t, {
    upstream: upstream.url,
    edit: file => file.set('keyTypes.famC.plan', plan).setAll('keyTypes.famC', more),
  })
}

/** Returns what was used and is held in the windows of a key's plan. */
async function windowsOf(g: TestGateway, key: string): Promise<{ used: bigint; held: bigint }[]> {
  const { scripts } = g.gateway.ledger
  const account = await g.id(key)
  const text = await scripts.redis.hget(scripts.keys.of(account).account, FIELDS.windows)
  return [...statesIn(text).byPlace.values()].map(({ used, held }) => ({ used, held }))
}

t.test('a plan pays for requests until its window is used up, and credits after that', async t => {
  const g = await planned(t, { windows: [{ requests: 3, per: 'day' }], then: 'credits' })
  const key = await g.key('famC', 10n)
  for (let request = 0; request < 5; request++) t.match(await g.call(CHAT, { key, body: BODY }), { status: 200 })
  await g.settledAll([key])
  t.strictSame(await windowsOf(g, key), [{ used: 3n, held: 0n }])
  const history = await g.history(key)
  t.same(
    history.map(({ paid_from: from }) => from),
    ['credits', 'credits', 'plan', 'plan', 'plan'],
  )
  t.same(
    history.map(({ cost }) => cost),
    Array(5).fill(0.00093),
    'each costs the same',
  )
  t.same((await audit(g.gateway.ledger, [await g.id(key)], 'charges')).drifts, [])
  await g.gateway.ledger.background.archiveAll()
  const { json: info } = await g.call('/api/v1/key-info', { key })
  t.match(info, { usage: { total: { requests: 5, cost: 0.00465 }, today: { cost: 0.00465 } }, used: 0.00186 }, 'usage is what it is worth') // prettier-ignore
  t.same((await audit(g.gateway.ledger, [await g.id(key)], 'charges')).drifts, [])
})

t.test('requests at once never pass a window', async t => {
  const g = await planned(t, {
    windows: [
      { requests: 7, per: 'day' },
      { credits: 1, per: '5h' },
    ],
  })
  const key = await g.key('famC', 10n)
  const answers = await Promise.all(Array.from({ length: 30 }, () => g.call(CHAT, { key, body: BODY })))
  t.equal(answers.filter(({ status }) => status === 200).length, 7)
  const refused = answers.filter(({ status }) => status !== 200)
  for (const { status, json } of refused) t.match({ status, json }, { status: 429, json: { error: { type: /usage_limit_reached|rate_limit_exceeded/ } } }) // prettier-ignore
  await g.settledAll([key])
  const last = await g.call(CHAT, { key, body: BODY })
  t.match(last, {
    status: 429,
    json: {
      error: { type: 'usage_limit_reached', message: /^The \d+ requests of your day are used; more at .* UTC\./ },
    },
  })
  t.equal(last.headers.get('x-should-retry'), 'false')
  t.match(await windowsOf(g, key), [{ used: 7n, held: 0n }, { held: 0n }])
  t.match(await g.balance(key), { total: 10, used: 0, held: 0 }, 'its credits are not touched')
})

t.test('a plan that has ended leaves the credits of the balance', async t => {
  const g = await planned(t, { windows: [{ requests: 100, per: 'day' }], until: '30d' })
  const [rich, poor] = [await g.key('famC', 10n), await g.key('famC', 0n)]
  for (const key of [rich, poor]) {
    t.match(await g.call(CHAT, { key, body: BODY }), { status: 200 })
    await g.gateway.keys.plans.end({ account: await g.id(key), id: 'end' })
  }
  t.match(await g.call(CHAT, { key: rich, body: BODY }), { status: 200 })
  t.match(await g.call(CHAT, { key: rich, body: BODY }), { status: 200 })
  const refused = await g.call(CHAT, { key: poor, body: BODY })
  t.match(refused.json, { error: { code: 'insufficient_quota' } })
  await g.settledAll([rich, poor])
  t.match((await g.call('/api/v1/key-info', { key: rich })).json, { plan: { valid: false }, used: 0.00186 })
  const account = await g.id(rich)
  const changes = async (): Promise<(string | undefined)[]> =>
    (await g.gateway.ledger.records.accounts.grants(account, 1)).map(({ notes }) => notes['change'])
  await until(async () => (await changes()).includes('lapsed'))
  t.same(await changes(), [undefined, 'bought', 'ended', 'lapsed'])
  const { json: history } = await g.call('/api/v1/key-info/history?kind=all', { key: rich })
  t.match(
    history.data.find(({ type }: any) => type === 'plan'),
    { amount: 0 },
  )
  t.ok(await g.gateway.keys.plans.extend({ account, id: 'more' }, () => undefined))
  t.notOk(await g.gateway.keys.plans.extend({ account, id: 'more' }, () => undefined), 'the same id extends once')
  t.match((await g.call('/api/v1/key-info', { key: rich })).json, { plan: { valid: true } })
})

t.test('tools and agents see the windows of a plan', async t => {
  const g = await planned(t, {
    windows: [
      { credits: 2, per: 'week' },
      { credits: 0.01, per: '5h' },
    ],
    then: 'credits',
  })
  const key = await g.key('famC', 1n)
  const answer = await g.call(CHAT, { key, body: BODY })
  t.match(answer.headers.get('x-codex-primary-window-minutes'), '300')
  t.ok(Number(answer.headers.get('x-codex-primary-used-percent')) > 0)
  t.ok(Number(answer.headers.get('x-codex-secondary-reset-at')) * 1000 > Date.now())
  t.ok(Number(answer.headers.get('anthropic-ratelimit-unified-5h-utilization')) > 0)
  t.equal(answer.headers.get('anthropic-ratelimit-unified-representative-claim'), 'five_hour')
  await g.settledAll([key])
  const { json: info } = await g.call('/api/v1/key-info', { key })
  t.match(info, {
    status: 'active',
    balance: 1,
    remaining: 1.00907,
    quota: { limit: 2, used: 0.00093 },
    data: { limit: 2, limit_reset: 'weekly' },
    plan: {
      valid: true,
      then: 'credits',
      windows: [
        { window: '7d', used: 0.00093 },
        { window: '5h', limit: 0.01 },
      ],
    },
  })
  t.match(info.reset_at, /T00:00:00/)
  const { json: usage } = await g.call('/v1/usage', { key })
  t.match(usage.rate_limits, [{ window: '7d', limit: 2, used: 0.00093, reset_at: String }, { window: '5h' }])
  const { json: claude } = await g.call('/api/oauth/usage', { key })
  t.match(claude, { five_hour: { utilization: Number, resets_at: String }, seven_day: { utilization: Number } })
  const { json: codex } = await g.call('/api/codex/usage', { key })
  t.match(codex, { rate_limit: { allowed: true, primary_window: { limit_window_seconds: 18_000 } } })
})

t.test('an edit of the file counts from the next renewal on, and a plan that an operator has given stays', async t => {
  const terms = (requests: number): object => ({ windows: [{ requests, per: 'day' }], until: '30d' })
  const g = await planned(t, terms(2))
  const { plans } = g.gateway.keys
  const [key, own] = [await g.key('famC', 0n), await g.key('famC', 0n)]
  await plans.set({ account: await g.id(own), id: 'own' }, { windows: [{ requests: 2, per: 'day' }], then: 'refuse' })
  const buy = async (who: string): Promise<number> => {
    const { status } = await g.call(CHAT, { key: who, body: BODY })
    await g.settledAll([who])
    return status
  }
  for (const status of [200, 200, 429]) for (const who of [key, own]) t.equal(await buy(who), status)
  t.ok(await g.gateway.reload(edited(g.gateway.config.text, file => file.set('keyTypes.famC.plan', terms(5)))))
  for (const who of [key, own]) t.equal(await buy(who), 429, 'what is running stays')
  // As if all this had been three days ago.
  for (const who of [key, own]) {
    await boughtEarlier(g, await g.id(who), 3 * 86_400_000)
    t.equal(await buy(who), 200)
  }
  const limitOf = async (who: string): Promise<unknown> => (await plans.of(await g.id(who)))?.terms.windows[0]?.requests
  await until(async () => (await limitOf(key)) === 5)
  t.equal(await limitOf(own), 2)
  for (const status of [200, 200, 200, 200, 429]) t.equal(await buy(key), status)
  for (const status of [200, 429]) t.equal(await buy(own), status)
})

t.test('a customer without credits sees the requests of a plan, and a person of a team what is left today', async t => {
  const g = await planned(t, { windows: [{ requests: 3, per: 'day' }] })
  const key = await g.key('famC', 0n)
  t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
  await g.settledAll([key])
  t.match(await g.balance(key), {
    isValid: true,
    unit: 'requests',
    remaining: 2,
    total: 3,
    used: 1,
    quota: { unit: 'requests', limit: 3, used: 1, remaining: 2 },
    data: { limit: null, limit_remaining: null },
  })
  const { changes } = g.gateway.keys
  const wish = { type: 'famC', name: '', credits: 5_000_000_000n, expiresAt: undefined }
  const { key: first } = await changes.create(wish)
  const other = { ...wish, credits: 0n, account: first.account, limits: '{"creditsPerDay":"0.001"}' }
  const { secret } = await changes.create(other)
  await g.gateway.keys.plans.end({ account: first.account, id: 'no plan' })
  t.match(await g.balance(secret), { remaining: 0.001, balance: 5 })
})
