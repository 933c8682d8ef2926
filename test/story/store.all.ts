import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { startGateway, type TestGateway, until, upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { begun, ScriptedUpstream, sse } from '../upstream.ts'
import { matchAll } from '../matching.ts'
import { STOP, text } from '../stream-events.ts'

/** A test can stop only a redis-server of its own. */
const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }], stream: true }
const DELTA = text('x')
const FINISH =
  STOP +
  'data: {"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}\n\ndata: [DONE]\n\n'

interface Outage {
  readonly redis: RealRedis
  readonly upstream: ScriptedUpstream
  /** Replies that the upstream has begun and not ended. */
  readonly replies: ServerResponse[]
}

async function outage(t: Test): Promise<Outage> {
  const upstream = await ScriptedUpstream.start(t)
  return { redis: await RealRedis.start(t), upstream, replies: begun(upstream, DELTA) }
}

function gatewayOn(t: Test, { redis, upstream }: Outage): Promise<TestGateway> {
  return startGateway(t, { upstream: upstream.url, env: { REDIS_URL: redis.url }, edit: ownPrefix })
}

/** Opens a stream and waits for its first event. */
async function opened(g: TestGateway, key: string): Promise<Response> {
  const response = await g.open(CHAT, { key, body: BODY })
  t.equal(response.status, 200)
  return response
}

function outboxLines(folder: string): string[] {
  if (!existsSync(folder)) return []
  const names = readdirSync(folder).filter(name => name.endsWith('.jsonl'))
  return names.flatMap(name => readFileSync(join(folder, name), 'utf8').split('\n').slice(0, -1))
}

/** Failures of a Redis that operators see, and their ends. */
const FAILURES: readonly { readonly name: string; begin(redis: RealRedis): unknown; end(redis: RealRedis): unknown }[] =
  [
    { name: 'hangs', begin: redis => redis.signal('SIGSTOP'), end: redis => redis.signal('SIGCONT') },
    { name: 'is killed and started again', begin: redis => redis.kill(), end: redis => redis.run() },
    {
      name: 'has become a replica',
      begin: redis => redis.command('REPLICAOF', '127.0.0.1', '1'),
      end: redis => redis.command('REPLICAOF', 'NO', 'ONE'),
    },
    {
      name: 'refuses writes for want of a replica',
      begin: redis => redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1'),
      end: redis => redis.command('CONFIG', 'SET', 'min-replicas-to-write', '0'),
    },
    {
      name: 'refuses writes because its disk does',
      async begin(redis) {
        mkdirSync(join(redis.folder, 'dump.rdb'))
        await redis.command('CONFIG', 'SET', 'save', '3600 1')
        await redis.command('BGSAVE')
        await until(async () =>
          String(await redis.command('INFO', 'persistence')).includes('rdb_last_bgsave_status:err'),
        )
      },
      end: redis => redis.command('CONFIG', 'SET', 'save', ''),
    },
    {
      name: 'is loading its files',
      async begin(redis) {
        await redis.kill()
        // It takes its time for each key, and answers others meanwhile.
        redis.launch('--key-load-delay', '150000', '--loading-process-events-interval-bytes', '1024')
      },
      end: redis => redis.command('PING'),
    },
  ]

for (const failure of FAILURES) {
  t.test(
    `while the store ${failure.name}, streams end normally, new requests are refused, and each stream settles once afterwards`,
    { skip },
    async t => {
      const place = await outage(t)
      const g = await gatewayOn(t, place)
      const key = await g.key('famC', 10n)
      const stream = await opened(g, key)
      await failure.begin(place.redis)
      const refused = await g.call(CHAT, { key, body: BODY })
      t.match(refused, { status: 503, json: { error: { type: String, message: String } } }, 'in the caller’s format')
      t.ok(Number(refused.headers.get('retry-after')) > 0)
      place.replies[0]?.end(FINISH)
      t.match(await stream.text(), /data: \[DONE\]\n\n$/, 'the running stream comes to its own end')
      await until(() => g.gateway.ledger.waiting > 0)
      const folder = join(g.gateway.config.store.data, 'outbox')
      await until(() => outboxLines(folder).length > 0)
      t.notMatch(outboxLines(folder).join(), key, 'no key on disk')
      await failure.end(place.redis)
      await until(() => g.gateway.ledger.waiting === 0)
      const history = await g.settled(key)
      // A store that hung takes the refused request's hold when it continues, and then its void.
      const charged = history.filter(({ type }) => type !== 'void')
      t.match(charged, [{ type: 'settle', status: 'ok', output_tokens: 100 }])
      t.equal(charged.length, 1, 'once')
      await until(() => outboxLines(folder).length === 0)
    },
  )
}

t.test('a full store admits no new request and takes every settlement', { skip }, async t => {
  const place = await outage(t)
  const g = await gatewayOn(t, place)
  const key = await g.key('famC', 10n)
  const stream = await opened(g, key)
  await place.redis.command('CONFIG', 'SET', 'maxmemory', '1')
  t.match(await g.call(CHAT, { key, body: BODY }), { status: 503 })
  place.replies[0]?.end(FINISH)
  await stream.text()
  matchAll(t, await g.settled(key), [{ type: 'settle', status: 'ok', output_tokens: 100 }])
  t.equal(g.gateway.ledger.waiting, 0)
})

t.test('a client gets a reply that broke off while the store still extends its hold', { skip }, async t => {
  const place = await outage(t)
  // More than was requested, and so more than is held.
  const text = 'x'.repeat(3000)
  place.upstream.script = (_received, res) => {
    place.redis.signal('SIGSTOP')
    sse(res, DELTA.replace('"x"', JSON.stringify(text)))
  }
  const g = await gatewayOn(t, place)
  const key = await g.key('famC', 10n)
  const stream = await g.open(CHAT, { key, body: { ...BODY, max_tokens: 100 } })
  t.equal(stream.headers.get('content-length'), null, 'its end is not known yet')
  place.redis.signal('SIGCONT')
  t.match(await stream.text(), new RegExp(`${text}[^\\n]*\\n\\ndata: {"error":`))
  matchAll(t, await g.settled(key), [{ type: 'settle', status: 'broken', usage_source: 'estimated' }])
})

t.test('a store that has lost its scripts gets them again', { skip }, async t => {
  const place = await outage(t)
  const g = await gatewayOn(t, place)
  const key = await g.key('famC', 10n)
  const stream = await opened(g, key)
  await place.redis.command('SCRIPT', 'FLUSH')
  place.replies[0]?.end(FINISH)
  await stream.text()
  t.equal((await g.settled(key)).length, 1)
  t.equal(g.gateway.ledger.waiting, 0)
})

t.test('a waiting settlement outlives its gateway and its store', { skip }, async t => {
  const { redis, upstream, replies } = await outage(t)
  const place = new Place(t, ownPrefix, { ...upstreamEnv(upstream.url), REDIS_URL: redis.url })
  const first = await place.startProcess(t)
  const { key, id } = await place.key('famC', '5')
  const stream = await first.chat(key, BODY)
  await redis.kill()
  replies[0]?.end(FINISH)
  t.match(await stream.text(), /\[DONE\]/)
  const folder = join(place.folder, 'data', 'outbox')
  await until(() => outboxLines(folder).length > 0)
  await first.stop('SIGKILL')
  await redis.run()
  const second = await place.start(t)
  const history = async (): Promise<any> => (await second.lookUp('key-info/history', key)).json.data
  await until(async () => (await history()).length > 0)
  matchAll(t, await history(), [{ type: 'settle', status: 'ok', output_tokens: 100 }])
  t.match(await place.run('audit', '--key', id), { code: 0 })
  await until(() => outboxLines(folder).length === 0)
})

t.test(
  'settlements that neither the store nor the disk takes are printed at the stop, and can be charged later',
  { skip },
  async t => {
    const { redis, upstream, replies } = await outage(t)
    const env = { ...upstreamEnv(upstream.url), REDIS_URL: redis.url }
    const place = new Place(t, file => ownPrefix(file).set('limits.drain', '300ms'), env)
    const first = await place.startProcess(t)
    const { key, id } = await place.key('famC', '5')
    const outbox = join(place.folder, 'data', 'outbox')
    // A file in the place of the folder.
    writeFileSync(outbox, '')
    const stream = await first.chat(key, BODY)
    await redis.kill()
    replies[0]?.end(FINISH)
    t.match(await stream.text(), /\[DONE\]/)
    await first.saw(/cannot write the outbox/)
    t.equal(await first.stop('SIGTERM'), 1)
    t.match(first.output, 'The gateway did not stop cleanly: neither the store nor the disk has taken 1 settlement')
    const line = first.output.split('\n').find(each => each.includes('a settlement is lost')) ?? '{}'
    t.match(JSON.parse(line), { level: 'error', settlement: { account: id } })
    t.notMatch(line, key)
    rmSync(outbox)
    mkdirSync(outbox)
    writeFileSync(join(outbox, 'lost.w.0.jsonl'), JSON.stringify(JSON.parse(line).settlement))
    await redis.run()
    const second = await place.startProcess(t)
    await until(async () => (await second.lookUp('key-info/history', key)).json.data.length > 0)
    matchAll(t, (await second.lookUp('key-info/history', key)).json.data, [{ status: 'ok', output_tokens: 100 }])
    t.match(await place.run('audit', '--key', id), { code: 0 })
  },
)
