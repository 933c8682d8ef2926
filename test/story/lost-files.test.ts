import { copyFileSync, existsSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { startGateway, until, upstreamEnv } from '../gateway.ts'
import { Place } from '../process.ts'
import { ownPrefix, RealRedis } from '../redis.ts'
import { json, ScriptedUpstream } from '../upstream.ts'
import type { Edit } from '../gateway-file.ts'

/** The file of the records, or the store, vanishes under a gateway. */

const skip = findServer(process.env) === undefined && 'no redis-server on PATH'
const onPostgres = process.env['TEST_RECORDS'] === 'postgres' && 'the records are not in SQLite'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

async function answering(t: Parameters<typeof ScriptedUpstream.start>[0]): Promise<string> {
  const upstream = await ScriptedUpstream.start(t)
  const usage = { prompt_tokens: 10, completion_tokens: 20 }
  upstream.script = (_received, res) =>
    json(res, { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage })
  return upstream.url
}

t.test(
  'a gateway whose SQLite file was deleted or replaced is not ready, and records nothing until it is put back',
  { skip: skip || onPostgres },
  async t => {
    const redis = await RealRedis.start(t)
    const place = new Place(t, ownPrefix, { ...upstreamEnv(await answering(t)), REDIS_URL: redis.url })
    const running = await place.startProcess(t)
    const { key, id } = await place.key('famC', '5')
    const file = join(place.folder, 'data', 'records.sqlite')
    const ready = async (): Promise<{ status: number; text: string }> => {
      const reply = await fetch(`${running.url}/health/ready`)
      return { status: reply.status, text: await reply.text() }
    }
    t.match(await ready(), { status: 200 })
    renameSync(file, `${file}.moved`)
    await until(async () => (await ready()).status === 503)
    t.match(await ready(), { text: /records\.sqlite was deleted or replaced/ })
    await running.saw(/"level":"error".*the records cannot be used/)
    copyFileSync(`${file}.moved`, file)
    t.match(await ready(), { status: 503 }, 'a copy is another file')
    t.equal((await running.chat(key, BODY)).status, 200, 'requests are served meanwhile')
    rmSync(file)
    renameSync(`${file}.moved`, file)
    await until(async () => (await ready()).status === 200)
    await until(async () => (await running.lookUp('key-info/history', key)).json.data?.length === 1)
    t.match(await place.run('audit', '--key', id), { code: 0 })

    await running.stop('SIGTERM')
    for (const ending of ['', '-wal', '-shm']) rmSync(file + ending, { force: true })
    t.match(await place.execute(['start']), { code: 1, err: /records\.sqlite is missing, but the store has been used/ })
    t.match(await place.run('keys', 'list'), { code: 1, err: /records\.sqlite is missing/ })
    t.notOk(existsSync(file), 'no empty file is made')
  },
)

t.test(
  'a store that has just been emptied refuses no key as unknown: keys get a 503 until it is filled',
  { skip },
  async t => {
    const redis = await RealRedis.start(t)
    const g = await startGateway(t, { upstream: await answering(t), env: { REDIS_URL: redis.url }, edit: ownPrefix })
    const key = await g.key('famC')
    t.equal((await g.call('/v1/chat/completions', { key, body: BODY })).status, 200)
    await g.settled(key)
    // The connection stays, so that nothing tells the gateway.
    await redis.command('FLUSHALL')
    for (const each of [key, 'sk-of-a-stranger-0123456789']) {
      const { status, headers } = await g.call('/v1/chat/completions', { key: each, body: BODY })
      t.equal(status, 503)
      t.ok(headers.has('retry-after'))
    }
  },
)

t.test(
  'new requests are refused when an ended exchange has waited too long to be recorded, and served when it is recorded',
  { skip: onPostgres },
  async t => {
    const edit: Edit = file => file.set('ledger.unrecorded', '1s')
    const g = await startGateway(t, { upstream: await answering(t), edit })
    const { background } = g.gateway.ledger
    const key = await g.key('famC')
    const ask = async (): Promise<number> => (await g.call('/v1/chat/completions', { key, body: BODY })).status
    const file = join(dirname(g.file), 'data', 'records.sqlite')
    renameSync(file, `${file}.moved`)
    t.equal(await ask(), 200)
    await until(async () => (await ask()) === 503)
    t.ok(background.unrecordedMs > 1000)
    renameSync(`${file}.moved`, file)
    await until(async () => (await ask()) === 200)
    await until(() => background.unrecordedMs === 0)
  },
)
