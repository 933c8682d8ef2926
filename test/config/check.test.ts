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
