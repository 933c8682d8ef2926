/** Plans and limits as operators and shops change them: by the API, by commands, and by redeem codes. */
import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { operate } from '../admin.ts'
import type { Edit } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { ScriptedUpstream } from '../upstream.ts'

const MODEL = 'acme/famC-5.5'
const BODY = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const CHAT = '/v1/chat/completions'
const DAY_MS = 86_400_000

async function office(t: Test, plan: object | undefined, more: Edit = file => file) {
  const upstream = await ScriptedUpstream.start(t)
  const scene = await operate(
    t,
    {},
    {
      upstream: upstream.url,
      edit: file => more(plan ? file.set('keyTypes.famC.plan', plan) : file),
    },
  )
  const { gateway, api } = scene
  const create = async (body: object): Promise<{ id: string; key: string }> =>
    (await api('POST', '/keys', { type: 'famC', ...body })).json.keys[0]
  const buy = (key: string) => gateway.call(CHAT, { key, body: BODY })
  return { ...scene, create, buy }
}

const THREE_A_DAY = { windows: [{ requests: 3, per: 'day' }], until: '30d' }

t.test(
  'a plan is used, reset, added to, extended and ended by the API, and a repeated request changes it once',
  async t => {
    const { gateway, api, create, buy } = await office(t, THREE_A_DAY)
    const { id, key } = await create({})
    const change = (what: string, body: object, once = randomUUID()) =>
      api('POST', `/balances/${id}/plan${what}`, body, { 'idempotency-key': once })
    const { json: fresh } = await api('GET', `/balances/${id}`)
    t.match(fresh.plan, {
      type: 'famC',
      valid: true,
      terms: THREE_A_DAY,
      windows: [{ window: 1, unit: 'requests', limit: '3', used: '0', left: '3' }],
    })
    t.match(await api('GET', `/keys/${id}`), { json: { status: 'active', balance: '0' } }, 'a plan alone may buy')
    const spend = async (count: number): Promise<void> => {
      for (let request = 0; request < count; request++) t.match(await buy(key), { status: 200 })
      t.match(await buy(key), { status: 429 })
      await gateway.settledAll([key])
    }
    await spend(3)
    t.match(await api('GET', `/keys/${id}`), { json: { status: 'exhausted' } })
    const reset = await change('/reset', { window: 1, reason: 'an outage' })
    t.match(reset, { status: 200, json: { plan: { windows: [{ used: '0', left: '3' }] } } })
    await spend(3)
    const once = randomUUID()
    const added = await change('/add', { window: 1, amount: 2, reason: 'sorry' }, once)
    t.match(added, { status: 200, json: { plan: { windows: [{ limit: '5', left: '2' }] } } })
    const again = await change('/add', { window: 1, amount: 2, reason: 'sorry' }, once)
    t.equal(again.headers.get('idempotent-replayed'), 'true')
    t.match(again.json.plan.windows, [{ limit: '5' }], 'the same key adds once')
    await spend(2)
    const before = Date.parse(fresh.plan.ends_at)
    const invoice = randomUUID()
    const extended = await Promise.all([1, 2, 3].map(() => change('/extend', {}, invoice)))
    for (const { status } of extended) t.equal(status, 200)
    const { json: now } = await api('GET', `/balances/${id}`)
    t.equal(Date.parse(now.plan.ends_at), before + 30 * DAY_MS, 'three requests with one key extend once')
    const ended = await change('/end', { reason: 'a chargeback' })
    t.match(ended.json.plan, { valid: false, windows: [], renews_at: null })
    t.match(await buy(key), { status: 429, json: { error: { code: 'insufficient_quota' } } })
    const revived = await change('/extend', { reason: 'paid after all' })
    t.match(revived.json.plan, { valid: true, windows: [{ used: '0', left: '3' }] }, 'one that has ended begins again')
    await spend(3)
    const { json: statement } = await api('GET', `/balances/${id}/statement`)
    const lines = statement.data.filter(({ type }: any) => type === 'plan').map(({ reason }: any) => reason)
    t.ok(lines.includes('reset: window 1, an outage'), 'the customer sees the reason')
    const { json: grants } = await api('GET', `/balances/${id}/grants`)
    const reasons = grants.data.map(({ reason }: any) => reason)
    // It lapses with the first request after its end, unless it was extended before.
    const made = reasons.filter((reason: string) => reason !== 'plan lapsed')
    t.same(made, ['plan bought', 'plan reset', 'plan extra', 'plan extended', 'plan ended', 'plan extended'])
    const { json: audit } = await api('GET', '/audit')
    t.match(audit.data.map(({ action }: any) => action), [/plan\.extend/, /plan\.end/, /plan\.extend/, /plan\.add/, /plan\.reset/]) // prettier-ignore
  },
)

t.test('what the plan does not allow, and what is no plan, is refused by name', async t => {
  const { api, create } = await office(t, undefined)
  const { id } = await create({ credits: 1 })
  const refused = async (path: string, body: object, status: number, message: RegExp): Promise<void> => {
    const answer = await api('POST', `/balances/${id}/plan${path}`, body)
    t.match([answer.status, answer.json.error.message], [status, message])
  }
  await refused('/extend', {}, 409, /^This balance has no plan/)
  await refused('/reset', { window: 1, reason: 'x' }, 409, /^This balance has no plan/)
  await refused('/end', {}, 400, /"reason" is missing/)
  await refused('', {}, 400, /Send either "type" or "plan"/)
  await refused('', { type: 'famC' }, 400, /"famC" has no plan/)
  await refused('', { type: 'famX' }, 400, /There is no key type "famX"/)
  const windows = [{ credits: '1', per: 'month' }]
  await refused('', { plan: { windows: [] } }, 400, /plan\.windows/)
  await refused('', { plan: { windows: [{ per: 'day' }] } }, 400, /one of credits, requests and tokens/)
  await refused('', { plan: { windows: [{ credits: '1e3', per: 'day' }] } }, 400, /plan\.windows\.0\.credits/)
  await refused('', { plan: { windows: [{ requests: 1, per: 'day', zone: 'Mars/Base' }] } }, 400, /no time zone/)
  await refused('', { plan: { windows: [{ requests: 1, per: 'day', models: ['larg'] }] } }, 400, /no model and no group "larg"/) // prettier-ignore
  await refused('', { plan: { windows, until: '9999d' } }, 400, /plan\.until/)
  await refused('', { plan: { windows, then: 'pay' } }, 400, /plan\.then/)
  t.match(await api('POST', `/balances/${id}/plan`, { plan: { windows } }), {
    status: 200,
    json: { plan: { type: null } },
  })
  await refused('/extend', {}, 409, /does not end/)
  await refused('/reset', { window: 2, reason: 'x' }, 409, /There is no window 2: the last one of this plan is 1/)
  await refused('/add', { window: 1, amount: '0', reason: 'x' }, 409, /no number of credits/)
  t.match(await api('POST', `/balances/bal_none/plan`, { plan: { windows } }), { status: 404 })
})

t.test('limits of one key are set, narrowed, shown and removed by the API', async t => {
  const { api, create, buy, gateway } = await office(t, undefined)
  const { id, key } = await create({ credits: 1, limits: { requestsPerMinute: 1 } })
  t.match(await buy(key), { status: 200 })
  t.match(await buy(key), {
    status: 429,
    json: { error: { message: /The \d+ requests a minute of this key are used; more in \d+ s\./ } },
  })
  t.same((await api('GET', `/keys/${id}`)).json.limits, { requestsPerMinute: 1 })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { models: ['famC'] } }), { status: 400 })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { requestPerMinute: 1 } }), {
    status: 400,
    json: { error: { message: /requestsPerMinute/ } },
  })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { creditsPerDay: 'much' } }), { status: 400 })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { creditsPerDay: 0.5, maxOutput: 10 } }), {
    status: 200,
    json: { limits: { creditsPerDay: '0.5', maxOutput: 10 } },
  })
  t.match(await buy(key), { status: 200 }, 'the rate is gone at once')
  t.match((await gateway.call('/api/v1/key-info', { key })).json.rate_limits, [
    { window: 'concurrent' },
    { window: '1d', limit: 0.5 },
  ])
  t.match(await api('PATCH', `/keys/${id}`, { limits: null }), { status: 200, json: { limits: null } })
})

t.test('credits among the limits of a key are its cap', async t => {
  const { api, create } = await office(t, undefined)
  const both = { cap: '1', limits: { credits: 2 } }
  t.match(await api('POST', '/keys', { type: 'famC', credits: 5, ...both }), { status: 400 })
  const { id } = await create({ credits: 5, limits: { credits: 2, maxOutput: 10 } })
  t.match((await api('GET', `/keys/${id}`)).json, { cap: '2', balance: '2', limits: { maxOutput: 10 } })
  t.match(await api('PATCH', `/keys/${id}`, both), {
    status: 400,
    json: { error: { message: /same limit/, param: 'cap' } },
  })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { credits: '3' } }), { json: { cap: '3', limits: null } })
  t.match(await api('PATCH', `/keys/${id}`, { limits: { maxOutput: 10 } }), { json: { cap: '3' } })
  t.match(await api('PATCH', `/keys/${id}`, { cap: null }), { json: { cap: null, limits: { maxOutput: 10 } } })
  const refused = { status: 409, json: { error: { message: /no cap and no limits of its own/ } } }
  t.match(await api('PATCH', `/keys/${id}`, { manage: true }), refused, 'the keys that it makes would not have them')
  t.match(await api('POST', '/keys', { type: 'famC', credits: 5, manage: true, limits: { maxOutput: 10 } }), refused)
})

t.test(
  'a key with a plan is found among the active ones, and without credits after its end among the exhausted ones',
  async t => {
    const { api, create } = await office(t, THREE_A_DAY)
    const { id } = await create({})
    const { id: other } = await create({ type: 'famA', credits: 1 })
    const found = async (status: string): Promise<string[]> => {
      const list = (await api('GET', `/keys?status=${status}`)).json.data
      t.same(
        list.filter((key: any) => key.status !== status),
        [],
        'each has the status that was asked for',
      )
      return list.map((key: any) => key.id)
    }
    t.same([await found('active'), await found('exhausted')], [[other, id], []])
    t.equal((await api('GET', '/keys/totals?status=active')).json.keys, 2)
    const endless = await create({})
    await api('POST', `/balances/${endless.id}/plan`, { plan: { windows: [{ requests: 3, per: 'day' }] } })
    t.same(await found('active'), [endless.id, other, id])
    await api('POST', `/balances/${id}/plan/end`, { reason: 'a chargeback' })
    t.same([await found('active'), await found('exhausted')], [[endless.id, other], [id]])
  },
)

t.test('a code for a plan gives it to a key of its type, and a second one extends it', async t => {
  const { api, create, buy, gateway } = await office(t, THREE_A_DAY, file => file.stage('redeem', {}))
  const other = await gateway.key('famA', 1n)
  const { id, key } = await create({ credits: 1 })
  await api('POST', `/balances/${id}/plan/end`, { reason: 'test' })
  const codes = async (count: number): Promise<string[]> =>
    (await api('POST', '/codes', { kind: 'plan', type: 'famC', count })).json.codes.map((each: any) => each.code)
  const redeem = (code: string, secret?: string, once = randomUUID()) =>
    gateway.call('/api/v1/redeem', { key: secret, body: { code }, headers: { 'idempotency-key': once } })
  const [first = '', second = ''] = await codes(2)
  t.match(await redeem(first, other), { status: 409, json: { error: { message: /for keys of the type "famC"/ } } })
  t.match(await redeem(first), { status: 409, json: { error: { message: /Use it together with your key/ } } })
  const answers = await Promise.all([1, 2, 3].map(() => redeem(first, key)))
  t.equal(answers.filter(({ status }) => status === 200).length, 1, 'a code is redeemed once')
  t.match(answers.find(({ status }) => status === 200)?.json, { kind: 'plan', credits: '0' })
  t.match(await buy(key), { status: 200 })
  const ends = Date.parse((await api('GET', `/balances/${id}`)).json.plan.ends_at)
  const once = randomUUID()
  t.match((await redeem(second, key, once)).json, { kind: 'plan', repeated: false })
  t.match((await redeem(second, key, once)).json, { kind: 'plan', repeated: true })
  const { plan } = (await api('GET', `/balances/${id}`)).json
  t.equal(Date.parse(plan.ends_at), ends + 30 * DAY_MS)
  t.match(plan.windows, [{ used: '1' }], 'what was used stays')
  t.match(await api('POST', '/codes', { kind: 'plan', type: 'famA' }), { status: 400 })
  t.match(await api('POST', '/codes', { kind: 'plan', type: 'famC', credits: 1 }), { status: 400 })
  t.match(await api('POST', '/codes', { kind: 'credits' }), { status: 400, json: { error: { param: 'credits' } } })
  const [fresh] = (await api('POST', '/codes', { kind: 'key', type: 'famC' })).json.codes
  const { json: made } = await redeem(fresh.code)
  t.match(await buy(made.key), { status: 200 }, 'a new key has the plan of its type')
})

t.test('an imported key gets the plan that its row names', async t => {
  const { api, buy } = await office(t, THREE_A_DAY)
  const secret = `sk-${'a1B2'.repeat(12)}`
  t.equal(
    (await api('POST', '/keys/import', { keys: [{ secret, type: 'famC', credits: '0', plan: 'famC' }] })).status,
    200,
  )
  t.match(await buy(secret), { status: 200 })
  t.match((await api('GET', '/balances')).json.data, [{ plan: { type: 'famC' } }])
})

t.test('plans and limits are changed from the command line while the gateway runs', async t => {
  const place = new Place(t)
  place.edit(file => file.set('keyTypes.famB.plan', { windows: [{ credits: 5, per: 'month' }], until: '30d' }))
  const running = await place.start(t)
  const made = JSON.parse((await place.run('keys', 'create', '--type', 'famB', '--limits', '{ requestsPerMinute: 60 }', '--json')).out) // prettier-ignore
  t.match((await place.run('balances', 'plan', 'show', made.id)).out, /has the plan of famB, which ends at \S+/) // prettier-ignore
  t.match(JSON.parse((await place.run('keys', 'show', made.id, '--json')).out), { limits: { requestsPerMinute: 60 } })
  const plan = async (...args: string[]) => place.run('balances', 'plan', ...args)
  t.match((await plan('add', made.id, '1', '2.5', '--reason', 'welcome')).out, /7\.5 credits per month: 0 used, 7\.5 left/) // prettier-ignore
  t.match(await running.lookUp('key-info', made.key), { json: { plan: { windows: [{ limit: 7.5 }] } } })
  const [one, two] = [await plan('extend', made.id, '--idempotency-key', 'inv-1', '--json'), await plan('extend', made.id, '--idempotency-key', 'inv-1', '--json')] // prettier-ignore
  t.equal(JSON.parse(one.out).plan.ends_at, JSON.parse(two.out).plan.ends_at)
  t.match(two.err, /already used/)
  t.match(await plan('reset', made.id, '9', '--reason', 'x'), { code: 2 })
  t.match(await plan('end', made.id), { code: 2, err: /"reason" is missing/ })
  t.match(await plan('set', made.id, '--terms', '{ windows: [{ requests: 5, per: 1h }], then: credits }'), { code: 0, out: /a plan of its own, which does not end/ }) // prettier-ignore
  t.match(await plan('set', made.id, '--terms', '{ windows: [{ requests: 5, per: 1s }] }'), { code: 2, err: /from 1m/ })
  t.match(await place.run('keys', 'edit', made.id, '--limits', 'none'), { code: 0 })
  t.match(JSON.parse((await place.run('keys', 'show', made.id, '--json')).out), { limits: null })
})
