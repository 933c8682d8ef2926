import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { SCHEMA } from '../core/config/schema.ts'
import { ERRORS, GatewayError, type ErrorCode } from '../core/errors.ts'
import { mostBelowZero, UNCOVERED_S } from '../core/metering/bound.ts'
import { formatCredits } from '../core/money/credits.ts'
import { FORMATS } from '../core/formats/index.ts'
import { findPlugins } from '../core/chain/plugins.ts'
import { endpointsOf } from '../core/chain/routes.ts'
import { MARKS } from './bench/marks.ts'
import { startGateway } from './gateway.ts'
import { fates, PROBES, type Probe } from './formats/probes.ts'
import { rowsOf } from './tables.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const README = readFileSync(join(ROOT, 'README.md'), 'utf8')

/** The rows of the table whose first heading is this. */
function table(heading: string): string[][] {
  return rowsOf(README, heading).map(row => row.map(cell => cell.replace(/^`|`$/g, '')))
}

/** A default as it stands in gateway.yaml. */
function shown(standard: unknown): string {
  return Array.isArray(standard) ? `[${standard.join(', ')}]` : String(standard)
}

t.test('the table of errors is the table in the code', t => {
  const spelt = Object.keys(ERRORS).map(name => {
    const code = name as ErrorCode
    const error = new GatewayError(code)
    const chat = (FORMATS['chat-completions'].error(error, '') as any).error
    const messages = (FORMATS.messages.error(error, '') as any).error
    return [
      code,
      String(ERRORS[code].status),
      `${chat.type} / ${chat.code}`,
      messages.type,
      ERRORS[code].retry ? 'yes' : 'no',
    ]
  })
  t.same(table('code'), spelt)
  t.end()
})

t.test('the table of what an exchange costs has the bench’s marks, and says where they are missed', t => {
  t.same(
    table('exchange').map(([title, most]) => [title, most]),
    MARKS.map(({ title, most }) => [title, String(most)]),
  )
  for (const [, most, measured = ''] of table('exchange')) {
    const number = parseFloat(measured)
    t.equal(measured, number <= Number(most) ? number.toFixed(2) : `${number.toFixed(2)} (missed)`)
  }
  t.end()
})

t.test('the table of options is the schema', t => {
  const options: string[][] = []
  for (const [name, property] of Object.entries(SCHEMA.properties)) {
    if ('properties' in property)
      for (const [inner, { default: standard }] of Object.entries(property.properties))
        options.push([`${name}.${inner}`, shown(standard)])
    else if ('default' in property && !Array.isArray(property.default)) options.push([name, String(property.default)])
  }
  t.same(
    table('option').map(row => row.slice(0, 2)),
    options,
  )
  const timeouts = Object.entries(SCHEMA.properties.upstreams.additionalProperties.properties.timeouts.properties).map(
    ([name, { default: standard }]) => `\`${name}: ${standard}\``,
  )
  for (const timeout of timeouts) t.ok(README.includes(timeout), timeout)
  t.end()
})

t.test('the tables of settings of key types and models are the schema’s', t => {
  const { properties } = SCHEMA.properties.keyTypes.additionalProperties
  const [types, models] = README.split('A key type may have:')[1]?.split('A model may have:') ?? []
  const settings = (text = ''): string[][] =>
    [...text.matchAll(/^\| `(\w+)` \| `?([^`|]+?)`? \|/gm)].map(([, name = '', standard = '']) => [name, standard])
  const expected = Object.entries(properties).flatMap(([name, property]) =>
    'default' in property && name !== 'default' && name !== 'fillDefault' ? [[name, String(property.default)]] : [],
  )
  t.same(settings(types), expected)
  const said = ['id', 'as', 'sends', 'price']
  t.same(
    settings(models?.split('\n\n')[1])
      .map(([name]) => name)
      .sort(),
    Object.keys(properties.models.items.properties)
      .filter(name => !said.includes(name))
      .sort(),
  )
  t.end()
})

t.test('what is said of the most that a key can end below zero is what the file makes it', async t => {
  const { gateway } = await startGateway(t)
  const most = [...gateway.config.keyTypes.values()]
    .map(type => mostBelowZero(type, 150))
    .reduce((a, b) => (a > b ? a : b))
  t.match(
    README,
    `at most ${formatCredits(most)} credits below zero: 50 + 8 requests × ${UNCOVERED_S} s × 150 tokens × 75 credits a million`,
  )
})

t.test('the repository’s gateway.yaml says what the defaults are, so that the file is the whole behaviour', t => {
  const yaml = readFileSync(join(ROOT, 'gateway.yaml'), 'utf8')
  for (const section of ['store', 'ledger', 'limits'] as const) {
    for (const [name, { default: standard }] of Object.entries(SCHEMA.properties[section].properties))
      t.match(
        yaml,
        new RegExp(`^  ${name}: (?:!env \\w+ )?${shown(standard).replace(/[.[\]]/g, '\\$&')}(?: |$)`, 'm'),
        `${section}.${name}`,
      )
  }
  t.end()
})

t.test('the table of what a translated request carries and what is refused is the dialects’', t => {
  const spelt = Object.values(FORMATS).map(({ name, codec }) => [
    name,
    listed(codec.translates),
    listed(Object.keys(codec.refuses)),
  ])
  t.same(table("client's format"), spelt)
  t.end()
})

function listed(names: readonly string[]): string {
  return names.join('` `')
}

t.test('the table of what has no equal is what translation does', t => {
  const rows = table('of a request')
  t.same(
    rows.map(([what]) => what),
    Object.keys(PROBES),
  )
  for (const [what = '', ...cells] of rows) t.same(fates(PROBES[what] as Probe), cells, what)
  t.end()
})

t.test('the table of plugins is the folder', async t => {
  const { plugins } = await findPlugins([])
  t.same(
    table('plugin'),
    [...plugins.values()].map(({ name, summary }) => [name, summary]),
  )
})

t.test('the table of endpoints is what the chain serves, with and without a key', async t => {
  const { plugins } = await findPlugins([])
  const g = await startGateway(t)
  const chain = g.gateway.config.chain.flatMap(({ plugin }) => plugins.get(plugin) ?? [])
  const served = [...endpointsOf(chain.map(({ on }) => on))].sort()
  const rows = table('endpoint')
  t.same(rows.map(([endpoint]) => endpoint).sort(), served)
  for (const [endpoint = '', key] of rows) {
    const [method = '', path = ''] = endpoint.split(' ')
    const { status } = await g.call(path.replace('*', 'acme%2FfamB-4.5'), {
      method,
      ...(method === 'POST' && { body: {} }),
    })
    t.equal(status === 401, key === 'yes', endpoint)
  }
})

t.test('the plugin of ten minutes compiles and works', async t => {
  const source = /```ts\n(import \{ definePlugin[^]*?)```/.exec(README)?.[1] ?? ''
  // Inside the repository, so that the compiler finds the package by its own name.
  const folder = join(ROOT, '.tap', 'readme', 'plugins')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'quiet-hours.ts'), source)
  const flags = [
    '--noEmit',
    '--strict',
    '--target',
    'esnext',
    '--module',
    'nodenext',
    '--allowImportingTsExtensions',
    '--skipLibCheck',
    '--exactOptionalPropertyTypes',
  ]
  const compiled = spawnSync('tsc', ['--ignoreConfig', ...flags, join(folder, 'quiet-hours.ts')], { encoding: 'utf8' })
  t.equal(compiled.stdout, '', 'tsc has nothing to say')
  const chained = (yaml: string): string =>
    yaml
      .replace('- balance', '- quiet-hours: { types: [famC], from: 22, to: 22 }\n  - balance')
      .replace('limits:', `plugins: [${folder}]\n\nlimits:`)
  const g = await startGateway(t, { edit: chained })
  const body = { model: 'acme/famC-5.5', messages: [] }
  const refused = await g.call('/v1/chat/completions', { key: await g.key('famC'), body })
  t.match(refused, { status: 429, json: { error: { message: "famC keys rest until 22 o'clock UTC." } } })
  t.equal((await g.call('/v1/chat/completions', { key: await g.key('famB'), body: { messages: [] } })).status, 200)
  await t.rejects(
    startGateway(t, { edit: yaml => chained(yaml).replace('types: [famC]', 'type: [famC]') }),
    /did you mean types/,
  )
})

t.test('each promise names a test that there is', t => {
  const rows = table('promise')
  t.ok(rows.length > 10)
  for (const [, shown = ''] of rows) {
    const [, file = '', title = ''] = /^`?([^`:]+)`?: (.+)$/.exec(shown) ?? []
    t.ok(readFileSync(join(ROOT, file), 'utf8').replace('${STREAMS}', '200').includes(title), shown)
  }
  t.end()
})
