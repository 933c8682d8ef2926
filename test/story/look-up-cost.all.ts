import t from 'tap'
import type { Sql, SqlValue } from '../../core/records/database.ts'
import { PATHS } from '../../plugins/compat-lookups/answers.ts'
import { startGateway } from '../gateway.ts'
import { newDatabase } from '../records/engines.ts'
import { json, ScriptedUpstream } from '../upstream.ts'

/** A look-up must cost the same, however many other keys there are. */

const CHAT = '/v1/chat/completions'
const BODY = { model: 'acme/famC-5.5', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }
const REPLY = {
  choices: [{ message: { content: 'x' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 10, completion_tokens: 20 },
}

interface Query {
  readonly text: string
  readonly values: readonly SqlValue[]
}

/** How each database reads the rows of a query: one text for each table. */
const PLANS = {
  sqlite: async (sql: Sql, { text, values }: Query): Promise<string[]> =>
    (await sql.all(`EXPLAIN QUERY PLAN ${text}`, values)).map(({ detail }) => String(detail)),
  postgres: async (sql: Sql, { text, values }: Query): Promise<string[]> => {
    // PostgreSQL reads a small table as a whole if it may.
    await sql.all('SET LOCAL enable_seqscan = off')
    await sql.all('SET LOCAL enable_bitmapscan = off')
    const lines = (await sql.all(`EXPLAIN ${text}`, values)).map(row => String(row['QUERY PLAN']))
    return lines.flatMap((line, at) => (/(?:Seq|Index|Index Only) Scan/.test(line) ? [`${line} ${lines[at + 1]}`] : []))
  },
} as const

/** Whether a plan finds the rows of one key, and does not read those of others: it begins with an equality. */
const FINDS = {
  sqlite: /^SEARCH .*\((?:\w+=\?|rowid=\?)|^(?:CORRELATED )?SCALAR SUBQUERY|^USE TEMP B-TREE|^SCAN CONSTANT ROW/,
  postgres: /Index(?: Only)? Scan .* Index Cond: \(+\w+(?:\.\w+)? = /,
} as const

for (const dialect of ['sqlite', 'postgres'] as const) {
  const skip = dialect === 'sqlite' && process.env['TEST_RECORDS'] === 'postgres'
  t.test(`${dialect}: each query of a customer’s look-up finds its rows by the key`, { skip }, async t => {
    const upstream = await ScriptedUpstream.start(t)
    upstream.script = (_received, res) => json(res, REPLY)
    const env = dialect === 'postgres' ? { DATABASE_URL: await newDatabase() } : {}
    const g = await startGateway(t, { upstream: upstream.url, env })
    const { database } = g.gateway.records
    t.equal(database.dialect, dialect)
    const key = await g.key('famC')
    for (let nth = 0; nth < 3; nth++) t.equal((await g.call(CHAT, { key, body: BODY })).status, 200)
    await g.settled(key)
    await g.gateway.ledger.background.archiveAll()
    // Its queries are not those of a customer.
    await g.gateway.ledger.background.stop()
    const queries = new Map<string, Query>()
    const all = database.all.bind(database)
    Object.assign(database, {
      all: (text: string, values: readonly SqlValue[] = []) => {
        queries.set(text, { text, values })
        return all(text, values)
      },
    })
    const page = await g.call('/api/v1/key-info/history?limit=1', { key })
    const paths = [
      '/api/v1/keys/lookup/balance',
      '/api/v1/key-info',
      '/api/v1/key-info/usage',
      '/api/v1/key-info/usage?from=2026-01-01&to=2026-06-01',
      `/api/v1/key-info/history?limit=1&cursor=${page.json.next_cursor}`,
      '/api/v1/key-info/history?from=2026-01-01T00:00:00Z&to=2036-01-01T00:00:00Z',
      ...[...PATHS.keys()].filter(path => !path.startsWith('/v1') && !path.endsWith('/')),
    ]
    for (const path of paths) t.equal((await g.call(path, { key })).status, 200, path)
    Object.assign(database, { all })
    t.ok(queries.size >= 6, `${queries.size} queries`)
    for (const query of queries.values()) {
      const plan = await database.transaction(sql => PLANS[dialect](sql, query))
      t.ok(plan.length > 0, query.text)
      for (const step of plan) t.match(step, FINDS[dialect], query.text)
    }
  })
}
