import t from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import { type Answer, startGateway, until } from '../gateway.ts'
import { Redis } from 'ioredis'
import { ownPrefix, RealRedis } from '../redis.ts'
import { json, ScriptedUpstream, sse } from '../upstream.ts'

const CHAT = '/v1/chat/completions'
const HISTORY = '/api/v1/key-info/history'
const USAGE = { prompt_tokens: 10, completion_tokens: 20 }
const BODY = { max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

const upstream = await ScriptedUpstream.start(t)
upstream.script = ({ json: asked }, res) => {
  if (asked['user'] === 'fail') void res.writeHead(500).end('{}')
  else if (asked['stream'] === true)
    sse(res, 'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":20}}\n\ndata: [DONE]\n\n') // prettier-ignore
  else json(res, { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage: USAGE })
}
const g = await startGateway(t, { upstream: upstream.url })
const key = await g.key('famC')
const models = ['acme/famC-5.5', 'acme/famC-5.6-luna']
const asked: Answer[] = []
for (let request = 0; request < 9; request++) {
  const model = models[request % 2]
  asked.push(
    await g.call(CHAT, {
      key,
      body: { ...BODY, model, ...(request === 4 && { stream: true }), ...(request === 7 && { user: 'fail' }) },
    }),
  )
  // One after the other, so that the history has the same order.
  await g.settled(key)
}
const ids = asked.map(({ headers }) => headers.get('x-request-id')).toReversed()

const look = (query: string, as = key): Promise<Answer> => g.call(`${HISTORY}?${query}`, { key: as })
const found = async (query: string): Promise<string[]> =>
  (await look(query)).json.data.map((entry: { request_id: string }) => entry.request_id)

t.test('pages of the history go from the newest to the oldest entry, each entry once', async t => {
  const pages = await Promise.all([1, 2, 3, 4].map(page => look(`page=${page}&page_size=4`)))
  t.same(
    pages.flatMap(({ json: { data } }) => data.map((entry: { request_id: string }) => entry.request_id)),
    ids,
  )
  t.match(
    pages.map(answer => answer.json),
    [4, 4, 1, 0].map((length, index) => ({
      object: 'list',
      data: { length },
      has_more: index < 2,
      page: index + 1,
      page_size: 4,
      total: 9,
    })),
  )
})

t.test('a cursor continues where it was, whatever is added meanwhile', async t => {
  const busy = await g.key('famC')
  const ask = async (): Promise<void> => {
    await g.call(CHAT, { key: busy, body: { ...BODY, model: models[0] } })
    await g.settled(busy)
  }
  for (let request = 0; request < 3; request++) await ask()
  const before = (await look('', busy)).json.data
  const first = (await look('limit=2', busy)).json
  await ask()
  const second = (await look(`limit=2&cursor=${first.next_cursor}`, busy)).json
  t.same([...first.data, ...second.data], before)
  t.match(second, { has_more: false, next_cursor: null })
  t.equal((await look('', busy)).json.data.length, 4)
})

t.test('filters apply to every page', async t => {
  const first = (await look('')).json.data
  const [newest, oldest] = [first.at(0), first.at(-1)]
  const odd = ids.filter((_id, index) => index % 2 === 1)
  t.same(await found(`model=${models[1]}`), odd)
  t.same(await found(`model=${models[1]}&page_size=3&page=2`), odd.slice(3))
  t.same(await found('stream=true'), [ids[4]])
  t.same(await found('status=failed'), [ids[1]])
  t.same(await found(`request_id=${ids[2]}`), [ids[2]])
  t.same(await found(`endpoint=${CHAT}&status=ok`), ids.toSpliced(1, 1))
  t.same(await found('endpoint=/v1/messages'), [])
  t.same(await found(`from=${newest.created_at}`), [ids[0]])
  t.same(await found(`to=${oldest.created_at}`), [ids[8]])
  const day = newest.created_at.slice(0, 10)
  t.same(
    await found(`from=${oldest.created_at.slice(0, 10)}&to=${day}`),
    ids,
    'a date as the end is the whole of its day',
  )
  t.same(await found(`from=${Date.parse(newest.created_at)}`), [ids[0]], 'milliseconds')
  t.equal((await look('stream=false')).json.total, null)
})

t.test('an entry has the request, the outcome, the usage and the cost', async t => {
  const { data } = (await look('page_size=2')).json
  t.match(data, [
    {
      request_id: ids[0],
      type: 'settle',
      endpoint: CHAT,
      model: models[0],
      stream: false,
      status: 'ok',
      http_status: 200,
      input_tokens: 10,
      output_tokens: 20,
      cost: 0.00033,
      cost_nano: '330000',
      usage_source: 'upstream',
    },
    {
      request_id: ids[1],
      type: 'void',
      status: 'failed',
      http_status: 502,
      error_code: 'upstream_failed',
      cost: 0,
      cost_nano: '0',
      usage_source: null,
    },
  ])
  const { balance, exact } = await g.balance(key)
  t.equal(data[0].balance_after, balance)
  const charged = (await look('')).json.data.reduce(
    (sum: bigint, { cost_nano: nano }: { cost_nano: string }) => sum + BigInt(nano),
    0n,
  )
  t.equal(exact.used, String(charged))
})

t.test('a meaningless query is refused, and the error names the parameter', async t => {
  const cases: [query: string, param: string][] = [
    ['page_size=0', 'page_size'],
    ['page_size=501', 'page_size'],
    ['page_size=many', 'page_size'],
    ['page=-1', 'page'],
    ['page=201&page_size=51', 'page'],
    ['cursor=yesterday', 'cursor'],
    ['cursor=1&page=2', 'page'],
    ['from=yesterday', 'from'],
    ['to=-5', 'to'],
    ['status=nope', 'status'],
    ['stream=maybe', 'stream'],
  ]
  for (const [query, param] of cases) {
    const answer = await look(query)
    t.match(answer, { status: 400, json: { error: { type: 'invalid_request_error', param } } }, query)
  }
  t.equal((await g.call(HISTORY)).status, 401)
})

t.test('a key does not see the history of another key', async t => {
  const other = await g.key('famC')
  t.same((await look(`request_id=${ids[0]}`, other)).json.data, [])
})

t.test('a key may look itself up only so often a minute, and other keys are not affected', async t => {
  const g = await startGateway(t, {
    edit: file => file.stage('lookup-limit', { perMinute: 3 }),
  })
  const [attacker, other] = [await g.key('famC'), await g.key('famC')]
  for (const path of ['/api/v1/keys/lookup/balance', '/api/v1/key-info', HISTORY])
    t.equal((await g.call(path, { key: attacker })).status, 200)
  const refused = await g.call(HISTORY, { key: attacker })
  t.match(refused, { status: 429, json: { error: { code: 'rate_limit_exceeded' } } })
  t.ok(Number(refused.headers.get('retry-after')) > 0)
  t.equal((await g.call(HISTORY, { key: other })).status, 200)
  t.equal(
    (await g.call(CHAT, { key: attacker, body: { ...BODY, model: models[0] } })).status,
    200,
    'the key may still buy',
  )
})

t.test('look-ups have a connection of their own, and ask for little at a time', async t => {
  const redis = await RealRedis.start(t)
  const g = await startGateway(t, { upstream: upstream.url, env: { REDIS_URL: redis.url }, edit: ownPrefix })
  const key = await g.key('famC', 1000n)
  const id = await g.id(key)
  const client = new Redis(redis.port, '127.0.0.1')
  t.teardown(() => client.disconnect())
  const { history, recorder } = g.gateway.ledger.records
  await recorder.record(
    Array.from({ length: 3000 }, (_, index) => ({
      id: timedId(index),
      account: id,
      ordinal: index + 1,
      at: index,
      kind: 'void',
      charge: 0n,
      balance: 0n,
      bucket: '0.0',
      waived: 0n,
      notes: { model: 'm' },
    })),
    new Map(),
  )
  const counts: number[] = []
  const entries = history.entries.bind(history)
  history.entries = (account, range) => {
    counts.push(range.count)
    return entries(account, range)
  }
  const names = new Map(
    String(await client.client('LIST'))
      .split('\n')
      .map(line => [/ addr=(\S+)/.exec(line)?.[1], / name=(\S*)/.exec(line)?.[1]]),
  )
  const seen = await redis.monitor(t)
  t.equal((await g.call(`${HISTORY}?page=20&page_size=100`, { key })).json.data.length, 100)
  t.equal((await g.call(`${HISTORY}?model=nobody&page_size=500`, { key })).json.data.length, 0)
  t.equal((await g.call(`${HISTORY}?page=20&page_size=500`, { key })).status, 400, 'further back, a cursor reads on')
  await until(() =>
    seen().some(({ address, command }) => names.get(address) === 'lookups' && /^(?:hmget|xrange)$/i.test(command)),
  )
  t.ok(counts.length >= 16)
  t.ok(counts.every(count => count <= 250))
  t.ok(counts.reduce((sum, count) => sum + count, 0) <= 4250, 'one call reads so much and no more')
})
