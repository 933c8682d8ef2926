import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Place } from '../process.ts'
import type { Edit } from '../gateway-file.ts'

t.test('check prints every problem at once, with its line, and exits with 78', async t => {
  const place = new Place(t, file =>
    file.set('keyTypes.famB.fillDefault', undefined).set('keyTypes.famB.fillDefaults', true),
  )
  const { code, err } = await place.run('check')
  t.equal(code, 78)
  t.match(
    err,
    /gateway\.yaml:\d+:5 keyTypes\.famB\.fillDefaults: there is no setting "fillDefaults" here\n +\d+ \| +fillDefaults: true.*\n +\| +\^{12}\n += did you mean fillDefault\?/,
  )
  t.match(err, /1 problem/)
  const { code: printed, out, err: warning } = await place.run('schema')
  t.match(
    [printed, JSON.parse(out), warning],
    [
      0,
      { title: 'gateway.yaml' },
      /gateway\.yaml has problems \(run `check`\), so the schema lacks the options of your own plugins/,
    ],
  )
  const start = await place.run('start')
  t.equal(start.code, 78, 'start refuses it alike')
})

t.test('a command that runs no stage works although a stage is wrong', async t => {
  const place = new Place(t, file => file.stage('key-info', { nonsense: 1 }).insertBefore('models', 'unknown'))
  t.match(await place.run('check'), { code: 78, err: /2 problems/ })
  const { key, id } = await place.key('famC', '1')
  t.match(key, /^sk-/)
  t.match(await place.run('keys', 'show', id), { code: 0, out: /famC/ })
})

t.test('check prints everything into a pipe, however long it is', async t => {
  const place = new Place(t, file =>
    file.setAll([], Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`unknown${index}`, 1]))),
  )
  t.match(await place.run('check'), { code: 78, err: /unknown999[^]*\n1000 problems\n$/ })
})

t.test('a plugin file that cannot be used is reported at the line of the chain that names it', async t => {
  const place = new Place(t, file => file.insertBefore('models', 'broken', 'other'))
  mkdirSync(join(place.folder, 'plugins'))
  const write = (name: string, text: string): void => writeFileSync(join(place.folder, 'plugins', `${name}.ts`), text)
  write('broken', 'oops(\n')
  write('named', "export default { name: 'other', setup: () => ({}) }\n")
  write('unused', 'export const nothing = 1\n')
  const { code, err } = await place.run('check')
  t.equal(code, 78)
  t.match(err, /chain\[3\]: plugin file .*\/broken\.ts cannot be loaded: .*\n +\d+ \| {3}- broken\n/)
  t.match(err, /chain\[4\]: plugin file .*\/named\.ts defines "other": .*\n +\d+ \| {3}- other\n/)
  t.match(err, /chain: plugin file .*\/unused\.ts has no default export made by definePlugin\n +\d+ \| chain:/)
  t.match(err, /3 problems\n$/, 'and nothing that only follows from it')
})

t.test('a file that cannot be read is reported as such by every command', async t => {
  const place = new Place(t)
  t.match(await place.run('check', 'nothing.yaml'), {
    code: 78,
    err: /^nothing\.yaml:1:1 this file does not exist[^]*1 problem\n$/,
  })
  t.match(await place.run('start', '-c', '.'), { code: 78, err: /^\.:1:1 this is a folder, not a file/ })
  writeFileSync(join(place.folder, 'utf16.yaml'), Buffer.from('\ufefflimits: {}\n', 'utf16le'))
  t.match(await place.run('check', 'utf16.yaml'), {
    code: 78,
    err: /^utf16\.yaml:1:1 this file is not UTF-8 text/,
  })
})

t.test('a deleted file leaves the old configuration in force, and the log has one line about it', async t => {
  const place = new Place(t)
  const running = await place.start(t)
  rmSync(place.file)
  await running.saw(/gateway\.yaml:1:1 this file does not exist/)
  await running.saw(/"problems":\["\S+gateway\.yaml:1:1"\],.*the old one stays in force/)
  t.notMatch(running.output, /"stack"/)
  t.equal((await fetch(`${running.url}/health`)).status, 200)
})

t.test('check warns once a key type of models without reasoning and maxOutput; the file is still valid', async t => {
  const bare: Edit = file => file.model('famC', '*', { reasoning: undefined, maxOutput: undefined })
  const place = new Place(t, bare)
  t.match(await place.run('check'), {
    code: 0,
    out: /is valid/,
    err: /"acme\/famC-5\.6-sol" and 3 more of this key type have no "reasoning"[^]*set it to hidden, shown or none[^]*have no "maxOutput"[^]*2 warnings/,
  })
  t.equal((await new Place(t).run('check')).err, '')
})

const withAdmin =
  (listen: object, port = 8080): Edit =>
  file =>
    file.append({ admin: { listen } }).set('listen.port', port)

const withQuotas =
  (...quota: object[]): Edit =>
  file =>
    file.set('upstreams.famC.accounts', [{ key: 'simulated', quota }])

/** What is probably wrong, with what check says about it. */
const PROBABLY_WRONG: readonly (readonly [string, Edit, RegExp])[] = [
  [
    'a price below its cost',
    file => file.set('upstreams.famC.cost', { '*': 'large' }),
    /gateway\.yaml:\d+:\d+ upstreams\.famC\.cost.*\n[^]*sells "acme\/famC-[^"]+" below this cost: input at [\d.]+ where [\d.]+ are paid for a million/,
  ],
  [
    'a cooldown above its maximum',
    file => file.set('upstreams.famC.health', { cooldown: '20m' }),
    /the first cooldown is longer than `cooldownMax`/,
  ],
  [
    'a price that nothing has',
    file => file.set('prices.spare', { input: 1, output: 2 }),
    /prices\.spare: nothing has this price[^]*remove it/,
  ],
  [
    'a price without cache writes, of an upstream that bills them',
    file => file.set('prices.small.cacheWrite1h', undefined),
    /prices\.small: what "acme\/famA-small-4\.5" writes to a cache is sold for less than providers bill[^]*set cacheWrite5m and cacheWrite1h/,
  ],
  [
    'a time limit that another one never lets pass',
    file => file.set('upstreams.famC.timeouts', { idle: '2h' }),
    /upstreams\.famC\.timeouts\.idle: this time is never over before upstreams\.famC\.timeouts\.total/,
  ],
  [
    'a quota that another one never lets use up',
    withQuotas({ credits: 10, per: 'day' }, { credits: 400, per: 'week' }),
    /famC\.accounts\[0\]\.quota\[1\]: this quota is never used up before the one per day/,
  ],
  [
    'a quota of a short time with more than that of a long one',
    withQuotas({ credits: 500, per: '5h' }, { credits: 400, per: 'week' }),
    /famC\.accounts\[0\]\.quota\[0\]: this quota is never used up before the one per week/,
  ],
  [
    'a quota in other words',
    withQuotas({ credits: 5, per: '24h' }, { credits: 5, per: '1d' }),
    /famC\.accounts\[0\]\.quota\[1\]: this quota is never used up before the one per 24h/,
  ],
  [
    'a key in the file',
    file =>
      file
        .set('upstreams.famC.url', 'https://api.example')
        .set('upstreams.famC.accounts', [{ key: 'secret-0123456789' }]),
    /this key is written into the file[^]*!env NAME or !file PATH/,
  ],
  [
    'an admin page for everybody',
    withAdmin({ host: '0.0.0.0', port: 8081 }),
    /open to every network of this machine[^]*127\.0\.0\.1/,
  ],
  [
    'an admin page at the port of customers',
    withAdmin({ host: '127.0.0.1', port: 8081 }, 8081),
    /customers call this port/,
  ],
]

t.test('check warns of what is legal and probably wrong, and says what to write', async t => {
  for (const [name, edit, words] of PROBABLY_WRONG) {
    const place = new Place(t, edit)
    const { code, err } = await place.run('check')
    t.match({ code, err }, { code: 0, err: words }, name)
    t.notMatch(err, 'secret-0123456789')
    t.equal((await place.run('check', '--strict')).code, 78)
  }
  t.equal((await new Place(t).run('check', '--strict')).code, 0)
})

t.test('check reports a valid file; plan and plugins describe it', async t => {
  const place = new Place(t)
  t.match(await place.run('check'), { code: 0, out: /is valid: 4 key types/ })
  t.match(
    (await place.run('plan')).out,
    /POST \/v1\/messages\n {2}access-log > auth > compat-lookups > json-body > default-model > model-gate > request-policy > retries > router > stored-state > upstream-errors > sse-tap > usage-meter/,
  )
  t.match(
    (await place.run('plugins')).out,
    /usage-meter\n.*\n {2}needs key, secret, body, model, route, extras, tally\n {2}gives runningHold/,
  )
})
