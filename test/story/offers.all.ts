/** The five offers of docs/plans.md, as they are sold and used up, and the table that says how a request uses a plan. */
import { writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { parseDecimal } from '../../core/money/credits.ts'
import { startGateway } from '../gateway.ts'
import { COST, fileOf, offersIn, type Served, Shop, tableAfter } from '../offers.ts'
import { Place } from '../process.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { DONE } from '../stream-events.ts'

/** A test can stop only a redis-server of its own. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** What a restored balance must have again. The end of a window that began with a use may differ by milliseconds. */
function lasting({ plan, last_used_at: _at, ...view }: any): object {
  const windows = plan?.windows.map(({ resets_at: at, ...window }: any) => ({ ...window, resets: at?.slice(0, 15) }))
  return { ...view, plan: plan && { ...plan, windows } }
}

const nano = (text: string): bigint => parseDecimal(text) ?? 0n

/**
 * Uses an offer up while a gateway is killed and the store goes away, loses the store, and checks that nothing changed.
 * @param all what may be used in all, in nano-credits; undefined if the offer counts requests
 */
async function hard(
  t: Test,
  shop: Shop,
  { keys, balance, all }: { readonly keys: readonly string[]; readonly balance: string; readonly all?: bigint },
  pick?: () => string,
): Promise<Served> {
  const using = shop.useUp(keys, pick)
  await shop.replaceKilled()
  await shop.interruptStore()
  const served = await using
  const before = await shop.settled(balance)
  await shop.loseStore()
  const after = await shop.settled(balance)
  t.same(lasting(after), lasting(before), 'the records restore all of it')
  const ofPlan = (after.plan?.windows ?? []).filter(({ unit }: any) => unit === 'credits').map(({ used }: any) => nano(used)) // prettier-ignore
  const total = nano(after.used) + BigInt(Math.max(0, ...ofPlan.map(Number)))
  if (all !== undefined) {
    t.ok(total <= all, `never more than was sold: ${total} of ${all}`)
    t.ok(total + 2n * COST > all, 'all of it can be used')
    t.ok(total >= BigInt(served.replies) * COST, 'what a client got is charged')
    t.ok(total <= BigInt(shop.upstream.requests.length) * COST, 'what the provider did not make is not')
  }
  t.match(await shop.place.run('audit', '--reprice'), { code: 0 })
  if (await shop.emptyWindows(balance)) {
    t.match(await shop.place.run('audit'), { code: 1, err: /window 1 of the plan: used = .*: 0 is not \d+/ })
    t.match(await shop.place.run('audit', '--repair'), {
      code: 0,
      out: /corrected \S+: window 1 of the plan.*\n.* 0 with drift/,
    })
    t.same(lasting(await shop.settled(balance)), lasting(after), 'the audit repairs what was used')
  }
  return served
}

t.test('prepaid credits', { skip }, async t => {
  const shop = await Shop.open(t, 'Prepaid credits')
  const { id, key } = await shop.run('keys', 'create', '--type', 'prepaid', '--credits', '6')
  const served = await hard(t, shop, { keys: [key], balance: id, all: nano('6') })
  t.match(served.refused.get(key), { status: 429, error: { code: 'insufficient_quota' } })
  for (let times = 0; times < 2; times++)
    await shop.place.run('keys', 'topup', id, '1', '--idempotency-key', 'invoice-1')
  const { replies } = await shop.useUp([key])
  t.ok(replies === 33 || replies === 34, `a repeated payment counts once: ${replies}`)
})

t.test('a month with credits', { skip }, async t => {
  const shop = await Shop.open(t, 'A month with credits')
  const { id, key } = await shop.run('keys', 'create', '--type', 'monthly')
  await shop.place.run('keys', 'topup', id, '3')
  const served = await hard(t, shop, { keys: [key], balance: id, all: nano('23') })
  t.match(served.refused.get(key), { status: 429, error: { type: 'usage_limit_reached' } })
  const { plan } = await shop.run('balances', 'show', id)
  for (let times = 0; times < 2; times++)
    await shop.run('balances', 'plan', 'extend', id, '--idempotency-key', 'invoice-2')
  const extended = (await shop.run('balances', 'show', id)).plan
  t.equal(Date.parse(extended.ends_at) - Date.parse(plan.ends_at), 30 * 86_400_000)
})

t.test('five hours and a week', { skip }, async t => {
  const shop = await Shop.open(t, 'Five hours and a week')
  const { id, key } = await shop.run('keys', 'create', '--type', 'agent')
  const served = await hard(t, shop, { keys: [key], balance: id, all: nano('5') })
  t.match(served.refused.get(key)?.error, {
    type: 'usage_limit_reached',
    message: /credits of your 5 hours .*; more at \d\d:\d\d UTC/,
  })
  for (let times = 0; times < 2; times++) await shop.run('balances', 'plan', 'reset', id, '2', '--reason', 'an outage', '--idempotency-key', 'outage') // prettier-ignore
  t.equal((await shop.useUp([key])).replies, 166)
  await shop.run('balances', 'plan', 'reset', id, '2', '--reason', 'again')
  const last = await shop.useUp([key])
  t.match(
    last.refused.get(key)?.error,
    { message: /credits of your week .*; more at .* UTC/ },
    'the wider window is named',
  )
  const { plan } = await shop.settled(id)
  t.ok(nano(plan.windows[0].used) <= nano('12'))
})

t.test('requests a day', { skip }, async t => {
  const shop = await Shop.open(t, 'Requests a day')
  const { id, key } = await shop.run('keys', 'create', '--type', 'daily')
  const served = await hard(t, shop, { keys: [key], balance: id }, () => 'large')
  t.match(served.refused.get(key)?.error, {
    message: /The \d+ requests of your day for large-models are used; more at /,
  })
  t.ok(served.replies <= 30)
  const { plan } = await shop.run('balances', 'show', id)
  t.match(plan.windows, [
    { limit: '100', used: '30' },
    { limit: '30', used: '30' },
  ])
  await shop.run('balances', 'plan', 'add', id, '2', '10', '--reason', 'welcome')
  t.equal((await shop.useUp([key])).replies, 10)
  t.equal((await shop.useUp([key], () => 'small')).replies, 60, 'others have what is left of the day')
})

t.test('a team with a cap a person', { skip }, async t => {
  const shop = await Shop.open(t, 'A team with a cap a person')
  const { id } = await shop.run('balances', 'create', '--name', 'Team Ann')
  await shop.run('balances', 'plan', 'set', id, '--type', 'team')
  const people = await Promise.all(
    ['Bob', 'Cem', 'Dora'].map(name => shop.run('keys', 'create', '--type', 'team', '--balance', id, '--name', name)),
  )
  await shop.run('keys', 'edit', people[2].id, '--limits', '{ creditsPerDay: 1 }')
  const keys = people.map(({ key }) => key)
  const served = await hard(t, shop, { keys, balance: id, all: nano('5') })
  for (const key of keys) t.match(served.refused.get(key)?.error, { message: /credits of the day of this key/ }) // prettier-ignore
  const views = await Promise.all(people.map(person => shop.run('keys', 'show', person.id)))
  t.match(views, [{ balance: '0' }, { balance: '0' }, { balance: '0', limits: { creditsPerDay: '1' } }])
})

t.test('each offer of docs/plans.md is valid as it is printed, and starts with the simulated provider', async t => {
  const offers = ['Prepaid credits', 'A month with credits', 'Five hours and a week', 'Requests a day', 'A team with a cap a person'] // prettier-ignore
  t.same(offersIn(), offers)
  for (const offer of offers) {
    const place = new Place(t)
    writeFileSync(place.file, fileOf(offer))
    t.match(await place.run('-c', place.file, 'check', '--strict'), { code: 0 }, offer)
  }
})

const TABLE = tableAfter('With a price of 0.01 credits a token')

t.test('the table of docs/plans.md says what is charged to a window and what to credits', async t => {
  t.equal(TABLE.length, 7)
  const upstream = await ScriptedUpstream.start(t)
  const model = 'acme/famC-5.5'
  for (const [left = '', credits = '', then = '', request = '', ofWindow, ofCredits] of TABLE) {
    const isStream = request.includes('stream')
    const cost = /costs (\d\.\d+)|stream of (\d+)|reports (\d\.\d+)/.exec(request)
    const tokens = cost?.[2] === undefined ? Math.round(100 * Number(cost?.[1] ?? cost?.[3] ?? 1.3)) : Number(cost[2])
    upstream.script = async (_received, res) => {
      const usage = { prompt_tokens: 10, completion_tokens: tokens }
      if (!isStream) return json(res, { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage })
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      const send = (event: unknown): void => void res.write(`data: ${JSON.stringify(event)}\n\n`)
      for (let token = 0; token < tokens; token++) {
        send({ choices: [{ delta: { content: 'word ' } }] })
        await new Promise(resolve => setImmediate(resolve))
      }
      send({ choices: [{ delta: {}, finish_reason: 'stop' }] })
      send({ choices: [], usage })
      res.end(DONE)
    }
    const g = await startGateway(t, {
      upstream: upstream.url,
      edit: file =>
        file
          .set('keyTypes.famC.plan', {
            windows: [{ credits: Number(left), per: 'day' }],
            then: then.replaceAll('`', ''),
          })
          .set('prices.test', { input: 0, output: 10_000 })
          .set('keyTypes.famC.models', [{ id: model, price: 'test', reasoning: 'none', maxOutput: 1000 }]),
    })
    const key = await g.key('famC', BigInt(credits))
    const body = { model, stream: isStream, max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
    const answer = await g.call('/v1/chat/completions', { key, body })
    t.equal(answer.status, request.includes('refused') ? 429 : 200, request)
    if (request.includes('finish reason')) t.match(answer.text, /"finish_reason":"length"/)
    await g.settled(key)
    const { json: info } = await g.call('/api/v1/key-info', { key })
    t.equal(info.plan.windows[0].used, Number(ofWindow), request)
    t.equal(info.used, Number(ofCredits), request)
  }
})
