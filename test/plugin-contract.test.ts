/** The contract with authors of plugins: docs/plugins.md has each name of it, with its type. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { API, type Symbol as TypeSymbol } from 'typescript/unstable/sync'
import { HOOKS, HOST_MEMBERS } from '../core/chain/stage.ts'
import { BODY_MEMBERS, EXCHANGE_MEMBERS, FACTS } from '../core/exchange/exchange.ts'
import { keepsTable, rowsOf } from './tables.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const PAGE = new URL('../docs/plugins.md', import.meta.url)

const api = new API({ cwd: ROOT })
t.teardown(() => api.close())
const project = api.updateSnapshot({ openProjects: [`${ROOT}tsconfig.json`] }).getProject(`${ROOT}tsconfig.json`)
if (!project) throw new Error('there is no project')
const { checker, program } = project

/** Returns what a module exports, by name. */
function exportsOf(file: string): ReadonlyMap<string, TypeSymbol> {
  const source = program.getSourceFile(`${ROOT}${file}`)
  const module = source && checker.getSymbolAtLocation(source)
  if (!module) throw new Error(`there is no module ${file}`)
  return new Map(checker.getExportsOfModule(module).map(symbol => [symbol.name, symbol]))
}

const exported = exportsOf('core/plugin/index.ts')

/** Returns the members of an exported type, each with its type as the documentation writes it. */
function membersOf(name: string): ReadonlyMap<string, string> {
  const symbol = exported.get(name)
  if (!symbol) throw new Error(`tollgate/plugin does not export ${name}`)
  const type = checker.getDeclaredTypeOfSymbol(checker.getAliasedSymbol(symbol))
  return new Map(
    checker
      .getPropertiesOfType(type)
      .filter(member => !member.name.includes('#'))
      .map(member => [member.name, shown(checker.typeToString(checker.getTypeOfSymbol(member) as never))]),
  )
}

/** Returns a type without what readers need not know, and without the `|` that would end a cell of a table. */
function shown(type: string): string {
  const hook = /^\((\(.*)\) \| undefined$/.exec(type)?.[1]
  return (hook ?? type)
    .replaceAll('Buffer<ArrayBufferLike>', 'Buffer')
    .replaceAll(/: With<[^>]*>|: Exchange(?=[,)])/g, '')
    .replaceAll(' | ', ' or ')
    .replaceAll(/\s+/g, ' ')
}

/** Fails unless the table with this heading has these members, with their types. */
function describes(t: Test, heading: string, type: string, members: readonly string[]): void {
  const types = membersOf(type)
  const rows = new Map(rowsOf(readFileSync(PAGE, 'utf8'), heading).map(row => [row[0], row]))
  keepsTable(
    t,
    PAGE,
    heading,
    members.map(member => {
      const [, , ...others] = rows.get(`\`${member}\``) ?? []
      return [`\`${member}\``, `\`${types.get(member) ?? ''}\``, ...others]
    }),
  )
}

t.test(
  'docs/plugins.md describes each hook and each member of x, x.body, host and what hooks get, with its type',
  t => {
    describes(t, 'hook', 'Stage', HOOKS)
    t.strictSame([...membersOf('Stage').keys()].sort(), [...HOOKS].sort())
    describes(t, 'x', 'Exchange', EXCHANGE_MEMBERS)
    describes(t, 'fact', 'Facts', FACTS)
    t.strictSame([...membersOf('Exchange').keys()].sort(), [...EXCHANGE_MEMBERS, ...FACTS].sort())
    describes(t, 'body', 'RequestBody', BODY_MEMBERS)
    t.strictSame([...membersOf('RequestBody').keys()].sort(), [...BODY_MEMBERS].sort())
    describes(t, 'host', 'Host', HOST_MEMBERS)
    t.strictSame([...membersOf('Host').keys()].sort(), [...HOST_MEMBERS].sort())
    for (const [heading, type] of [
      ['head', 'Head'],
      ['attempt', 'Attempt'],
      ['event', 'ReplyEvent'],
      ['rewriter', 'Rewriter'],
      ['usage', 'Usage'],
      ['used', 'KeyUsage'],
    ] as const)
      describes(t, heading, type, [...membersOf(type).keys()])
    t.end()
  },
)

t.test('each row of these tables has a meaning, and an example where the table has a column for it', t => {
  for (const heading of ['hook', 'x', 'fact', 'body', 'host', 'head', 'attempt', 'event', 'rewriter', 'usage', 'used'])
    for (const row of rowsOf(readFileSync(PAGE, 'utf8'), heading)) t.notOk(row.includes(''), row.join(' | '))
  t.end()
})

t.test('tollgate/plugin and tollgate/testing export exactly what docs/plugins.md names', t => {
  const page = readFileSync(PAGE, 'utf8')
  const named = page
    .split('\n## ')
    .filter(part => /^(?:Everything|Testing)/.test(part))
    .map(part =>
      rowsOf(`## ${part}`, 'export').flatMap(([cell = '']) => [...cell.matchAll(/`(\w+)/g)].map(found => found[1])),
    )
  t.strictSame(named[0]?.sort(), [...exported.keys()].sort())
  t.strictSame(named[1]?.sort(), [...exportsOf('core/testing/index.ts').keys()].sort())
  t.end()
})
