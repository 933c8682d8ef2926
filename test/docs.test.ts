import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { checkChain } from '../core/chain/check-chain.ts'
import { loadConfig } from '../core/config/load.ts'
import { publishedSchema, reference } from '../core/config/reference.ts'
import { SCHEMA } from '../core/config/schema.ts'
import { ERRORS, GatewayError, type ErrorCode } from '../core/errors.ts'
import { mostBelowZero, mostBelowZeroByTools, UNCOVERED_S } from './ledger/below-zero.ts'
import { formatCredits, MAX_AMOUNT } from '../core/money/credits.ts'
import { FORMATS } from '../core/formats/index.ts'
import { findPlugins } from '../core/chain/plugins.ts'
import { endpointsOf } from '../core/chain/routes.ts'
import { rowsOf as rowsOfBench } from './bench/rows.ts'
import { startGateway } from './gateway.ts'
import { fates, PROBES, type Probe } from './formats/probes.ts'
import { rowsOf } from './tables.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const PAGES = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md'].concat(
  readdirSync(join(ROOT, 'docs'))
    .filter(name => name.endsWith('.md'))
    .map(name => `docs/${name}`),
)
const page = (name: string): string => readFileSync(join(ROOT, name), 'utf8')

/** Returns the rows of the table on a page whose first heading is this, without code marks. */
function table(name: string, heading: string): string[][] {
  return rowsOf(page(name), heading).map(row => row.map(cell => cell.replace(/^`|`$/g, '')))
}

t.test('README has at most 150 lines', t => {
  t.ok(page('README.md').split('\n').length <= 151)
  t.end()
})

t.test('every link of the documentation leads to a file and to one of its headings', t => {
  for (const name of PAGES) {
    const text = page(name).replaceAll(/```[^]*?```/g, '')
    for (const [, target = ''] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (target.includes('://')) continue
      const [path = '', anchor] = target.split('#')
      const file = path === '' ? join(ROOT, name) : join(ROOT, dirname(name), path)
      if (!t.ok(existsSync(file), `${name}: ${target}`) || anchor === undefined) continue
      const headings = readFileSync(file, 'utf8')
        .split('\n')
        .filter(line => line.startsWith('#'))
        .map(line => slug(line.replace(/^#+ /, '')))
      t.ok(headings.includes(anchor), `${name}: ${target}`)
    }
  }
  t.end()
})

/** Returns the anchor of a heading, as GitHub makes it. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w -]/g, '')
    .replaceAll(' ', '-')
}

t.test('docs/configuration.md and the schema are what `npm run docs` writes', async t => {
  const { plugins } = await findPlugins([])
  t.equal(page('docs/configuration.md'), reference(plugins.values()))
  t.same(JSON.parse(page('docs/gateway.schema.json')), publishedSchema(plugins.values()))
})

t.test('the files of this project follow the published schema', t => {
  const valid = new Ajv({ allowUnionTypes: true }).compile(JSON.parse(page('docs/gateway.schema.json')) as object)
  const customTags = [{ tag: '!env', resolve: (text: string) => text }]
  const files = [
    page('gateway.yaml'),
    ...page('README.md')
      .matchAll(/```yaml\n([^]*?)```/g)
      .map(([, text = '']) => text),
  ]
  for (const text of files) t.ok(valid(parse(text, { customTags })), JSON.stringify(valid.errors))
  t.notOk(valid({ ...(parse(files[0] ?? '', { customTags }) as object), worker: 2 }))
  t.end()
})

t.test('the gateway.yaml in README is valid', async t => {
  const [, text = ''] = /```yaml\n([^]*?)```/.exec(page('README.md')) ?? []
  t.ok(text.split('\n').length < 25)
  const loaded = await loadConfig(join(ROOT, 'gateway.yaml'), { ANTHROPIC_API_KEY: 'key' }, checkChain, text)
  t.same(loaded.config ? [] : loaded.problems, [])
})

t.test('the tree in docs/architecture.md is the tree of folders', t => {
  const [, tree = ''] = /## The tree\n\n```\n([^]*?)```/.exec(page('docs/architecture.md')) ?? []
  const told = tree.match(/^\S+/gm)?.map(path => path.replace(/\/$/, ''))
  const folders = ['bin', 'core', 'deploy', 'docs', 'examples', 'plugins', 'test'].flatMap(top => [
    top,
    ...readdirSync(join(ROOT, top), { recursive: true, withFileTypes: true })
      .filter(entry => entry.isDirectory())
      .map(entry => relative(ROOT, join(entry.parentPath, entry.name))),
  ])
  const own = folders.filter(path => !/^(?:deploy|docs|examples)\/|^test\/(?:config|formats)\//.test(path))
  t.same(told, own.sort())
  t.end()
})

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
    return [code, String(ERRORS[code].status), `${chat.type} / ${chat.code}`, messages.type, error.retry ? 'yes' : 'no']
  })
  t.same(table('docs/customers.md', 'code'), spelt)
  t.end()
})

t.test('the table of what a request costs has the rows and limits of the bench, and says where they are missed', t => {
  const rows = rowsOfBench({ connections: 32, streams: 5000, sizes: [100, 1000] })
  const written = table('docs/performance.md', 'cost')
  t.same(
    written.map(cells => [cells[0], cells.at(-1)]),
    rows.map(({ title, most }) => [title, String(most)]),
  )
  for (const [index, cells] of written.entries()) {
    const figure = cells[4] ?? ''
    t.equal(figure.endsWith('(missed)'), parseFloat(figure) > (rows[index]?.most ?? 0), cells[0] ?? '')
  }
  t.end()
})

t.test('docs/charging.md states how far a key can fall below zero with the repository’s file', async t => {
  const { gateway } = await startGateway(t)
  const most = [...gateway.config.keyTypes.values()]
    .map(type => mostBelowZero(type, 150))
    .reduce((a, b) => (a > b ? a : b))
  t.match(
    page('docs/charging.md').replaceAll(/\s+/g, ' '),
    `at most ${formatCredits(most)} credits below zero: 50 + 8 requests × ${UNCOVERED_S} s × 600 tokens × 75 credits a million`,
  )
  const byTools = [...gateway.config.keyTypes.values()]
    .map(type => mostBelowZeroByTools(type, 20_000, MAX_AMOUNT))
    .reduce((a, b) => (a > b ? a : b))
  t.match(page('docs/charging.md').replaceAll(/\s+/g, ' '), `at most ${formatCredits(byTools)} credits: 58 replies`)
})

t.test('the repository’s gateway.yaml states the defaults', t => {
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

t.test('the table of translated and refused members matches the codecs', t => {
  const spelt = Object.values(FORMATS).map(({ name, codec }) => [
    name,
    listed(codec.translates),
    listed(Object.keys(codec.refuses)),
  ])
  t.same(table('docs/translation.md', "client's format"), spelt)
  t.end()
})

function listed(names: readonly string[]): string {
  return names.join('` `')
}

t.test('the table of members without an equivalent matches the translation', t => {
  const rows = table('docs/translation.md', 'of a request')
  t.same(
    rows.map(([what]) => what),
    Object.keys(PROBES),
  )
  for (const [what = '', ...cells] of rows) t.same(fates(PROBES[what] as Probe), cells, what)
  t.end()
})

t.test('the table of plugins in docs/plugins.md matches the folder', async t => {
  const { plugins } = await findPlugins([])
  t.same(
    table('docs/plugins.md', 'plugin'),
    [...plugins.values()].map(({ name, summary }) => [name, summary]),
  )
})

t.test('the table of endpoints matches what the chain serves, with and without a key', async t => {
  const { plugins } = await findPlugins([])
  const g = await startGateway(t)
  const chain = g.gateway.config.chain.flatMap(({ plugin }) => plugins.get(plugin) ?? [])
  // The look-ups of other tools have a table of their own.
  const own = chain.filter(({ name }) => name !== 'compat-lookups')
  const served = [...endpointsOf(own.map(({ on }) => on))].sort()
  const rows = table('docs/customers.md', 'endpoint')
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

t.test('the table of the look-ups of other tools has each of them once', async t => {
  const { plugins } = await findPlugins([])
  const paths = [...endpointsOf([plugins.get('compat-lookups')?.on ?? []])].map(
    endpoint => endpoint.split(' ')[1] ?? '',
  )
  const bare = new Set(
    paths.map(path => path.replace(/\/$/, '').replace(/^(?:\/v1)+(?=\/(?!messages|chat|responses))/, '')),
  )
  const told = table('docs/customers.md', 'look-up').map(([path = '']) => path.replace(/`/g, '').replace(/^\/v1/, ''))
  // `/v1/key` and `/v1/credits` are `/api/v1/key` and `/api/v1/credits` after a base address that ends in `/v1`.
  const formats = ['/v1/chat/completions', '/v1/responses', '/v1/responses/compact', '/v1/messages', '/key', '/credits']
  t.same([...bare].filter(path => !formats.includes(path)).sort(), told.sort())
})
