import { type ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import { NANO } from '../../core/money/credits.ts'
import type { Notice } from '../../core/records/notices.ts'
import { type Options, startGateway, type TestGateway, until } from '../gateway.ts'
import { boughtEarlier } from '../bought-earlier.ts'
import { edited } from '../gateway-file.ts'
import { Place } from '../process.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import { type Got, hooked, Receiver } from './webhook-receiver.ts'
import { DONE } from '../stream-events.ts'

/** Notices to another system. */

async function start(t: Test, receiver: Receiver, options: object = {}, more: Options = {}): Promise<TestGateway> {
  return startGateway(t, { ...more, edit: hooked(receiver, options) })
}

const CHAT = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50 }

t.test('a key that falls below the limit is told once, and again when it is used up', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 0.9999 })
  const { secret, key } = await g.gateway.keys.changes.create({
    type: 'famC',
    name: 'Ann',
    credits: NANO,
    expiresAt: undefined,
  })
  for (let times = 0; times < 3; times++) await g.call('/v1/chat/completions', { key: secret, body: CHAT })
  const low = await receiver.next('key.low')
  t.match(low.data, { key: key.id, key_type: 'famC', name: 'Ann', label: key.label })
  t.ok(low.data.balance < 1)
  t.match(low.id, /^msg_/)
  await g.settled(secret)
  const { ledger } = g.gateway
  const { balance: amount } = await ledger.reads.balance(key.id)
  const notes = { endpoint: '/v1/chat/completions', model: 'acme/famC-5.5', stream: false }
  const floor = () => ({ charge: 0n, notes })
  const request = { account: key.id, id: timedId(Date.now()), amount, least: amount, version: '1', notes, floor }
  const answer = await ledger.hold(request)
  if (answer.kind === 'held') ledger.settle(answer.hold, { charge: amount, kind: 'settle', notes })
  t.match((await receiver.next('key.exhausted')).data, { key: key.id })
  t.equal(receiver.got.filter(({ type }) => type === 'key.low').length, 1)
  t.notMatch(JSON.stringify(receiver.got), secret)
})

t.test('a notice is sent again until its receiver takes it, with the same id', async t => {
  const receiver = await Receiver.start(t)
  receiver.status = 500
  let ahead = 0
  const g = await start(t, receiver, { lowCredits: 1 }, { environment: { now: () => Date.now() + ahead } })
  const key = await g.key('famC', 1n)
  await g.call('/v1/chat/completions', { key, body: CHAT })
  const { notices } = g.gateway.records
  await until(async () => (await notices.due(Date.now() + 60_000, 10)).some(({ tries }) => tries === 1))
  const [waiting] = await notices.due(Date.now() + 60_000, 10)
  receiver.status = 200
  ahead = 6000
  t.equal((await receiver.next('key.low')).id, waiting?.id)
  await until(async () => (await notices.delivery(waiting?.id ?? ''))?.state === 'delivered')
  t.match(await notices.delivery(waiting?.id ?? ''), { tries: 2 })
})

t.test('an account that goes out and comes back is told', async t => {
  const receiver = await Receiver.start(t)
  const upstream = await ScriptedUpstream.start(t)
  const g = await start(t, receiver, { outSeconds: 0 }, { upstream: upstream.url })
  const key = await g.key('famC')
  upstream.script = (_received, res) => json(res, { error: { message: 'no such key' } }, 401)
  await g.call('/v1/chat/completions', { key, body: CHAT })
  t.match((await receiver.next('account.out')).data, { account: 'famC/1', reason: /401/ })
  g.gateway.pool.health({ name: 'famC/1', key: 'upstream-secret-0123456789' } as never).reset(Date.now())
  t.match((await receiver.next('account.back')).data, { account: 'famC/1' })
})

t.test('a configuration that cannot be set up does not silence the one in force', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 1 })
  const { config } = g.gateway
  const busy = edited(config.text, file => file.append({ admin: { listen: { port: g.gateway.port } } }))
  t.equal(await g.gateway.reload(busy), false)
  const key = await g.key('famC', 1n)
  await g.call('/v1/chat/completions', { key, body: CHAT })
  t.match(await receiver.next('key.low'), { data: { key: await g.id(key) } })
})

t.test('what ends while the gateway stops is told by the next one', async t => {
  const receiver = await Receiver.start(t)
  const place = new Place(t, hooked(receiver, { lowCredits: 1 }))
  const running = await place.start(t)
  const { id, key } = await place.key('famC', '1')
  t.equal((await running.chat(key, CHAT)).status, 200)
  receiver.status = 500
  await running.stop('SIGTERM')
  receiver.status = 200
  await place.start(t)
  t.match((await receiver.next('key.low')).data, { key: id })
})

t.test('exchanges are recorded although a stage that watches them fails', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 1 })
  const { records, ledger } = g.gateway
  const unwritable = [{ id: null, type: 'key.low', at: 0, body: '{}' }] as unknown as Notice[]
  for (const watcher of [() => Promise.reject(new Error('broken')), () => Promise.resolve(unwritable)]) {
    records.recorder.watcher = watcher
    const key = await g.key('famC', 1n)
    await g.call('/v1/chat/completions', { key, body: CHAT })
    t.equal((await g.settled(key)).length, 1)
    await ledger.background.archiveAll()
    t.equal((await records.history.entries({ account: await g.id(key) }, { count: 5 })).length, 1)
  }
})

t.test('a refund by command loses no notice of what ended just before', async t => {
  const receiver = await Receiver.start(t)
  const place = new Place(t, file => hooked(receiver, { lowCredits: 1 })(file).set('ledger.archiveEvery', '2s'))
  const running = await place.start(t)
  const { id, key } = await place.key('famC', '1')
  const response = await running.chat(key, CHAT)
  await response.text()
  const entry = response.headers.get('request-id') ?? ''
  t.match(await place.run('credit', entry, '--reason', 'test'), { code: 0 })
  t.match((await receiver.next('key.low')).data, { key: id })
})

t.test('a short outage of an account is not told', async t => {
  const receiver = await Receiver.start(t)
  const upstream = await ScriptedUpstream.start(t)
  let ahead = 0
  const environment = { now: () => Date.now() + ahead }
  const g = await start(t, receiver, { outSeconds: 60 }, { upstream: upstream.url, environment })
  const key = await g.key('famC')
  const failing: (typeof upstream)['script'] = (_received, res) => json(res, { error: { message: 'no such key' } }, 401)
  upstream.script = failing
  await g.call('/v1/chat/completions', { key, body: CHAT })
  const { notices } = g.gateway.records
  await notices.add({ id: 'msg_first', type: 'test', at: 1, body: '{"type":"test","data":{}}' })
  await receiver.next('test')
  t.same(
    receiver.got.map(({ type }) => type),
    ['test'],
  )
  ahead = 61_000
  t.match((await receiver.next('account.out')).data, { account: 'famC/1' })
})

t.test('a newer configuration sends at once, although an older one still has a stream', async t => {
  const [old, young] = [await Receiver.start(t), await Receiver.start(t)]
  const upstream = await ScriptedUpstream.start(t)
  const g = await start(t, old, {}, { upstream: upstream.url })
  const key = await g.key('famC')
  const running = Promise.withResolvers<ServerResponse>()
  upstream.script = (_received, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {}\n\n')
    running.resolve(res)
  }
  const stream = await g.open('/v1/chat/completions', { key, body: { ...CHAT, stream: true } })
  const next = edited(g.gateway.config.text, file => file.stage('webhooks', { url: young.url }))
  t.ok(await g.gateway.reload(next))
  const { notices } = g.gateway.records
  for (let at = 0; at < 5; at++) await notices.add({ id: `msg_${at}`, type: 'test', at, body: '{"type":"test"}' })
  await until(() => young.got.length === 5)
  t.same(old.got, [])
  const reply = await running.promise
  reply.end(DONE)
  await stream.text()
})

t.test('only the chosen events are told', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 1, events: ['key.exhausted'] })
  const key = await g.key('famC', 1n)
  await g.call('/v1/chat/completions', { key, body: CHAT })
  await g.settled(key)
  await g.gateway.ledger.background.archiveAll()
  t.same(await g.gateway.records.notices.due(Date.now() + 60_000, 10), [])
  t.same(receiver.got, [])
})

t.test('bad options are refused', async t => {
  const receiver = await Receiver.start(t)
  for (const [options, message] of [
    [{ secret: 'short' }, /whsec_ and at least 24/],
    [{ url: 'ftp://x' }, /an address such as https/],
    [{ url: 'https://user:password@shop.example' }, /without a user/],
    [{ events: ['key.lost'] }, /expected one of key\.low/],
    [{ tries: 0 }, /from 1 to 50/],
  ] as const)
    await t.rejects(start(t, receiver, options), { message })
})

t.test('a shop is told when a plan is nearly used up, renews and ends soon', async t => {
  const receiver = await Receiver.start(t)
  let ahead = 0
  const g = await startGateway(t, {
    environment: { now: () => Date.now() + ahead },
    edit: file =>
      hooked(receiver, { endingDays: 2.5 })(file).set('keyTypes.famC.plan', {
        windows: [{ requests: 10, per: '1h', anchor: 'purchase' }],
        until: '3d',
      }),
  })
  const key = await g.key('famC', 0n)
  const account = await g.id(key)
  const renewed = (): number => receiver.got.filter(({ type }) => type === 'plan.renewed').length
  const buy = async (count: number): Promise<void> => {
    for (let request = 0; request < count; request++) await g.call('/v1/chat/completions', { key, body: CHAT })
    await g.settled(key)
  }
  await buy(8)
  t.same(receiver.got, [])
  await buy(2)
  const low = await receiver.next('plan.low')
  t.match(low.data, { balance_id: account, balance: 0, plan: { type: 'famC', valid: true }, window: { window: 1, unit: 'requests', limit: '10' } }) // prettier-ignore
  t.equal(renewed(), 0)
  // As if it had been bought one and a half hours ago.
  await boughtEarlier(g, account, 5_400_000)
  await buy(1)
  await until(() => renewed() === 1)
  const { data } = receiver.got.find(({ type }) => type === 'plan.renewed') as Got
  t.match(data, { balance_id: account, plan: { type: 'famC', valid: true, ends_at: /Z$/ } })
  // The store has a clock of its own, so a reset stands in for the time that passes.
  await g.gateway.keys.plans.reset({ account, id: 'reset' }, 0)
  await buy(9)
  await until(() => receiver.got.filter(({ type }) => type === 'plan.low').length === 2)
  t.equal(receiver.got.length, 3, 'once for each window')
  ahead = 0.6 * 86_400_000
  const ending = await receiver.next('plan.ending')
  t.match(ending.data, { balance_id: account, balance: 0, plan: { type: 'famC', ends_at: /Z$/ } })
  ahead += 3_700_000
  await until(async () => (await g.gateway.records.notices.due(Date.now() + 9e9, 10)).length === 0)
  t.equal(receiver.got.filter(({ type }) => type === 'plan.ending').length, 1, 'once for each end')
})

t.test('credits that fall beside a valid plan are low, and not used up', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 1, events: ['key.low', 'key.exhausted'] })
  const { keys, records, ledger } = g.gateway
  for (const [isPlanned, told] of [
    [true, ['key.low']],
    [false, ['key.low', 'key.exhausted']],
  ] as const) {
    receiver.got.length = 0
    const account = await g.id(await g.keyOfNano('famC', 1_100_000_000n))
    if (isPlanned)
      await keys.plans.set({ account, id: 'plan' }, { windows: [{ requests: 10, per: 'day' }], then: 'credits' })
    const notes = { endpoint: '/x', model: 'acme/famC-5.5', stream: false }
    for (const charge of [200_000_000n, 899_999_999n]) {
      ledger.settle({ account, id: timedId(Date.now()) }, { charge, kind: 'settle', notes })
      await ledger.background.archiveAll()
    }
    await until(async () => (await records.notices.due(Date.now() + 9e9, 10)).length === 0)
    t.same(
      receiver.got.map(({ type }) => type),
      told,
    )
    const [low] = receiver.got
    t.match(low?.data, { balance: 0.9, plan: isPlanned ? { valid: true } : null })
  }
})

t.test('credits that fall below both bounds at once beside a valid plan are low', async t => {
  const receiver = await Receiver.start(t)
  const g = await start(t, receiver, { lowCredits: 1, events: ['key.low', 'key.exhausted'] })
  const { keys, ledger } = g.gateway
  const account = await g.id(await g.keyOfNano('famC', 1_100_000_000n))
  await keys.plans.set({ account, id: 'plan' }, { windows: [{ requests: 10, per: 'day' }], then: 'credits' })
  const notes = { endpoint: '/x', model: 'acme/famC-5.5', stream: false }
  ledger.settle({ account, id: timedId(Date.now()) }, { charge: 1_100_000_000n, kind: 'settle', notes })
  await ledger.background.archiveAll()
  t.match(await receiver.next('key.low'), { data: { balance: 0, plan: { valid: true } } })
  t.equal(receiver.got.length, 1)
})
