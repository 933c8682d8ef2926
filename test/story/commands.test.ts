import t from 'tap'
import { until } from '../gateway.ts'
import { Place } from '../process.ts'

t.test('keys are created and managed from the command line while the gateway runs', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  // The first start makes keys, too.
  await running.saw(/Try it:/)
  const made = await place.run(
    'keys',
    'create',
    '--type',
    'famB',
    '--credits',
    '25',
    '--name',
    'Ann',
    '--expires',
    '30d',
    '--json',
  )
  const key = JSON.parse(made.out)
  t.match(key, { id: /^key_/, key: /^sk-[A-Za-z0-9]{48}$/, type: 'famB', credits: 25 })
  t.match(await running.lookUp('key-info', key.key), { status: 200, json: { id: key.id, name: /^sk-/, balance: 25 } })
  t.match((await place.run('keys', 'topup', key.id, '0.5')).out, /25\.5 credits/)
  t.match(await running.lookUp('key-info', key.key), { json: { balance: 25.5 } })
  const rotated = JSON.parse((await place.run('keys', 'rotate', key.id, '--json')).out)
  t.match(await running.lookUp('key-info', rotated.key), { json: { id: key.id, balance: 25.5 } })
  t.match(JSON.parse((await place.run('keys', 'show', key.id, '--json')).out), {
    status: 'active',
    balance: '25.5',
    name: 'Ann',
  })
  t.match((await place.run('keys', 'disable', key.id)).out, /disabled/)
  t.match(JSON.parse((await place.run('keys', 'show', key.id, '--json')).out), { status: 'disabled' })
  t.match((await place.run('keys', 'enable', key.id)).out, /active/)
  const listed = await place.run('keys', 'list', '--json')
  t.ok(listed.out.split('\n').some(line => line.includes(key.id)))
  const later = [await place.key('famA', '1'), await place.key('famA', '1')]
  const { out } = await place.run('keys', 'list')
  t.match(
    out,
    new RegExp([key, ...later].map(({ id }) => `${id} .*\\n`).join('')),
    'in the order in which they were made',
  )
  t.notMatch(listed.out, rotated.key, 'a secret is shown once')
  const [charged] = later
  const chat = { model: 'acme/famB-4.5', messages: [{ role: 'user', content: 'hi' }] }
  await (await running.chat(rotated.key, chat)).text()
  await until(async () => (await running.lookUp('key-info/history', rotated.key)).json.data.length > 0)
  const entry = (await running.lookUp('key-info/history', rotated.key)).json.data[0]
  const credit = ['credit', entry.id, '--reason', 'a mistake of the provider']
  t.match(await place.run(...credit), {
    code: 0,
    out: new RegExp(`^Refunded 0\\.\\d+ credits of entry ${entry.id}\\. ${key.id} now has 25\\.5 credits\\.`),
  })
  t.match(await place.run(...credit, '--key', key.id), { code: 0, out: /was already refunded/ })
  t.match((await running.lookUp('key-info/history', rotated.key)).json.data[0], {
    type: 'credit',
    credits_entry: entry.id,
    cost_nano: `-${entry.cost_nano}`,
  })
  t.match(await place.run('audit'), { code: 0, out: /0 with drift/ })
  const mistakes: [string[], RegExp][] = [
    [['keys', 'create', '--type', 'famb', '--credits', '5'], /no key type "famb"; did you mean famB\?/],
    [['keys', 'create', '--type', 'famB', '--credits', '-5'], /not an amount/],
    [['keys', 'create', '--type', 'famB', '--credits', '1e3'], /not an amount/],
    [['keys', 'create', '--type', 'famB', '--credits', '0.1234567891'], /at most nine decimal places/],
    [['keys', 'create', '--type', 'famB', '--credits', '5', '--expires', 'yesterday'], /not a time in the future/],
    [['keys', 'show', 'key_none'], /no key key_none/],
    [['audit', '--key', 'key_none'], /no key key_none/],
    [['credit', 'entry-1', '--reason', 'x'], /"entry-1" is not an entry id/],
    [['credit', entry.id.replace(/.$/, 'f').replace(/^../, '00'), '--reason', 'x'], /no key has an entry 00/],
    [['credit', entry.id, '--reason', 'x', '--key', charged?.id ?? ''], /the entry \S+ belongs to key_/],
    [['credit', entry.id], /option --reason is required/],
    [['credit', entry.id, '--reason', ' '], /a reason has 1 to 500 characters/],
    [['keys', 'create', '--typ', 'famB', '--credits', '5'], /unknown option '--typ'[^]*Did you mean --type\?/],
    [['keys', 'creat'], /unknown command 'creat'/],
    [['keys', 'create', '--credits', '5'], /option --type is required/],
  ]
  await Promise.all(
    mistakes.map(async ([args, err]) => t.match(await place.run(...args), { code: 2, err }, args.join(' '))),
  )
})
