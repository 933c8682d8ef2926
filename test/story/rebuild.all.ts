import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { ScriptedUpstream } from '../upstream.ts'

/** A test can lose the contents only of a redis-server of its own. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
/** What one request costs, in credits. */
const COST = 0.00093

t.test('a lost store is rebuilt from the records, and a gateway that ran meanwhile goes on', { skip }, async t => {
  const upstream = await ScriptedUpstream.start(t)
  const redis = await RealRedis.start(t)
  const place = new Place(t, ownPrefix, { ...upstreamEnv(upstream.url), REDIS_URL: redis.url })
  const keys = async (...args: string[]): Promise<any> => JSON.parse((await place.run('keys', ...args, '--json')).out)
  const ask = async (running: Running, key: string): Promise<number> => (await running.chat(key, BODY)).status

  const first = await place.start(t)
  const one = await keys('create', '--type', 'famC', '--credits', '1', '--name', 'one')
  const two = await place.key('famC', '2')
  for (let request = 0; request < 3; request++) t.equal(await ask(first, one.key), 200)
  await until(async () => (await first.held(one.key)) === '0')
  await keys('topup', one.id, '5')
  await keys('disable', two.id)
  t.match(await place.run('rebuild'), { code: 1, err: /the store is not empty/ })
  // Everything is recorded when the stream of its shard is empty.
  await until(async () => (await redis.waiting()) === 0)
  const lostAt = Date.now()
  await redis.command('FLUSHALL')
  await until(async () => (await ask(first, one.key)) === 503)
  t.match(await place.execute(['start']), { code: 1, err: /the store is empty, but the records have keys/ })
  t.match(await place.run('keys', 'create', '--type', 'famC', '--credits', '1'), { code: 1, err: /the store is empty/ })
  t.match(await place.run('rebuild'), { code: 0, out: /Restored 2 keys/ })
  const noted = Number(await redis.command('HGET', 't:meta', 'lostAt'))
  t.ok(noted >= lostAt, 'what ended before the loss is looked up in the records when it is settled again')
  const [audited, ...shown] = await Promise.all([
    place.run('audit', '--reprice'),
    keys('show', one.id),
    keys('show', two.id),
  ])
  t.match(audited, {
    code: 0,
    out: /2 accounts, 3 entries, 0 with drift\n3 charges recomputed, 0 without a price version/,
  })
  t.match(shown, [
    { name: 'one', granted: '6', used: String(3 * COST), balance: String(6 - 3 * COST), status: 'active' },
    { granted: '2', status: 'disabled' },
  ])
  await until(async () => (await ask(first, one.key)) === 200)
  t.equal(await ask(first, two.key), 401)
})
