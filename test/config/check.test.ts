import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { render } from '../../core/config/locate.ts'
import { loadConfig } from '../../core/config/load.ts'
import { findPlugins } from '../../core/plugins.ts'
import { Place } from '../process.ts'

const FOLDER = new URL('bad/', import.meta.url)
const ENV = { PRESENT: 'secret-value' }

/** Each file under bad/ ends with the lines that `tollgate check` must print for it, as comments. */
for (const file of readdirSync(FOLDER)) {
  t.test(`bad/${file} is told where and what`, async t => {
    const path = new URL(file, FOLDER).pathname
    const expected = readFileSync(path, 'utf8')
      .split('\n')
      .filter(line => line.startsWith('#! '))
      .map(line => line.slice(3))
    const loaded = await loadConfig(path, ENV, findPlugins)
    t.equal(loaded.config, undefined)
    const told = loaded.problems.map(
      ({ line, col, path: place, message, hint }) => `${line}:${col} ${place === '' ? '' : `${place}: `}${message}${hint === undefined ? '' : ` = ${hint}`}`,
    )
    t.same(told, expected)
    t.notMatch(render(loaded.problems, loaded.text), 'secret-value', 'no value from the environment is shown')
  })
}

/** What the YAML parser cannot go on behind; told once, and where it was made as nearly as can be known. */
const SLIPS: readonly [text: string, told: string][] = [
  ['store: { replicas: 0\n\n# a remark\nledger: {}\n', '1:20 a } is missing = a bracket is closed before the next line that is indented as its own, or less'],
  ['plugins: [./plugins   # a remark\nledger: {}\n', '1:19 a ] is missing = a bracket is closed before the next line that is indented as its own, or less'],
  ['store:\n  redis: "auto\nledger: {}\n', '2:10 the " that closes this is missing'],
  [
    'ledger:\n   lease: 60s\n  retries: 15m\n  remember: 48h\n',
    '3:3 this line is not indented as those beside it = what belongs together begins in one column',
  ],
  ['chain:\n  - auth\n  -balance\n  - history\n', '3:3 a space is missing behind this -'],
  ['workers:2\nledger: {}\n', '1:1 expected a name with its value = write name: value, with a space behind the colon'],
  ['ledger: {}\nchain\n', '2:1 expected a name with its value = write name: value, with a space behind the colon'],
  ['listen: { host: 127.0.0.1 port: 1 }\n', '1:17 this cannot stand in brackets = separate what is in brackets by commas'],
  ['ledger: {}\n---\nledger: {}\n', '2:1 a second document begins here = write one, without ---'],
]

for (const [text, expected] of SLIPS) {
  t.test(`${JSON.stringify(text)} is one problem, in an operator's words`, async t => {
    const { problems } = await loadConfig('gateway.yaml', {}, findPlugins, text)
    t.same(
      problems.map(({ line, col, message, hint }) => `${line}:${col} ${message}${hint === undefined ? '' : ` = ${hint}`}`),
      [expected],
    )
  })
}

t.test('check prints every problem at once, with its line, and exits 78', async t => {
  const place = new Place(t, yaml => yaml.replace('fillDefault: true', 'fillDefaults: true').replace('price: small }          # cheaper', 'price: smal }'))
  const { code, err } = await place.run('check')
  t.equal(code, 78)
  t.match(
    err,
    /gateway\.yaml:\d+:5 keyTypes\.famB\.fillDefaults: there is no setting "fillDefaults" here\n +\d+ \| +fillDefaults: true.*\n +\| +\^{12}\n += did you mean fillDefault\?/,
  )
  t.match(err, /1 problem/)
  const start = await place.run('start')
  t.equal(start.code, 78, 'start refuses it alike')
  const missing = await place.run('check', 'nothing.yaml')
  t.equal(missing.code, 78)
})

t.test('check says that a sound file is sound; plan and plugins describe it', async t => {
  const place = new Place(t)
  t.match(await place.run('check'), { code: 0, out: /is sound: 4 key types/ })
  t.match(
    (await place.run('plan')).out,
    /POST \/v1\/messages\n {2}access-log > auth > json-body > default-model > model-gate > router > upstream-errors > sse-tap > usage-meter/,
  )
  t.match((await place.run('plugins')).out, /usage-meter\n.*\n {2}needs key, secret, body, model, route, tally\n {2}gives cover/)
})
