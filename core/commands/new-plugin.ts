/** `tollgate plugins new` and `tollgate plugins test`: begins a plugin, and runs the tests of plugins. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { findPlugins } from '../chain/plugins.ts'
import type { Config } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { UsageError } from './program.ts'

/** The options of `plugins new`. */
export interface NewPluginOptions {
  readonly folder: string
}

/** Where plugins are unless gateway.yaml names other folders. */
const FOLDER = './plugins'

/** What Node must know before it runs a test of a plugin. */
const MODULES = new URL('../chain/modules.ts', import.meta.url).href

/**
 * Writes a plugin and its test.
 * @throws UsageError if the name cannot be used, or a file of that name is there
 */
export async function newPlugin(
  environment: Environment,
  config: Config,
  name: string,
  { folder }: NewPluginOptions,
): Promise<void> {
  if (!/^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/.test(name))
    throw new UsageError('the name of a plugin has lower-case letters, digits and single hyphens, such as quiet-hours')
  const { plugins } = await findPlugins(config.plugins)
  if (plugins.has(name)) throw new UsageError(`there is a plugin ${name} already`)
  const place = resolve(dirname(config.file), folder)
  const files = [
    { file: `${name}.ts`, text: pluginText(name) },
    { file: `${name}.test.ts`, text: testText(name) },
  ]
  const taken = files.find(({ file }) => existsSync(join(place, file)))
  if (taken) throw new UsageError(`${join(folder, taken.file)} exists already`)
  mkdirSync(place, { recursive: true })
  for (const { file, text } of files) {
    writeFileSync(join(place, file), text, { flag: 'wx' })
    environment.print(`wrote ${join(folder, file)}`)
  }
  if (!config.plugins.includes(place)) environment.print(`Add the folder to gateway.yaml: plugins: [${folder}]`)
  environment.print(`Add "- ${name}" to the chain, below "- auth". Run its test with: npx tollgate plugins test`)
}

/**
 * Runs tests of plugins with Node's test runner, and prints their results. Exit status 1 if one fails.
 * @param configuration path of gateway.yaml
 * @param tests files; by default all in `plugins` beside gateway.yaml
 */
export async function testPlugins(
  environment: Environment,
  configuration: string,
  tests: readonly string[],
): Promise<void> {
  const folder = resolve(dirname(configuration), FOLDER)
  const found = existsSync(folder) ? readdirSync(folder).filter(name => /\.test\.[tj]s$/.test(name)) : []
  const files = tests.length > 0 ? tests : found.map(name => join(folder, name))
  if (files.length === 0) throw new UsageError(`there are no tests in ${FOLDER}; name the files to run`)
  const absent = files.find(file => !existsSync(file))
  if (absent !== undefined) throw new UsageError(`there is no file ${absent}`)
  let hasFailed = false
  const results = run({ files: files.map(file => resolve(file)), execArgv: ['--import', MODULES] })
  results.on('test:fail', () => (hasFailed = true))
  for await (const text of results.compose(spec)) environment.print(String(text).replace(/\n$/, ''))
  if (hasFailed) await environment.exit(1)
}

function pluginText(name: string): string {
  return `/** What ${name} does, and for whom. */
import { definePlugin, GatewayError } from 'tollgate/plugin'

/** Refuses requests of some key types. */
export default definePlugin({
  name: '${name}',
  summary: 'Refuses requests of some key types.',
  on: 'inference',
  needs: ['key'],
  options: {
    type: 'object',
    additionalProperties: false,
    properties: {
      types: { type: 'array', items: { type: 'string' }, default: [], description: 'Key types to refuse.' },
    },
  },
  setup({ types }, { log }) {
    return {
      request({ key }) {
        if (types.includes(key.type))
          throw new GatewayError('forbidden', { message: \`Keys of type \${key.type} are not served.\` })
      },
      settle(x, outcome) {
        log.info({ exchange: x.id, outcome: outcome.kind }, '${name} saw an exchange end')
      },
    }
  },
})
`
}

function testText(name: string): string {
  return `import assert from 'node:assert/strict'
import test from 'node:test'
import { drive } from 'tollgate/testing'
import plugin from './${name}.ts'

const ask = (type: string) => drive(plugin, { options: { types: ['trial'] }, facts: { key: { type } as never } })

test('a key of a refused type gets an error', async () => {
  const { thrown } = await ask('trial')
  assert.match(String(thrown), /not served/)
})

test('other keys pass', async () => {
  assert.equal((await ask('paid')).thrown, undefined)
})
`
}
