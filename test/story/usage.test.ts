import t from 'tap'
import { Place } from '../process.ts'

t.test('an operator sees who used what, lists keys by batch, and reads the history of a key', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  const created = await place.run(
    'keys',
    'create',
    '--type',
    'famC',
    '--credits',
    '2',
    '--count',
    '3',
    '--batch',
    'spring',
    '--name',
    '=1+1',
    '--csv',
  )
  const [head, ...lines] = created.out.trim().split('\n')
  t.equal(head, '"id","key","type","credits","name","batch","expires_at"')
  t.equal(lines.length, 3)
  t.match(lines[0], /^"key_\w+","sk-\w{48}","famC",2,"'=1\+1","spring",$/, 'a spreadsheet runs no formula')
  const [id = '', key = ''] = (lines[1] ?? '').replaceAll('"', '').split(',')
  const body = { model: 'acme/famC-5.5', messages: [{ role: 'user', content: 'hi' }] }
  for (let request = 0; request < 2; request++) t.equal((await running.chat(key, body)).status, 200)
  await running.stop('SIGTERM')
  const again = await place.start(t)

  const json = async (...args: string[]): Promise<any[]> =>
    (await place.run(...args, '--json')).out
      .trim()
      .split('\n')
      .filter(Boolean)
      .map(line => JSON.parse(line))
  t.match(await json('usage', '--by', 'key'), [{ group: id, name: '=1+1', requests: 2, billed: 2, errors: 0 }])
  t.match(await json('usage', '--since', '7d', '--by', 'type'), [{ group: 'famC', requests: 2 }])
  t.same(await json('usage', '--since', '3d', '--until', 'yesterday'), [])
  const csv = (await place.run('usage', '--by', 'key', '--csv')).out.split('\n')
  t.match(csv, [
    /^"key","name","requests","billed","errors","refused","input",/,
    new RegExp(`^"${id}","'=1\\+1",2,2,0,0,`),
  ])
  t.match((await place.run('usage')).out, /^model +requests[^]*\nacme\/famC-5\.5 +2 /)
  t.equal((await json('keys', 'list', '--batch', 'spring')).length, 3)
  t.match(await json('keys', 'list', '--search', id), [{ id, batch: 'spring' }])
  const page = await place.run('keys', 'list', '--batch', 'spring', '--limit', '2')
  const [, cursor = ''] = /--cursor (key_\w+)\n$/.exec(page.out) ?? []
  t.equal((await json('keys', 'list', '--batch', 'spring', '--cursor', cursor)).length, 1)
  const [newest, oldest] = await json('keys', 'history', id)
  t.match(newest, { type: 'settle', status: 'ok', upstream: 'famC/1' })
  const [, before = ''] = /--cursor (\d+)\n$/.exec((await place.run('keys', 'history', id, '--limit', '1')).out) ?? []
  t.match(await json('keys', 'history', id, '--cursor', before), [{ id: oldest.id }])
  const mistakes: [string[], RegExp][] = [
    [
      ['keys', 'create', '--type', 'famC', '--credits', '1', '--name', 'ab\u202etxt'],
      /--name has invisible characters/,
    ],
    [['keys', 'create', '--type', 'famC', '--credits', '1', '--batch', 'a\nb'], /--batch has invisible characters/],
    [['tokens', 'create', '--name', 'a\x9b'], /--name has invisible characters/],
    [['usage', '--by', 'modl'], /--by is one of key, balance, model.*; did you mean model\?/],
    [['usage', '--since', 'monday'], /"monday" is not a day/],
    [['usage', '--since', 'today', '--until', 'yesterday'], /--since \(today\) is later than --until \(yesterday\)/],
    [['usage', '--limit', '0'], /--limit is a whole number from 1/],
    [
      ['keys', 'create', '--type', 'famC', '--credits', '1', '--count', '1e3'],
      /--count is a whole number from 1 to 10000/,
    ],
    [['keys', 'list', '--status', 'on'], /--status is one of active, disabled/],
    [['keys', 'history', 'key_none'], /no key key_none/],
    [['keys', 'list', '--cursor', 'key_none'], /no key key_none/],
  ]
  await Promise.all(mistakes.map(async ([args, err]) => t.match(await place.run(...args), { code: 2, err })))
  await again.stop('SIGTERM')
})
