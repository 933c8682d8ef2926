import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'

/** The rules of the code base: which room may import which, and what every file must have. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** Lines of a file, at most. */
const LINES_MAX = 400

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
 * The rooms of `core/`, with the rooms that each may import, all of which stand above it. A file that stands in `core/`
 * itself is a room of its own.
 */
const ROOMS: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  Object.entries({
    'errors.ts': '',
    lib: '',
    money: '',
    formats: 'errors.ts lib money',
    plans: 'lib money',
    config: 'lib money formats plans',
    records: 'errors.ts lib money plans config',
    store: 'lib config',
    'ledger/script': 'errors.ts lib money records store',
    'ledger/recovery': 'lib money plans records store ledger/script',
    ledger: 'errors.ts lib money plans config records store ledger/script ledger/recovery',
    keys: 'errors.ts lib money plans records ledger/script ledger/recovery ledger',
    account: 'errors.ts lib money plans config records ledger keys',
    client: 'errors.ts lib config',
    exchange: 'errors.ts lib money formats config ledger keys client',
    metering: 'errors.ts lib money formats plans config records ledger keys exchange',
    jobs: 'errors.ts lib formats client exchange metering',
    pool: 'errors.ts lib config records ledger/script',
    chain: 'errors.ts lib formats config records ledger keys exchange metering jobs pool',
    server: 'errors.ts lib formats config client exchange chain',
    simulator: 'lib money formats',
    'upstream/connection': 'errors.ts lib formats config client',
    'upstream/relay': 'errors.ts lib formats client exchange chain upstream/connection',
    'upstream/attempts': 'errors.ts lib formats config client exchange pool chain upstream/connection upstream/relay',
    'gateway.ts':
      'lib config records store ledger keys client exchange metering jobs pool chain server simulator upstream/connection upstream/attempts',
    operator: 'errors.ts lib money plans config records ledger keys account metering pool upstream/connection',
    commands:
      'errors.ts lib money config records store ledger/script ledger/recovery ledger keys account client pool chain upstream/connection gateway.ts operator',
    'main.ts': 'lib money client commands',
    web: 'errors.ts',
    plugin:
      'errors.ts lib money formats plans config records ledger keys account client exchange metering pool chain operator web',
    testing: 'errors.ts lib formats config exchange chain',
  }).map(([room, allowed]) => [room, allowed.split(' ').filter(Boolean)]),
)

/** The room of a file: the deepest folder of the table that it is in, or the file itself. */
function roomOf(path: string): string {
  const parts = path.split('/').slice(1)
  const folders = parts.map((_, at) => parts.slice(0, parts.length - at).join('/'))
  return folders.find(folder => folder in ROOMS) ?? ''
}

/** Fails if some places break a rule, and names them. */
function keeps(t: Test, rule: string, broken: readonly string[]): void {
  t.strictSame(broken, [], rule)
}

/** Returns the paths of the files that break a rule. */
function breaking(files: readonly Source[], breaks: (source: Source) => boolean): string[] {
  return files.filter(breaks).map(({ path }) => path)
}

t.test('a room imports only the rooms that it may import', t => {
  const used = core.flatMap(({ path, imports }) =>
    imports
      .filter(file => file.startsWith('core/') && roomOf(file) !== roomOf(path))
      .map(file => ({ path, file, room: roomOf(path), other: roomOf(file) })),
  )
  keeps(
    t,
    'every file stands in a room of the table',
    breaking(core, ({ path }) => !ROOMS[roomOf(path)]),
  )
  keeps(
    t,
    'the table allows every import',
    used.filter(({ room, other }) => !ROOMS[room]?.includes(other)).map(({ path, file }) => `${path} imports ${file}`),
  )
  keeps(
    t,
    'the table allows no import that does not exist',
    Object.entries(ROOMS).flatMap(([room, allowed]) =>
      allowed
        .filter(other => !used.some(each => each.room === room && each.other === other))
        .map(other => `${room} does not import ${other}`),
    ),
  )
  const names = Object.keys(ROOMS)
  keeps(
    t,
    'no room imports itself through others: each imports only rooms that stand above it',
    names.flatMap((room, at) =>
      (ROOMS[room] ?? []).filter(other => names.indexOf(other) >= at).map(other => `${room} imports ${other}`),
    ),
  )
  t.end()
})

t.test('no file imports itself through others, types included', t => {
  const byPath = new Map(core.map(source => [source.path, source]))
  const done = new Set<string>()
  const circles: string[] = []
  const walk = (path: string, way: readonly string[]): void => {
    if (way.includes(path)) circles.push([...way.slice(way.indexOf(path)), path].join(' > '))
    if (way.includes(path) || done.has(path)) return
    for (const file of byPath.get(path)?.imports ?? []) walk(file, [...way, path])
    done.add(path)
  }
  for (const { path } of core) walk(path, [])
  keeps(t, 'no circles', circles)
  t.ok(done.size >= core.length)
  t.end()
})

t.test('the core imports no plugin, and a plugin imports only its own files, the modules for plugins and Node', t => {
  keeps(
    t,
    'the core imports no plugin',
    breaking(core, ({ imports }) => imports.some(file => file.startsWith('plugins/'))),
  )
  keeps(
    t,
    'a plugin imports its own files',
    breaking(plugins, ({ path, imports }) => {
      const folder = `${dirname(path)}/`
      return imports.some(file => folder === 'plugins/' || !file.startsWith(folder))
    }),
  )
  keeps(
    t,
    'a plugin imports the modules for plugins and Node',
    breaking(plugins, ({ packages }) =>
      packages.some(name => !/^tollgate\/plugin(?:\/metering|\/operator)?$/.test(name) && !name.startsWith('node:')),
    ),
  )
  t.end()
})

t.test('only formats/ and simulator/ contain the spellings of the vendors', t => {
  const spellings =
    /finish_reason|stop_reason|prompt_tokens|completion_tokens|message_delta|content_block|anthropic-(?:version|beta)|response\.completed|max_output_tokens|stream_options/
  // The first start prints commands for people to paste, which are written in a format.
  const mayHave = /^core\/(?:formats\/|simulator\/|testing\/streams\.ts$|commands\/start\.ts$)/
  keeps(
    t,
    'no spellings elsewhere',
    breaking(all, ({ path, code }) => !mayHave.test(path) && spellings.test(code)),
  )
  t.end()
})

t.test('only ledger/ and keys/ name the keys of the store that hold money', t => {
  const named = /scripts\.keys\.of\(|\.hincrby\(|\.hset\(/
  keeps(
    t,
    'no keys elsewhere',
    breaking(all, ({ path, code }) => !/^core\/(?:ledger|keys)\//.test(path) && named.test(code)),
  )
  t.end()
})

t.test('only main.ts touches the process, and no other file reads the clock of the machine', t => {
  const others = all.filter(({ path }) => path !== 'core/main.ts')
  keeps(
    t,
    'the process',
    breaking(others, ({ code, packages }) => /(?<![\w.'-])process\.\w/.test(code) || packages.includes('node:process')),
  )
  keeps(
    t,
    'the clock',
    breaking(others, ({ code }) => /Date\.now\(\)|new Date\(\)/.test(code)),
  )
  t.end()
})

t.test('a file has at most 400 lines and begins with a comment that says what it is', t => {
  keeps(
    t,
    'at most 400 lines',
    breaking(all, ({ text }) => text.split('\n').length > LINES_MAX),
  )
  keeps(
    t,
    'begins with a comment',
    breaking(
      all,
      ({ path, text }) => !(path.startsWith('plugins/') ? /^(?:\/\*\*|import)/ : /^\/\*\*/).test(text.trimStart()),
    ),
  )
  t.end()
})

t.test('a file of the script of the store has at most 400 lines and begins with a comment', t => {
  const folder = join(ROOT, 'core/ledger/script')
  const files = readdirSync(folder).filter(name => name.endsWith('.lua'))
  const texts = files.map(name => ({ name, text: readFileSync(join(folder, name), 'utf8') }))
  const broken = (breaks: (text: string) => boolean): string[] =>
    texts.filter(({ text }) => breaks(text)).map(({ name }) => name)
  t.ok(texts.length > 0)
  keeps(
    t,
    'at most 400 lines',
    broken(text => text.split('\n').length > LINES_MAX),
  )
  keeps(
    t,
    'begins with a comment',
    broken(text => !text.startsWith('--')),
  )
  t.end()
})

t.test('every export has a doc comment', t => {
  const exported =
    /^export (?:default |abstract |async )?(?:const|let|function\*?|class|interface|type|definePlugin)\b(?! (?:\*|\{))/
  keeps(
    t,
    'with a comment above it',
    all.flatMap(({ path, text }) => {
      const lines = text.split('\n')
      return lines.flatMap((line, at) =>
        exported.test(line) && !lines[at - 1]?.endsWith('*/') ? [`${path}:${at + 1} ${line}`] : [],
      )
    }),
  )
  t.end()
})

t.test('the scripts of pages are short, load only their own files, and never make markup of text', t => {
  const shared = join('core', 'web', 'shared')
  const own = readdirSync(join(ROOT, 'plugins')).map(name => join('plugins', name, 'page'))
  const scripts = [shared, ...own]
    .filter(folder => existsSync(join(ROOT, folder)))
    .flatMap(folder => {
      const reachable = [...readdirSync(join(ROOT, folder)), ...readdirSync(join(ROOT, shared)), 'uplot.js']
      return readdirSync(join(ROOT, folder))
        .filter(name => name.endsWith('.js'))
        .map(name => ({
          path: join(folder, name),
          text: readFileSync(join(ROOT, folder, name), 'utf8'),
          reachable,
        }))
    })
  const broken = (breaks: (script: (typeof scripts)[number]) => boolean): string[] =>
    scripts.filter(breaks).map(({ path }) => path)
  const markup = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser/
  t.ok(scripts.length > 0)
  keeps(
    t,
    'at most 400 lines',
    broken(({ text }) => text.split('\n').length > LINES_MAX),
  )
  keeps(
    t,
    'begins with a comment',
    broken(({ text }) => !text.startsWith('/**')),
  )
  keeps(
    t,
    'no markup of text',
    broken(({ text }) => markup.test(text)),
  )
  keeps(
    t,
    'loads its own files',
    scripts.flatMap(({ path, text, reachable }) =>
      [...text.matchAll(/^(?:import|export) [^]*?from '([^']+)'$|import\('([^']+)'/gm)]
        .map(([, of, name = of ?? '']) => name)
        .filter(name => !name.startsWith('./') || !reachable.includes(name.slice(2)))
        .map(name => `${path} loads ${name}`),
    ),
  )
  t.end()
})
