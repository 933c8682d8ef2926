/** Finds plugins. The folder is the registry: the name of a file is the word in `chain:`. */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { noteFacts } from '../exchange/members.ts'
import { didYouMean, nearest, suggest } from '../lib/suggest.ts'
import './modules.ts'
import { reasonOf } from '../lib/reason.ts'
import { METHODS, type Plugin, SCOPE_WORDS } from './stage.ts'

const BUILT_IN = fileURLToPath(new URL('../../plugins', import.meta.url))

/** A plugin file that cannot be used. */
export interface PluginFault {
  /** The names by which a chain may ask for it. */
  readonly words: readonly string[]
  readonly message: string
}

/** The plugins by name, and the files that cannot be used. */
export interface FoundPlugins {
  readonly plugins: ReadonlyMap<string, Plugin>
  readonly faults: readonly PluginFault[]
  /** The names of the plugins of other folders than the built-in one. */
  readonly foreign: ReadonlySet<string>
}

/** Finds the plugins of the built-in folder and of the given ones. A file that cannot be used is a fault. */
export async function findPlugins(folders: readonly string[]): Promise<FoundPlugins> {
  const plugins = new Map<string, Plugin>()
  const faults: PluginFault[] = []
  const foreign = new Set<string>()
  const all = [
    BUILT_IN,
    ...folders.map(folder => resolve(folder)).filter(folder => folder !== BUILT_IN && existsSync(folder)),
  ]
  for (const file of all.flatMap(pluginFiles)) {
    const fault = await load(file, plugins)
    if (fault) faults.push(fault)
    else if (!file.startsWith(join(BUILT_IN, sep))) foreign.add(wordOf(file))
  }
  return { plugins, faults, foreign }
}

/** The plugin files of a folder: `.ts` and `.js` files, and folders with an index file. */
function pluginFiles(folder: string): string[] {
  return readdirSync(folder)
    .sort()
    .flatMap(entry => {
      const path = join(folder, entry)
      if (/^[\w-]+\.(?:ts|js)$/.test(entry)) return [path]
      if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return []
      return ['index.ts', 'index.js']
        .map(index => join(path, index))
        .filter(existsSync)
        .slice(0, 1)
    })
}

/** Returns the word by which a chain names the plugin of a file. */
function wordOf(file: string): string {
  return /\/index\.[tj]s$/.test(file) ? basename(join(file, '..')) : basename(file).replace(/\.[tj]s$/, '')
}

async function load(file: string, plugins: Map<string, Plugin>): Promise<PluginFault | undefined> {
  const word = wordOf(file)
  const fault = (message: string, ...others: string[]): PluginFault => ({
    words: [word, ...others],
    message: `plugin file ${file} ${message}`,
  })
  try {
    const module = (await import(pathToFileURL(file).href)) as { default?: Plugin }
    const plugin = module.default
    if (plugin?.name === undefined) return fault('has no default export made by definePlugin')
    const { name } = plugin
    if (name !== word)
      return fault(`defines "${name}": the name must equal the file's name, by which the chain refers to it`, name)
    if (!Array.isArray(plugin.needs) || !Array.isArray(plugin.gives) || typeof plugin.options !== 'object')
      return fault('has no default export made by definePlugin')
    if (typeof plugin.setup !== 'function' || typeof plugin.summary !== 'string')
      return fault('must have a `summary`, which is a string, and a `setup`, which is a function')
    const unknown = Object.keys(plugin).find(member => !MEMBERS.includes(member))
    if (unknown !== undefined) return fault(`has an unknown member "${unknown}"; ${suggest(unknown, MEMBERS)}`)
    const scope = unknownScope(plugin.on)
    if (scope !== undefined) {
      const hint =
        didYouMean(nearest(scope, SCOPE_WORDS)) ?? `use ${SCOPE_WORDS.join(', ')}, or an endpoint such as GET /path`
      return fault(`has an unknown scope "${scope}"; ${hint}`)
    }
    if (plugin.listens && (!hasListen(plugin.options) || plugin.needs.length > 0))
      return fault('listens, so it must have an option `listen` made by listenOption, and no `needs`')
    if (plugins.has(word)) return fault(`has the same name as another plugin, "${word}"`)
    noteFacts(plugin)
    plugins.set(word, plugin)
    return undefined
  } catch (cause) {
    return fault(`cannot be loaded: ${reasonOf(cause)}`)
  }
}

function hasListen(options: Plugin['options']): boolean {
  return typeof options === 'object' && options.properties?.['listen'] !== undefined
}

const MEMBERS: readonly string[] = [
  'name',
  'summary',
  'on',
  'needs',
  'gives',
  'meters',
  'listens',
  'builtIn',
  'page',
  'options',
  'setup',
] satisfies (keyof Plugin)[]

const ENDPOINT = new RegExp(`^(?:${METHODS.join('|')}) /\\S*$`)

/** Returns a scope that is neither a word nor an endpoint. */
function unknownScope(scope: unknown): string | undefined {
  if (Array.isArray(scope)) return scope.map(unknownScope).find(part => part !== undefined)
  const text = String(scope)
  return (SCOPE_WORDS as readonly string[]).includes(text) || ENDPOINT.test(text) ? undefined : text
}
