/** The records move from SQLite to PostgreSQL and back. */
import { renameSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { newDatabase, onEachEngine } from '../records/engines.ts'
import { openSqlite } from '../../core/records/sqlite.ts'
import { openPostgres } from '../../core/records/postgres.ts'
import { copyAll, UNFINISHED } from '../../core/records/copy.ts'
import { LEFT, meta, migrate, setMeta, TABLES } from '../../core/records/migrations.ts'
import { timedId } from '../../core/lib/ids.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

async function provider(t: Test): Promise<ScriptedUpstream> {
  const upstream = await ScriptedUpstream.start(t)
  upstream.script = (_received, res) =>
    json(res, { choices: [{ message: { content: 'x' }, finish_reason: 'stop' }], usage: { prompt_tokens: 10, completion_tokens: 60 } }) // prettier-ignore
  return upstream
}

t.test(
  'records move to PostgreSQL and back with every key, balance and history, and the old ones are not used any more',
  async t => {
    const upstream = await provider(t)
    const place = new Place(t, file => file.set('store.records', 'auto'), upstreamEnv(upstream.url), true)
    const [one, other] = [await place.key('famC', '5'), await place.key('famC', '5')]
    await place.run('keys', 'move', other.id, one.id)
    const asks = async (running: Running): Promise<void> => {
      for (const { key } of [one, other]) {
        t.equal((await running.chat(key, BODY)).status, 200)
        await until(async () => (await running.held(key)) === '0')
      }
    }
    const history = async (running: Running) => (await running.lookUp('key-info/history', one.key)).json.data
    const first = await place.start(t)
    await asks(first)
    const before = await history(first)
    const url = await newDatabase()
    t.match(await place.run('records', 'copy', '--to', url), { code: 2, err: /stop all gateways first/ })
    await first.stop('SIGTERM')
    t.match(await place.run('records', 'copy', '--to', 'mysql://x'), { code: 2, err: /address of a PostgreSQL/ })
    t.match(await place.run('records', 'copy', '--to', 'auto'), { code: 2, err: /has now/ })
    const there = await place.run('records', 'copy', '--to', url)
    t.match(there, {
      code: 0,
      out: /Copied \d+ rows of \d+ tables, and compared them\.\n2 accounts, 2 entries, 0 with drift/,
    })
    t.match(there.err, /Now set store\.records \(DATABASE_URL\)/)
    t.match(await place.run('keys', 'list'), { code: 1, err: /were copied to PostgreSQL at .*set store\.records/ })
    t.match(await place.run('records', 'copy', '--to', url), { code: 1, err: /has records already/ }, 'a second time')

    place.edit(file => file.set('store.records', url))
    const second = await place.start(t)
    t.same(await history(second), before)
    await asks(second)
    t.match(await place.run('keys', 'list', '--json'), { code: 0 })
    await second.stop('SIGTERM')
    t.match(await place.run('records', 'copy', '--to', 'auto'), { code: 1, err: /has records already/ })
    const file = join(place.folder, 'data', 'records.sqlite')
    renameSync(file, `${file}.old`)
    t.match(await place.run('records', 'copy', '--to', 'auto'), { code: 0, out: /2 accounts, 4 entries, 0 with drift/ })
    place.edit(file => file.set('store.records', 'auto'))
    const third = await place.start(t)
    await asks(third)
    t.equal((await history(third)).length, 3)
    t.match(await place.run('audit'), { code: 0, out: /2 accounts, 6 entries/ })
  },
)

onEachEngine('a copy that was interrupted is repeated from the beginning, whatever it had done', async (t, open) => {
  const records = await open()
  await records.addPrices(
    new Map([
      ['v1', '{}'],
      ['v2', 'ä€😀'],
    ]),
  )
  const engines = [
    () => openSqlite(join(t.testdir(), 'records.sqlite')),
    async () => openPostgres(await newDatabase(), { connections: 2, timeoutMs: 10_000, log: t as never }),
  ]
  for (const engine of engines) {
    const to = await engine()
    await migrate(to, () => timedId(Date.now()))
    await to.transaction(async sql => {
      await setMeta(sql, LEFT, UNFINISHED)
      await sql.all("INSERT INTO prices (version, numbers) VALUES ('other', '{}')")
    })
    const copied = await copyAll(records.database, to)
    t.equal(copied.length, TABLES.length)
    t.match(
      copied.find(({ name }) => name === 'prices'),
      { rows: 2 },
    )
    t.equal(await meta(to, LEFT), undefined)
    t.equal(await meta(to, 'id'), records.id)
    t.equal(await meta(records.database, LEFT), to.description)
    // Interrupted after the old records were marked, it goes on as well.
    await to.transaction(sql => setMeta(sql, LEFT, UNFINISHED))
    t.equal((await copyAll(records.database, to)).length, TABLES.length)
    t.equal(await meta(to, LEFT), undefined)
    await to.close()
  }
})
