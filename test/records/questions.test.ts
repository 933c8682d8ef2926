/** The statements of docs/operating.md, and the rows that they read. */
import { readFileSync } from 'node:fs'
import t from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import type { EndedEntry, Notes } from '../../core/records/entry.ts'
import { ENTRY_COLUMNS } from '../../core/records/exchange-rows.ts'
import { keyRecord, onRecords } from './engines.ts'

const DOCS = readFileSync(new URL('../../docs/operating.md', import.meta.url), 'utf8')
const QUESTIONS = [...DOCS.matchAll(/```sql\n([^`]+)```/g)].map(([, text = '']) => text)
const NOW = Date.parse('2026-11-26T10:14:00Z')

const NOTES: Notes = {
  format: 'chat-completions',
  endpoint: '/v1/chat/completions',
  model: 'acme/famC-5.5',
  type: 'famC',
  upstream: 'famC/main',
  stream: true,
  status: 'ok',
  httpStatus: 200,
  usage: { input: 300, cacheRead: 100, cacheWrite5m: 0, cacheWrite1h: 0, output: 50, reasoning: 10 },
  usageSource: 'upstream',
  cost: '400000000',
  durationMs: 2000,
  ttftMs: 200,
  address: '203.0.113.7',
}

const entry = (account: string, ordinal: number, notes: Partial<Notes> = {}, charge = 1_000_000_000n): EndedEntry => ({
  id: timedId(NOW + ordinal),
  account,
  ordinal,
  at: NOW + ordinal,
  kind: charge === 0n ? 'void' : 'settle',
  charge,
  balance: 5n,
  bucket: '498850.0',
  waived: 0n,
  notes: { ...NOTES, ...notes },
})

/** An answer with its numbers as numbers, whatever the database returns. */
function plain(rows: readonly object[]): unknown[] {
  return rows.map(row => Object.values(row).map(value => (/^-?[\d.]+$/.test(String(value)) ? Number(value) : value)))
}

onRecords('each question of docs/operating.md is answered', async (t, open) => {
  const records = await open()
  await records.keys.add([keyRecord({ id: 'key_1', name: 'Ann' }), keyRecord({ id: 'key_2', name: 'Bob' })], 0n, 1)
  const failed = { status: 'failed', httpStatus: 502, errorCode: 'upstream_failed', usage: undefined } as const
  const usage = { ...NOTES.usage, input: 100, cacheRead: 300 } as never
  const spare = { model: 'acme/famA-4.9', upstream: 'famA/spare', usage }
  await records.recorder.record(
    [
      entry('key_1', 1),
      entry('key_1', 2, { ...failed, usageSource: undefined, cost: undefined } as never, 0n),
      entry('key_2', 1, { ...spare, ttftMs: 900 }, 3_000_000_000n),
    ],
    new Map(),
  )
  const answers: unknown[][] = []
  for (const question of QUESTIONS) answers.push(plain(await records.database.all(question)))
  const [earned, failures, slow, cached, payers] = answers
  t.strictSame(earned, [
    ['acme/famA-4.9', 1, 3, 2.6],
    ['acme/famC-5.5', 2, 1, 0.6],
  ])
  t.match(failures, [[/^2026-11-26|Thu Nov 26 2026/, /^[0-9a-f]{8}-/, 'acme/famC-5.5', 502, 'upstream_failed']])
  t.strictSame(slow, [
    ['famA/spare', 1, 900, 2000],
    ['famC/main', 2, 200, 2000],
  ])
  t.strictSame(cached, [
    ['acme/famA-4.9', 0.75],
    ['acme/famC-5.5', 0.25],
  ])
  t.strictSame(payers, [
    ['key_2', 'Bob', 1, 3],
    ['key_1', 'Ann', 2, 1],
  ])
  t.equal(answers.length, 5)
})

t.test('the table of docs/operating.md names every column that an exchange is recorded with', async t => {
  const section = DOCS.slice(DOCS.indexOf('## Questions in SQL'), DOCS.indexOf('What did each model earn'))
  const named = new Set([...section.matchAll(/`(\w+)`/g)].map(([, name]) => name))
  const internal = ['bucket_hour', 'bucket_part', 'booked_ms']
  t.same(
    ENTRY_COLUMNS.filter(name => !named.has(name) && !internal.includes(name)),
    [],
  )
})

onRecords('an ordinary exchange has no rest, and a rare one comes back as it was', async (t, open) => {
  const records = await open()
  await records.keys.add([keyRecord({ id: 'key_1' })], 0n, 1)
  const huge = { input: 2 ** 40, cacheRead: 0, cacheWrite5m: 7, cacheWrite1h: 8, output: 2 ** 31, reasoning: 0 }
  const rare = entry('key_1', 2, {
    usage: { ...huge, audioInput: 5, rejected: 6 },
    attempts: [{ account: 'famC/a', failure: 'no \0 answer' }],
    unread: ['usage.$new'],
    quarantined: true,
  })
  const sent = [
    entry('key_1', 1),
    { ...rare, waived: 3n, kind: 'late' as const },
    // Nothing that a column refuses keeps others from being recorded.
    entry('key_1', 3, { durationMs: Number.NaN, ttftMs: 1e15, httpStatus: -1 }),
    entry('key_1', 4, { reason: 7n as never }),
  ]
  await records.recorder.record(sent, new Map())
  const rows = await records.database.all('SELECT rest FROM history ORDER BY ordinal')
  t.equal(rows[0]?.['rest'], null)
  const [fourth, third, second, first] = await records.history.entries({ account: 'key_1' }, { count: 9 })
  const { account: _one, ...whole } = sent[0] as EndedEntry
  t.strictSame(first, { ...whole, balance: -whole.charge, booking: first?.booking })
  t.match(second, { waived: 3n, kind: 'late', notes: rare.notes })
  t.match(third, { charge: 1_000_000_000n, notes: { ttftMs: 2 ** 31 - 1, httpStatus: 0 } })
  t.match(fourth, { charge: 1_000_000_000n, notes: { model: 'acme/famC-5.5', status: 'ok' } })
})
