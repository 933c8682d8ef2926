/** The records move from SQLite to PostgreSQL and back. */
import { renameSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { until, upstreamEnv } from '../gateway.ts'
import { Place, type Running } from '../process.ts'
import { newDatabase, onEachEngine } from '../records/engines.ts'
import type { Database } from '../../core/records/database.ts'
import { openDatabase } from '../../core/records/records.ts'
import { config } from '../plugins/facts.ts'
import { testEnvironment } from '../environment.ts'
import { copyAll } from '../../core/records/copy.ts'
import { LEFT, meta, migrate, setMeta, TABLES, UNFINISHED } from '../../core/records/migrations.ts'
import { timedId } from '../../core/lib/ids.ts'
import { ScriptedUpstream } from '../upstream.ts'

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

t.test(
  'records move to PostgreSQL and back with every key, balance and history, and the old ones are not used any more',
  async t => {
    const upstream = await ScriptedUpstream.start(t)
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
      out: /Copied \d+ rows of \d+ tables, and compared them: 2 accounts, 2 entries, 0 with drift/,
    })
    t.match(there.err, /Now set store\.records \(DATABASE_URL\) to the new address/)
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

onEachEngine(
  'a copy that was interrupted is repeated from the beginning, whatever it had done',
  async (t, open, { data, records: url }) => {
    const records = await open()
    await records.addPrices(
      new Map([
        ['v1', '{}'],
        ['v2', 'ä€😀'],
      ]),
    )
    const openAt = async (at: { data: string; records: string | undefined }): Promise<Database> => {
      const database = await openDatabase({ ...config.store, ...at }, testEnvironment().log)
      t.teardown(() => database.close())
      return database
    }
    const from = await openAt({ data, records: url })
    for (const records of [undefined, await newDatabase()]) {
      const to = await openAt({ data: t.testdir(), records })
      await migrate(to, () => timedId(Date.now()))
      await to.transaction(async sql => {
        await setMeta(sql, LEFT, UNFINISHED)
        await sql.all("INSERT INTO prices (version, numbers) VALUES ('other', '{}')")
      })
      const copied = await copyAll(from, to)
      t.equal(copied.length, TABLES.length)
      t.match(
        copied.find(({ name }) => name === 'prices'),
        { rows: 2 },
      )
      t.equal(await meta(to, LEFT), undefined)
      t.equal(await meta(to, 'id'), await meta(from, 'id'))
      t.equal(await meta(from, LEFT), to.description)
      await t.rejects(open(), /were copied to/)
      await t.rejects(
        from.transaction(() => Promise.resolve()).then(() => copyAll(from, from)),
        /already/,
      )
      // Interrupted after the old records were marked, it goes on as well.
      await to.transaction(sql => setMeta(sql, LEFT, UNFINISHED))
      t.equal((await copyAll(from, to)).length, TABLES.length)
      t.equal(await meta(to, LEFT), undefined)
      await from.transaction(sql => sql.all('DELETE FROM meta WHERE name = ?', [LEFT]))
    }
  },
)

onEachEngine('who has the records open when they are copied cannot write to them any more', async (t, open, place) => {
  const records = await open()
  await records.addPrices(new Map([['v1', '{}']]))
  const from = await openDatabase({ ...config.store, ...place }, testEnvironment().log)
  const to = await openDatabase({ ...config.store, data: t.testdir(), records: undefined }, testEnvironment().log)
  await migrate(to, () => timedId(Date.now()))
  await copyAll(from, to)
  await t.rejects(records.addPrices(new Map([['v2', '{}']])), /were copied to SQLite/)
  const other = await openDatabase(
    { ...config.store, data: join(t.testdirName, 'other'), records: undefined },
    testEnvironment().log,
  )
  await migrate(other, () => timedId(Date.now()))
  await t.rejects(copyAll(from, other), /was copied to .* already/)
  await other.close()
  await Promise.all([from.close(), to.close()])
})
