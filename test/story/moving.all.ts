/** Shops of other gateways move here with the scripts of examples/moving, as docs/moving.md describes. */
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import t, { type Test } from 'tap'
import { findServer } from '../../core/store/managed.ts'
import { until } from '../gateway.ts'
import { execFileSync } from 'node:child_process'
import { Redis } from 'ioredis'
import { Place } from '../process.ts'
import { newDatabase } from '../records/engines.ts'
import { RealRedis } from '../redis.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SUFFIX = 'CR-ENCRYPTION-KEY-of-32-letters!'
const fixture = (name: string): string => readFileSync(join(ROOT, 'test/moving', name), 'utf8')
const script = (name: string): string => readFileSync(join(ROOT, 'examples/moving', name), 'utf8')
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

type Rows = readonly Readonly<Record<string, unknown>>[]

/** Writes rows as the clients of databases do. */
function csvOf(rows: Rows): string {
  const field = (value: unknown): string =>
    `"${(value as string | number | null) ?? ''}"`.replaceAll(/(?<=.)"(?=.)/g, '""')
  const names = Object.keys(rows[0] ?? {})
  return [names, ...rows.map(row => names.map(name => row[name]))].map(values => values.map(field).join(',')).join('\n')
}

function onSqlite(setup: string, query: string): Rows {
  const database = new DatabaseSync(':memory:')
  database.exec(setup)
  return database.prepare(query).all()
}

async function onPostgres(setup: string, query: string): Promise<Rows> {
  const client = new pg.Client(await newDatabase())
  await client.connect()
  try {
    await client.query(setup)
    return (await client.query(query)).rows as Rows
  } finally {
    await client.end()
  }
}

/** A shop: its keys as a file, how they are imported, and what each key is then. */
interface Shop {
  readonly name: string
  readonly file: (t: Test) => Promise<string>
  readonly perCredit: string
  /** By the secret: the status of its first request, its credits as its customer sees them, and its name. */
  readonly keys: Readonly<Record<string, readonly [status: number, balance: number, name: string]>>
  readonly summary: RegExp
}

/** Secrets of the fixtures, without their prefix, filled up to the length of real ones. */
const named = (prefix: string, name: string, end: string, length: number): string =>
  `${prefix}${name}${'0'.repeat(length - name.length - end.length)}${end}`
const oneApi = (name: string, end: string): string => named('sk-', name, end, 48)

const ONE_API = {
  [oneApi('aliceprod', '1')]: [200, 5, 'prod'],
  [oneApi('alicefree', '2')]: [200, 12.5, 'my "unlimited", key'],
  [oneApi('aliceoff', '3')]: [401, 1, 'disabled'],
  [oneApi('bobfree', '7')]: [429, -0.075, 'bob'],
} as const

const SHOPS: readonly Shop[] = [
  ...(['SQLite', 'PostgreSQL'] as const).flatMap((engine): Shop[] => {
    const on = engine === 'SQLite' ? onSqlite : onPostgres
    const file = async (name: string): Promise<string> => csvOf(await on(fixture(`${name}.sql`), script(`${name}.sql`)))
    return [
      {
        name: `new-api on ${engine}`,
        file: () => file('new-api'),
        perCredit: '500000',
        keys: {
          ...ONE_API,
          [oneApi('aliceold', '4')]: [401, 1, 'expired'],
          [oneApi('aliceempty', '5')]: [429, 0, '测试密钥'],
          [oneApi('carol', '8')]: [401, 0.000002, 'owner disabled'],
        },
        summary: /7 keys, 3 new balances[^]*0 before, 12\.425002 after/,
      },
      {
        name: `one-api on ${engine}`,
        file: () => file('one-api'),
        perCredit: '500000',
        keys: {
          ...ONE_API,
          [oneApi('aliceold', '4')]: [401, 1, 'expired'],
          [oneApi('aliceempty', '5')]: [401, 0, 'exhausted'],
        },
        summary: /6 keys, 2 new balances[^]*0 before, 12\.425 after/,
      },
    ]
  }),
  {
    name: 'sub2api',
    file: async () => csvOf(await onPostgres(fixture('sub2api.sql'), script('sub2api.sql'))),
    perCredit: '1',
    keys: {
      ...ONE_API,
      [oneApi('aliceoff', '3')]: [401, 12.5, 'disabled'],
      [oneApi('aliceold', '4')]: [401, 12.5, 'expired'],
      [oneApi('aliceempty', '5')]: [429, 0, 'exhausted'],
      'team_alices-own-choice-of-key-2026': [200, 12.5, 'own choice'],
      [oneApi('alicesub', '9')]: [429, 0, 'subscription'],
    },
    summary: /8 keys, 3 new balances[^]*0 before, 12\.425 after/,
  },
  {
    name: 'LiteLLM',
    file: async () => {
      const setup = fixture('litellm.sql').replaceAll(/\{([\w-]+)\}/g, (_, secret: string) => `'${sha256(secret)}'`)
      return csvOf(await onPostgres(setup, script('litellm.sql')))
    },
    perCredit: '1',
    keys: {
      'sk-aliceprod00000000001': [200, 5, 'prod'],
      'sk-alicefree00000000002': [200, 12.5, 'my "unlimited", key'],
      'sk-aliceoff000000000003': [401, 1, 'disabled'],
      'sk-aliceold000000000004': [401, 12.5, 'expired'],
      'sk-aliceempty0000000005': [429, 0, 'exhausted'],
      'sk-bobfree0000000000007': [429, -0.075, 'bob'],
      'sk-teamone0000000000008': [200, 9.5, 'team 1'],
      'sk-teamtwo0000000000009': [200, 39.876543211, ''],
      'sk-lone0000000000000010': [200, 0.375, 'lone'],
    },
    summary: /9 keys, 4 new balances[^]*0 before, 52\.676543211 after/,
  },
  {
    name: 'claude-relay-service',
    file: async t => {
      const { url } = await RealRedis.start(t)
      const redis = new Redis(url)
      for (const line of fixture('claude-relay-service.redis').trim().split('\n')) {
        const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare ?? '')
        const [command = '', ...args] = words.map(word =>
          word.replace(/^\{(cr_\w+)\}$/, (_, secret: string) => sha256(secret + SUFFIX)).replace(/^""$/, ''),
        )
        await redis.call(command, ...args)
      }
      redis.disconnect()
      const program = join(ROOT, 'examples/moving/claude-relay-service.js')
      return execFileSync(process.execPath, [program], { encoding: 'utf8', env: { REDIS_URL: url } })
    },
    perCredit: '1',
    keys: {
      cr_aliceprod00000000001: [200, 4.5, 'prod'],
      cr_alicefree00000000002: [429, 0, 'my "unlimited", key'],
      cr_aliceoff000000000003: [401, 5, 'disabled'],
      cr_aliceold000000000004: [401, 5, 'expired'],
      cr_aliceover00000000005: [429, -0.5, 'over'],
      cr_alicewait00000000007: [200, 1, 'waiting'],
      cr_carol0000000000000008: [401, 1, 'owner disabled'],
    },
    summary: /7 keys, 7 new balances[^]*0 before, 16 after/,
  },
]

const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

/** A folder with a gateway that takes the keys of other gateways. */
function newPlace(t: Test): Place {
  return new Place(t, file => file.set('keys', { prefixes: ['cr_', 'team_'], importSuffix: SUFFIX }))
}

for (const { name, file, perCredit, keys, summary } of SHOPS) {
  const skip = name.startsWith('claude') && findServer(process.env) === undefined && 'no redis-server on PATH'
  t.test(`the customers of ${name} go on with their secrets, balances and limits`, { skip }, async t => {
    const place = newPlace(t)
    const path = join(place.folder, 'keys.csv')
    writeFileSync(path, await file(t))
    const args = ['keys', 'import', path, '--type', 'famC', '--per-credit', perCredit]
    t.match(await place.run(...args), { code: 0, out: summary, err: '' })
    const running = await place.start(t)
    for (const [secret, [status, balance, words]] of Object.entries(keys)) {
      const view = JSON.parse((await place.run('keys', 'show', secret, '--json')).out)
      t.match({ balance: Number(view.balance), name: view.name }, { balance, name: words }, secret)
      t.equal((await running.chat(secret, BODY)).status, status, `${secret}: the first request`)
      await until(async () => Number(JSON.parse((await place.run('keys', 'show', secret, '--json')).out).held) === 0)
      // What one key of a balance uses, the others lack.
      const { id } = JSON.parse((await place.run('keys', 'show', secret, '--json')).out)
      await place.run('keys', 'topup', secret, JSON.parse((await place.run('keys', 'show', id, '--json')).out).used)
    }
    t.match(await place.run(...args), { out: new RegExp(`${Object.keys(keys).length} keys are here already`) })
    t.match(await place.run('audit'), { code: 0 })
  })
}

t.test('a shop of new-api with a thousand keys moves at once', async t => {
  const place = newPlace(t)
  const users = Array.from({ length: 400 }, (_, n) => `(${n}, 'u${n}', 1, ${n * 1000})`)
  const keyOf = (n: number): string => `shop${'k'.repeat(40)}${String(n).padStart(4, '0')}`
  const tokens = Array.from({ length: 1000 }, (_, n) => `(${n}, ${n % 400}, '${keyOf(n)}', 'key ${n}', TRUE)`)
  const setup = `${fixture('new-api.sql')}
    DELETE FROM users; DELETE FROM tokens;
    INSERT INTO users (id, username, status, quota) VALUES ${users.join(',')};
    INSERT INTO tokens (id, user_id, "key", name, unlimited_quota) VALUES ${tokens.join(',')}`
  const path = join(place.folder, 'keys.csv')
  writeFileSync(path, csvOf(onSqlite(setup, script('new-api.sql'))))
  const args = ['keys', 'import', path, '--type', 'famC', '--per-credit', '500000']
  t.match(await place.run(...args, '--dry-run'), { out: /To import: 1000 keys, 400 new balances[^]*159\.6 after/ })
  t.match(await place.run(...args), { code: 0, out: /Imported: 1000 keys, 400 new balances[^]*159\.6 after/ })
  const running = await place.start(t)
  for (const n of [399, 799, 3]) t.equal((await running.chat(`sk-${keyOf(n)}`, BODY)).status, 200)
  await until(async () => (await running.held(`sk-${keyOf(399)}`)) === '0')
  t.match(await place.run('audit'), { code: 0, out: /400 accounts/ })
})
