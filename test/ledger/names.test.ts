import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { FIELDS, operation, OPERATIONS, scriptOf } from '../../core/ledger/script/names.ts'
import { StoreKeys } from '../../core/ledger/script/store-keys.ts'
import { rowsOf } from '../tables.ts'

const FOLDER = new URL('../../core/ledger/script/', import.meta.url)
const text = readdirSync(FOLDER)
  .filter(name => name.endsWith('.lua'))
  .map(name => readFileSync(new URL(name, FOLDER), 'utf8'))
  .join('\n')

/** The text of each operation of the script, by its name. */
const bodies = new Map(
  [...text.matchAll(/^operations\.(\w+) = function\(key, arg\)\n[^]*?\nend$/gm)].map(([body, name = '']) => [
    name,
    body,
  ]),
)

t.test('the script defines exactly the operations of the table, and uses each key, argument and field', t => {
  t.strictSame([...bodies.keys()].sort(), Object.keys(OPERATIONS).sort())
  for (const [name, { keys, args }] of Object.entries(OPERATIONS)) {
    for (const key of keys) t.match(bodies.get(name), new RegExp(`\\bkey\\.${key}\\b`), `${name} uses ${key}`)
    for (const arg of args) t.match(bodies.get(name), new RegExp(`\\barg\\.${arg}\\b`), `${name} uses ${arg}`)
  }
  for (const field of Object.keys(FIELDS)) t.match(text, new RegExp(`\\bfield\\.${field}\\b`), field)
  t.equal(new Set(Object.values(FIELDS)).size, Object.keys(FIELDS).length, 'each field has a short name of its own')
  t.end()
})

t.test('the script that the store runs has positions and short names only', t => {
  const code = scriptOf(text).replaceAll(/--.*/g, '')
  t.notMatch(code, /\b(?:field|key|arg)\.\w/)
  t.match(
    code,
    /^operations\['rejoin'\] = \{ 1, 1, function\(k, a\)\n {2}redis.call\('ZREM', KEYS\[k \+ 0\], ARGV\[a \+ 0\]\)/m,
  )
  t.end()
})

t.test('a name that the tables do not have is refused when the script is loaded', t => {
  const rejoin = (line: string): string => `operations.rejoin = function(key, arg)\n  ${line}\nend`
  t.throws(() => scriptOf(rejoin('return arg.amount')), { message: /unknown name arg.amount/ })
  t.throws(() => scriptOf(rejoin('return key.stream')), { message: /unknown name key.stream/ })
  t.throws(() => scriptOf(rejoin('return field.balanse')), { message: /balanse/ })
  t.throws(() => scriptOf('operations.rejion = function(key, arg)\nend'), { message: /rejion/ })
  t.throws(() => scriptOf('local function helper()\n  return arg.id\nend'), { message: /unknown name arg.id/ })
  t.end()
})

t.test('an operation has its keys and arguments in the order of the table', t => {
  const made = operation('abandon', 'key_1', { slots: 'b', hold: 'h' }, { readToEnd: true, most: 3, id: 'x' })
  t.strictSame(made, { name: 'abandon', account: 'key_1', keys: ['h', 'b'], args: ['x', '3', '1'] })
  t.end()
})

const PAGE = readFileSync(new URL('../../docs/ledger.md', import.meta.url), 'utf8')

t.test('docs/ledger.md has each operation, each field with its short name, and each key of an account', t => {
  t.strictSame(
    rowsOf(PAGE, 'operation').map(([name]) => name),
    Object.keys(OPERATIONS).map(name => `\`${name}\``),
  )
  t.strictSame(
    rowsOf(PAGE, 'field').map(([name, short]) => [name, short]),
    Object.entries(FIELDS).map(([name, short]) => [`\`${name}\``, `\`${short}\``]),
  )
  const keys = new StoreKeys('p')
  const { account, slots, leases, stream, shard } = keys.of('ACCOUNT')
  const { items, ends, sizes } = keys.kept({ account: 'ACCOUNT' })
  const spender = { account: 'ACCOUNT', key: 'KEY' }
  const made = [account, keys.hold('ACCOUNT', 'ID'), leases, slots, stream, keys.outcomes('ACCOUNT', 'BUCKET')]
  const own = { account: 'ACCOUNT' }
  const others = [keys.resends(own, 'REQUEST'), keys.claim(own, 'NAME'), keys.stored(own, 'ID')]
  const ofKeys = [keys.record(spender), keys.slots(spender)]
  const told = rowsOf(PAGE, 'key').map(([name]) => name)
  for (const name of [...made, ...others, ...ofKeys, items, ends, sizes])
    t.ok(told.includes(`\`${name.replace('p:', '').replace(`{${shard}}`, '{S}')}\``), name)
  t.end()
})

t.test('docs/ledger.md names each answer that an operation of the script gives', t => {
  const answers = new Map(rowsOf(PAGE, 'operation').map(row => [row[0]?.replaceAll('`', ''), row.join(' ')]))
  for (const [name, body] of bodies) {
    const given = [...body.matchAll(/return '(\w+)/g)].map(found => found[1] ?? '')
    for (const word of given) t.match(answers.get(name), new RegExp(`\\b${word}\\b`), `${name} answers ${word}`)
  }
  t.end()
})
