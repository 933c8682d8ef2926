import t from 'tap'
import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { Place } from '../process.ts'
import { until } from '../gateway.ts'

t.test('each worker records the requests that it ended, and a stop records the last ones', async t => {
  const place = new Place(t, file => file.set('workers', 2).set('ledger.archiveEvery', '1h'))
  const running = await place.startProcess(t)
  const { key } = await place.key('famC', '5')
  const bad = { model: 'none', messages: [] }
  const statuses = await Promise.all(
    Array.from({ length: 40 }, () => running.chat(key, bad).then(({ status }) => status)),
  )
  t.same(new Set(statuses), new Set([404]))
  await running.stop('SIGTERM')
  const database = new DatabaseSync(join(place.folder, 'data', 'records.sqlite'), { readOnly: true })
  t.teardown(() => database.close())
  const one = (text: string): number => Number(Object.values(database.prepare(text).get() ?? {})[0])
  t.equal(one('SELECT SUM(requests) FROM day_models'), 40)
  t.equal(one('SELECT SUM(refused) FROM day_accounts'), 40)
  t.equal(one('SELECT SUM(errors) FROM day_accounts'), 0)
  t.equal(one('SELECT requests FROM totals'), 40)
  t.equal(one('SELECT SUM(alike) FROM failures'), 40)
})

t.test('a killed gateway loses at most the counts of its last second, and no charge', async t => {
  const place = new Place(t)
  const running = await place.startProcess(t)
  const { id, key } = await place.key('famC', '5')
  const body = { model: 'acme/famC-5.5', max_tokens: 20, messages: [{ role: 'user', content: 'Hi' }] }
  for (let request = 0; request < 5; request++) t.equal((await running.chat(key, body)).status, 200)
  const usage = async (): Promise<any> => JSON.parse((await place.run('usage', '--by', 'key', '--json')).out || '{}')
  await until(async () => (await usage()).requests === 5)
  for (let request = 0; request < 5; request++) t.equal((await running.chat(key, body)).status, 200)
  await running.stop('SIGKILL')
  const again = await place.startProcess(t)
  await until(async () => (await usage()).billed === 10)
  const { requests } = await usage()
  t.ok(requests >= 5 && requests <= 10, `${requests} of 10 are counted`)
  const lines = (await place.run('keys', 'statement', id, '--json')).out
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  t.equal(lines.length, 11, 'ten charges and the grant')
  t.same(
    lines.map(({ number }) => number),
    Array.from({ length: 11 }, (_, at) => 11 - at),
  )
  t.equal((await place.run('audit')).code, 0)
  await again.stop('SIGTERM')
})
