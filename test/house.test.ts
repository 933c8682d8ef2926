import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

/** The rules of the code base: which room may import which, and what every file must have. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))

interface Source {
  readonly path: string
  readonly text: string
  /** The text without comments. */
  readonly code: string
  /** Paths of the project's own files that it imports, types included. */
  readonly imports: readonly string[]
  /** Other modules that it imports. */
  readonly packages: readonly string[]
}

function sources(folder: string): Source[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.ts'))
    .map(file => {
      const path = join(folder, file)
      const text = readFileSync(join(ROOT, path), 'utf8')
      const named = [...text.matchAll(/(?:from |import\(|import )'([^']+)'/g)].map(match => match[1] ?? '')
      return {
        path,
        text,
        code: text.replace(/\/\*\*[^]*?\*\/|(?<!:)\/\/.*/g, ''),
        imports: named.filter(name => name.startsWith('.')).map(name => normalize(join(dirname(path), name))),
        packages: named.filter(name => !name.startsWith('.')),
      }
    })
}

const core = sources('core')
const plugins = sources('plugins')
const all = [...core, ...plugins]

/**
 * The rooms of `core/`, lowest first, with the rooms that each may import. A file that stands in `core/` itself is a
 * room of its own.
 */
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  'errors.ts': [],
  money: [],
  formats: ['lib', 'errors.ts', 'money'],
  config: ['lib', 'money', 'formats'],
  store: ['lib', 'config'],
  records: ['lib', 'money', 'config'],
  ledger: ['lib', 'errors.ts', 'money', 'config', 'store', 'records'],
  pool: ['lib', 'errors.ts', 'config', 'records', 'ledger'],
  exchange: ['lib', 'errors.ts', 'money', 'formats', 'config', 'ledger'],
  metering: ['lib', 'errors.ts', 'money', 'formats', 'config', 'records', 'ledger', 'exchange'],
  jobs: ['lib', 'errors.ts', 'formats', 'exchange', 'metering'],
  chain: ['lib', 'errors.ts', 'formats', 'config', 'records', 'pool', 'ledger', 'exchange', 'metering', 'jobs'],
  upstream: ['lib', 'errors.ts', 'formats', 'config', 'exchange', 'pool', 'chain'],
  simulator: ['lib', 'money', 'formats'],
  'plugin.ts': [
    'lib',
    'errors.ts',
    'money',
    'formats',
    'config',
    'pool',
    'records',
    'ledger',
    'exchange',
    'metering',
    'chain',
    'operator',
    'web',
  ],
  web: ['errors.ts'],
  operator: ['money', 'config', 'records', 'ledger', 'metering', 'pool'],
  server: ['lib', 'errors.ts', 'formats', 'config', 'exchange', 'chain'],
  'gateway.ts': [
    'lib',
    'config',
    'pool',
    'store',
    'records',
    'ledger',
    'exchange',
    'metering',
    'jobs',
    'chain',
    'upstream',
    'simulator',
    'server',
  ],
  commands: [
    'lib',
    'errors.ts',
    'money',
    'config',
    'store',
    'records',
    'ledger',
    'exchange',
    'metering',
    'chain',
    'gateway.ts',
    'operator',
    'pool',
    'upstream',
  ],
  'main.ts': ['lib', 'commands'],
}

function roomOf(path: string): string {
  return path.split('/')[1] ?? ''
}

t.test('a room imports only the rooms that it may import', t => {
  const used = new Map<string, Set<string>>()
  for (const { path, imports } of core) {
    const room = roomOf(path)
    const allowed = ROOMS[room]
    t.ok(allowed, `${path} stands in a room of the table`)
    for (const file of imports.filter(file => file.startsWith('core/') && roomOf(file) !== room)) {
      t.ok(allowed?.includes(roomOf(file)), `${path} may import ${file}`)
      used.set(room, (used.get(room) ?? new Set()).add(roomOf(file)))
    }
  }
  for (const [room, allowed] of Object.entries(ROOMS)) {
    t.same(
      allowed.filter(other => !used.get(room)?.has(other)),
      [],
      `${room} imports every room that the table allows it`,
    )
  }
  t.end()
})

t.test('no file imports itself through others, types included', t => {
  const byPath = new Map(core.map(source => [source.path, source]))
  const done = new Set<string>()
  const walk = (path: string, way: readonly string[]): void => {
    if (way.includes(path)) t.fail([...way.slice(way.indexOf(path)), path].join(' > '))
    if (way.includes(path) || done.has(path)) return
    for (const file of byPath.get(path)?.imports ?? []) walk(file, [...way, path])
    done.add(path)
  }
  for (const { path } of core) walk(path, [])
  t.ok(done.size >= core.length)
  t.end()
})

t.test('the core imports no plugin, and a plugin imports only its own files, tollgate/plugin and Node', t => {
  for (const { path, imports } of core)
    t.notOk(
      imports.some(file => file.startsWith('plugins/')),
      path,
    )
  for (const { path, imports, packages } of plugins) {
    const folder = `${dirname(path)}/`
    const others = imports.filter(file => folder === 'plugins/' || !file.startsWith(folder))
    t.same(others, [], path)
    t.same(
      packages.filter(name => name !== 'tollgate/plugin' && !name.startsWith('node:')),
      [],
      path,
    )
  }
  t.end()
})

t.test('only formats/ and simulator/ contain the spellings of the vendors', t => {
  const spellings =
    /finish_reason|stop_reason|prompt_tokens|completion_tokens|message_delta|content_block|anthropic-(?:version|beta)|response\.completed|max_output_tokens|stream_options/
  for (const { path, code } of all) {
    if (/^core\/(?:formats|simulator)\//.test(path)) continue
    // The first start prints commands for people to paste, which are written in a format.
    if (path === 'core/commands/start.ts') continue
    t.notMatch(code, spellings, path)
  }
  t.end()
})

t.test('only ledger/ names the keys that hold money', t => {
  for (const { path, code } of all) {
    if (!path.startsWith('core/ledger/')) t.notMatch(code, /scripts\.keys\.of\(|\.hincrby\(|\.hset\(/, path)
  }
  t.end()
})

t.test('only main.ts touches the process, and no other file of core/ reads the clock of the machine', t => {
  for (const { path, code, packages } of all) {
    if (path === 'core/main.ts') continue
    t.notMatch(code, /(?<![\w.'-])process\.\w/, path)
    t.notOk(packages.includes('node:process'), path)
    t.notMatch(code, /Date\.now\(\)|new Date\(\)/, path)
  }
  t.end()
})

t.test('a file has at most 330 lines and begins with a comment that says what it is', t => {
  for (const { path, text } of all) {
    t.ok(text.split('\n').length <= 330, `${path} has at most 330 lines`)
    t.match(
      text.trimStart(),
      path.startsWith('plugins/') ? /^(?:\/\*\*|import)/ : /^\/\*\*/,
      `${path} begins with a comment`,
    )
  }
  t.end()
})

t.test('every export has a doc comment', t => {
  for (const { path, text } of all) {
    const lines = text.split('\n')
    lines.forEach((line, index) => {
      if (
        !/^export (?:default |abstract |async )?(?:const|let|function\*?|class|interface|type|definePlugin)\b/.test(
          line,
        )
      )
        return
      if (/^export type (?:\*|\{)/.test(line)) return
      t.match(lines[index - 1], /\*\/$/, `${path}:${index + 1} ${line}`)
    })
  }
  t.end()
})

t.test('the scripts of pages are short, load only their own files, and never make markup of text', t => {
  const shared = join('core', 'web', 'shared')
  const own = readdirSync(join(ROOT, 'plugins')).map(name => join('plugins', name, 'page'))
  for (const folder of [shared, ...own]) {
    if (!existsSync(join(ROOT, folder))) continue
    const reachable = [...readdirSync(join(ROOT, folder)), ...readdirSync(join(ROOT, shared)), 'uplot.js']
    for (const file of readdirSync(join(ROOT, folder)).filter(name => name.endsWith('.js'))) {
      const text = readFileSync(join(ROOT, folder, file), 'utf8')
      t.ok(text.split('\n').length <= 330, `${folder}/${file} has at most 330 lines`)
      t.match(text, /^\/\*\*/, `${folder}/${file} begins with a comment`)
      t.notMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser/, file)
      for (const [, of, name = of ?? ''] of text.matchAll(
        /^(?:import|export) [^]*?from '([^']+)'$|import\('([^']+)'/gm,
      ))
        t.ok(name.startsWith('./') && reachable.includes(name.slice(2)), `${folder}/${file} loads ${name}`)
    }
  }
  t.end()
})
