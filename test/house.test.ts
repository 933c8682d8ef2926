import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

/** The rules of the house: who may know whom. */

const ROOT = fileURLToPath(new URL('..', import.meta.url))

interface Source {
  readonly path: string
  readonly text: string
  readonly imports: readonly string[]
}

function sources(folder: string): Source[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.ts'))
    .map(file => {
      const path = join(folder, file)
      const text = readFileSync(join(ROOT, path), 'utf8')
      const imports = [...text.matchAll(/from '(\.[^']+)'/g)].map(match => normalize(join(dirname(path), match[1] ?? '')))
      return { path, text, imports }
    })
}

const core = sources('core')
const plugins = sources('plugins')

for (const [name, files] of [
  ['core names no plugin', core],
  ['plugins know the author’s module and the core, never each other', plugins],
] as const) {
  t.test(name, t => {
    for (const { path, imports } of files)
      t.notOk(
        imports.some(file => file.startsWith('plugins/')),
        path,
      )
    t.end()
  })
}

t.test("only formats/ knows the vendors' spellings", t => {
  const spellings =
    /finish_reason|stop_reason|prompt_tokens|completion_tokens|message_delta|content_block|anthropic-(?:version|beta)|response\.completed|max_output_tokens|stream_options/
  for (const { path, text } of [...core, ...plugins]) {
    if (path.startsWith('core/formats/')) continue
    // The first start prints commands for people to paste; they are written in a format's words.
    if (path === 'core/commands/start.ts') continue
    const code = text.replace(/\/\*\*[^]*?\*\/|\/\/.*/g, '')
    t.notMatch(code, spellings, path)
  }
  t.end()
})

t.test('only ledger/ knows the names of keys that hold money, and only main.ts touches the process', t => {
  for (const { path, text } of [...core, ...plugins]) {
    const code = text.replace(/\/\*\*[^]*?\*\/|\/\/.*/g, '')
    if (!path.startsWith('core/ledger/')) t.notMatch(code, /scripts\.key\(|\.hincrby\(|\.hset\(/, path)
    if (path !== 'core/main.ts') t.notMatch(code, /\bprocess\.(?:env|argv|exit|on|stdout|stderr|pid|cwd)\b(?!\))/, path)
  }
  t.end()
})

t.test('no file is a hall and every export says what it is', t => {
  for (const { path, text } of [...core, ...plugins]) {
    t.ok(text.split('\n').length <= 330, `${path} has at most 330 lines`)
    t.match(text.trimStart(), /^(?:\/\*\*|import|#)/, `${path} begins with what it is`)
  }
  t.end()
})
