import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
/** What one request costs, in credits. */
const COST = 0.00033

t.test('a lost store is restored from the trail of grants and an export of the history', { skip }, async t => {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    json(res, {
      choices: [{ message: { content: 'x' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 10, completion_tokens: 20 },
    })
  const redis = await RealRedis.start(t)
  const place = new Place(t, ownPrefix, { ...upstreamEnv(upstream.url), REDIS_URL: redis.url })
  const keys = async (...args: string[]): Promise<any> => JSON.parse((await place.run('keys', ...args, '--json')).out)
  const ask = async (running: Running, key: string): Promise<number> => (await running.chat(key, BODY)).status

  const first = await place.start(t)
  const one = await keys('create', '--type', 'famC', '--credits', '1', '--name', 'one')
  const two = await place.key('famC', '2')
  for (let request = 0; request < 3; request++) t.equal(await ask(first, one.key), 200)
  await until(async () => (await first.held(one.key)) === '0')
  const exported = join(place.folder, 'export.jsonl')
  writeFileSync(exported, (await place.run('export')).out)
  // A crash in the middle of a line damages no other line.
  appendFileSync(join(place.folder, 'data', 'grants.jsonl'), '{"kind":"grant","account":"')
  await keys('topup', one.id, '5')
  await keys('disable', two.id)
  const trail = join(place.folder, 'data', 'grants.jsonl')
  for (const file of [trail, exported]) t.notMatch(readFileSync(file, 'utf8'), one.key, 'no secret on disk')
  await first.stop('SIGTERM')
  writeFileSync(trail, `${readFileSync(trail, 'utf8')}\nnull\n`)
  await redis.command('FLUSHALL')
  // Only the export has the old prices.
  place.edit(file => file.set('prices.medium.output', 16))
  t.match(await place.run('rebuild', '--from', trail, exported), {
    code: 0,
    out: /2 accounts, 3 grants and 3 entries/,
    err: /grants\.jsonl: 2 lines cannot be read/,
  })
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
    // The latest known state of it.
    { granted: '2', status: 'disabled' },
  ])
  const second = await place.start(t)
  t.equal(await ask(second, one.key), 200, 'the secret that the customer holds still works')
  t.equal(await ask(second, two.key), 401)
})
