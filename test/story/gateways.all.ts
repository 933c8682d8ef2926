import { join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import type { Database, Row } from '../../core/records/database.ts'
import { setMeta } from '../../core/records/migrations.ts'
import { beside, recordsEnv, startGateway, until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { chatReply, json, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'

/** Without a redis-server of its own a test has none to share. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

t.test(
  'two gateways on one Redis, with files of their own, share the limits and the balance of a key',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    let open = 0
    let most = 0
    upstream.script = async (_received, res) => {
      most = Math.max(most, ++open)
      await new Promise(resolve => setTimeout(resolve, 20))
      json(res, chatReply(10, 60))
      open--
    }
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
    const limited: Edit = file => ownPrefix(file).set('keyTypes.famC.limits.concurrency', 5)
    const cheap = new Place(t, limited, env)
    const data = join(cheap.folder, 'data')
    const dear = new Place(
      t,
      file => limited(file).set('store.data', data).model('famC', 'acme/famC-5.5', { price: 'large' }),
      env,
    )
    const gateways = await Promise.all([cheap.startProcess(t), dear.startProcess(t)])
    const one = await cheap.key('famC', '0.05')
    const statuses = new Map<number, number>()
    await Promise.all(
      Array.from({ length: 300 }, async (_, index) => {
        const { status } = await (gateways[index % 2] as Running).chat(one.key, BODY)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }),
    )
    t.same([...statuses.keys()].sort(), [200, 429])
    t.ok(most <= 5, `never more than five at a time: ${most}`)
    await until(async () => (await gateways[0].held(one.key)) === '0')
    const shown = JSON.parse((await cheap.run('keys', 'show', one.id, '--json')).out)
    t.ok(Number(shown.balance) >= 0, shown.balance)
    t.match(await dear.run('audit'), { code: 0 })
    t.equal(statuses.get(200), upstream.requests.length)
  },
)

t.test('two gateways do not share one managed store', { skip }, async t => {
  const place = new Place(t, file => file, {}, true)
  await place.startProcess(t)
  t.match(await place.execute(['start']), { code: 1, err: /another gateway uses/ })
})

t.test(
  'in a rolling upgrade, a gateway of the old version goes on to serve, and leaves recording to one of the new version',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const upstream = await ScriptedUpstream.start(t)
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url, ...recordsEnv() }
    const old = await startGateway(t, { env, edit: ownPrefix })
    const next = await startGateway(t, { env, edit: beside(old, ownPrefix) })
    const key = await old.key('famC')
    const recorders = [old, next].map(({ gateway }) => gateway.ledger.background)
    await until(() => recorders[0]?.leading === true)
    knowsNewerTables(next.gateway.records.database)
    await old.gateway.records.database.transaction(sql => setMeta(sql, 'version', '99'))
    t.equal((await old.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await until(() => recorders[0]?.leading === false && recorders[1]?.leading === true)
    t.equal((await old.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await until(async () => (await redis.waiting()) === 0)
    const account = await old.id(key)
    t.equal((await next.gateway.records.history.entries({ account }, { count: 9 })).length, 2)
  },
)

/** Lets a database of this version take the tables of a newer one for its own. */
function knowsNewerTables(database: Database): void {
  const transaction = database.transaction.bind(database)
  const known = (rows: Row[]): Row[] => rows.map(row => (row['name'] === 'version' ? { ...row, value: '0' } : row))
  database.transaction = run =>
    transaction(sql =>
      run({
        all: async (text, values) => known(await sql.all(text, values)),
        put: (text, values) => sql.put(text, values),
        putRows: insertion => sql.putRows(insertion),
      }),
    )
}
