import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { bytesOfId, idFromBytes, timedId, timeOfId } from '../../core/lib/ids.ts'
import { setMeta } from '../../core/records/migrations.ts'
import { Records } from '../../core/records/records.ts'
import { testEnvironment } from '../environment.ts'
import { config } from '../plugins/facts.ts'
import { dayOf, type EndedEntry, type EntryKind } from '../../core/records/entry.ts'
import { FOLD } from '../../core/records/retention.ts'
import { keyRecord, onRecords } from './engines.ts'
import { DAY_MS, entry, NOTES, NOW } from './entries.ts'

onRecords('an entry comes back as it was recorded', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  const sent = entry(key.id, 1, { waived: 3n })
  await records.recorder.record([sent], new Map([[7, { ms: 5, seq: 6 }]]))
  const { account: _account, ...expected } = sent
  const [read] = await records.history.entries({ account: key.id }, { count: 5 })
  t.match(read?.booking, { number: 1, at: Number })
  const booked = { balance: -sent.charge, booking: read?.booking }
  t.strictSame(read, { ...expected, ...booked })
  // Another process does not have the numbers of the names in memory.
  const other = await open()
  t.strictSame(await other.history.entry(sent.id), { ...sent, ...booked })
  t.strictSame(await other.history.positions(), new Map([[7, { ms: 5, seq: 6 }]]))
  t.equal(other.id, records.id)
})

onRecords('what is recorded twice, late or out of order counts once', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  const id = timedId(NOW)
  const of = (ordinal: number, kind: EntryKind, charge: bigint): EndedEntry =>
    entry(key.id, ordinal, { id, kind, charge, at: NOW + ordinal * DAY_MS })
  const record = (...entries: EndedEntry[]): Promise<void> => records.recorder.record(entries, new Map())
  const totals = (): Promise<object> => records.history.totals(key.id)
  await record(of(1, 'reaped', 4n), of(1, 'reaped', 4n))
  t.match(await totals(), { settled: 4n, entries: 1, ordinal: 1 })
  await record(of(2, 'late', 10n))
  await record(of(2, 'late', 10n), of(1, 'reaped', 4n))
  t.match(await totals(), { settled: 10n, entries: 1, ordinal: 2 })
  t.match(await records.history.entries({ account: key.id }, { count: 9 }), [
    { kind: 'late', charge: 10n, at: NOW + DAY_MS, againMs: DAY_MS },
  ])
  t.strictSame([...(await records.history.chargedBefore(key.id, 1, Infinity))], [[id, 4n]])
  t.strictSame([...(await records.history.chargedBefore(key.id, 0, Infinity))], [], 'not up to the number')
  t.strictSame([...(await records.history.chargedBefore(key.id, 1, NOW + DAY_MS))], [], 'not before the time')
  const { days, total, models } = (await records.history.summary({ account: key.id }, NOW + 3 * DAY_MS)).summary
  const once = { requests: 0, input: 1200, output: 50, charge: 10n }
  t.strictSame(total, once)
  t.strictSame([...days], [[dayOf(NOW) + 1, once]], 'on the day of its first end')
  t.strictSame([...models], [['acme/famC-5.5', once]])
  const other = timedId(NOW)
  await record(
    entry(key.id, 3, { id: other, kind: 'orphan', charge: 1n }),
    entry(key.id, 4, { id: other, kind: 'settle', charge: 99n }),
  )
  t.match(await totals(), { settled: 11n, entries: 2, ordinal: 4 })
})

onRecords('a refund is taken from the day and the model that it refunds', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  const charged = entry(key.id, 1)
  const { endpoint, model } = NOTES
  const refund = entry(key.id, 2, {
    kind: 'credit',
    charge: -10n,
    at: NOW + 5 * DAY_MS,
    notes: { endpoint, model, stream: false, entry: charged.id, endedAt: NOW, reason: 'x' },
  })
  await records.recorder.record([charged, refund], new Map())
  const { days, total } = (await records.history.summary({ account: key.id }, NOW)).summary
  t.match(total, { input: 1200, charge: 0n })
  t.match([...days], [[dayOf(NOW), { input: 1200, charge: 0n }]])
})

onRecords('pages, times and cursors select entries, newest first', async (t, open) => {
  const records = await open()
  const [key, other] = [keyRecord(), keyRecord()]
  await records.keys.add([key, other], 0n, 1)
  const entries = Array.from({ length: 1200 }, (_, index) => entry(key.id, index + 1, { at: NOW + index }))
  await records.recorder.record([...entries, entry(other.id, 1)], new Map())
  const ordinals = async (range: object): Promise<number[]> =>
    (await records.history.entries({ account: key.id }, { count: 3, ...range })).map(({ ordinal }) => ordinal)
  t.strictSame(await ordinals({}), [1200, 1199, 1198])
  t.strictSame(await ordinals({ before: 3 }), [2, 1])
  t.strictSame(await ordinals({ from: NOW + 10, to: NOW + 11 }), [12, 11])
  t.strictSame(
    (await records.history.entriesAfter(key.id, 1198, 5)).map(({ ordinal }) => ordinal),
    [1199, 1200],
  )
  t.equal((await records.history.totals(other.id)).entries, 1)
  t.equal(await records.history.charges(key.id), 12_000n)
})

onRecords('old exchanges are deleted, and the sums of their accounts remain', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  const months = [0, 40, 80].map(days => NOW - days * DAY_MS)
  const entries = months.flatMap((ms, month) =>
    [0, 1].map(nth => entry(key.id, 6 - month * 2 - nth, { id: timedId(ms), at: ms })),
  )
  await records.recorder.record(entries, new Map())
  if (records.database.dialect === 'sqlite') {
    const plan = await records.database.all(`EXPLAIN QUERY PLAN ${FOLD}`, [new Uint8Array(16), 1])
    const used = plan.map(step => String(step['detail'])).filter(detail => detail.includes(' exchanges '))
    t.strictSame(used, ['SEARCH exchanges USING PRIMARY KEY (id<?)'], 'only old rows are read')
  }
  t.equal(await records.deleteBefore(NOW - 24 * DAY_MS), 4)
  t.equal(await records.deleteBefore(NOW - 24 * DAY_MS), 0)
  t.match(await records.history.totals(key.id), { settled: 60n, folded: 40n, entries: 2 })
  t.equal(await records.history.charges(key.id), 20n)
  if (records.database.dialect === 'postgres') {
    const months = await records.database.all('SELECT relid FROM pg_partition_tree(?::regclass) WHERE isleaf', [
      'exchanges',
    ])
    t.equal(months.length, 1, 'empty months are dropped')
  }
  await records.recorder.record([entry(key.id, 7)], new Map())
  t.match(await records.history.totals(key.id), { settled: 70n, folded: 40n, entries: 3 })
})

onRecords(
  'sums of days by key are deleted after their time, and those of all keys together remain',
  async (t, open) => {
    const records = await open()
    const keys = [keyRecord(), keyRecord()]
    await records.keys.add(keys, 0n, 1)
    for (const [nth, days] of [900, 801, 799, 0].entries())
      for (const key of keys) {
        const at = NOW - days * DAY_MS
        await records.recorder.record([entry(key.id, nth + 1, { id: timedId(at), at })], new Map())
      }
    t.equal(await records.deleteDaysBefore(NOW - 800 * DAY_MS), 4)
    t.equal(await records.deleteDaysBefore(NOW - 800 * DAY_MS), 0)
    const count = async (table: string): Promise<number> =>
      Number((await records.database.all(`SELECT COUNT(*) AS n FROM ${table}`))[0]?.['n'])
    t.same([await count('day_accounts'), await count('day_account_models'), await count('day_models')], [4, 4, 4])
    for (const { id } of keys) t.equal((await records.history.days({ account: id }, 0, dayOf(NOW))).length, 2)
  },
)

onRecords('a gateway leaves recording to one of a newer version, and goes on to serve', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 5n, 1)
  await records.database.transaction(sql => setMeta(sql, 'version', '99'))
  await t.rejects(records.recorder.record([entry(key.id, 1)], new Map()), { message: /a newer version of Tollgate/ })
  t.match(await records.keys.get(key.id), { granted: 5n })
  t.same(await records.history.entries({ account: key.id }, { count: 9 }), [])
})

onRecords('a failed transaction changes nothing, and the next one does', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 5n, 1)
  await t.rejects(records.keys.add([keyRecord(), key], 5n, 1))
  t.match(await records.keys.list({ count: 10, now: NOW }), [{ id: key.id, granted: 5n, grants: 1 }])
  const transaction = records.database.transaction.bind(records.database)
  records.database.transaction = use =>
    transaction(async sql => {
      await use(sql)
      throw new Error('the database has failed')
    })
  const unseen = entry(key.id, 1, { notes: { ...NOTES, model: 'never/seen' } })
  await t.rejects(records.recorder.record([unseen], new Map()))
  records.database.transaction = transaction
  await records.recorder.record([unseen], new Map())
  t.match(await records.history.entries({ account: key.id }, { count: 5 }), [{ notes: { model: 'never/seen' } }])
})

onRecords(
  'statements that the caller does not await run in order, and are undone with their transaction',
  async (t, open) => {
    const { database } = await open()
    const insert = 'INSERT INTO meta (name, value) VALUES (?, ?)'
    const values = async (): Promise<unknown[]> =>
      (await database.all("SELECT value FROM meta WHERE name LIKE 'put%' ORDER BY name")).map(({ value }) => value)
    await database.transaction(async sql => {
      sql.put(insert, ['put 1', 'a'])
      sql.putRows({
        before: 'INSERT INTO meta (name, value)',
        rows: [['put 1', 'b'], ['put 2', 'c']], // prettier-ignore
        after: 'ON CONFLICT (name) DO UPDATE SET value = excluded.value',
      })
      const [first, second] = await Promise.all([
        sql.all('SELECT value FROM meta WHERE name = ?', ['put 1']),
        sql.all('SELECT value FROM meta WHERE name = ?', ['put 2']),
      ])
      t.strictSame([first?.[0]?.['value'], second?.[0]?.['value']], ['b', 'c'], 'later statements see them')
      sql.put('DELETE FROM meta WHERE name = ?', ['put 2'])
    })
    t.strictSame(await values(), ['b'])
    const broken = database.transaction(async sql => {
      sql.put('DELETE FROM meta WHERE name = ?', ['put 1'])
      sql.put(insert, ['put 3', null])
      sql.put(insert, ['put 4', 'd'])
    })
    await t.rejects(broken)
    t.strictSame(await values(), ['b'], 'a transaction with a statement that fails changes nothing')
    const goesOn = database.transaction(async sql => {
      sql.put('DELETE FROM meta WHERE name = ?', ['put 1'])
      await sql.all(insert, ['put 3', null]).catch(() => {})
      await sql.all(insert, ['put 4', 'd'])
    })
    await t.rejects(goesOn)
    t.strictSame(await values(), ['b'], 'after a statement that fails, no other runs')
  },
)

onRecords('a transaction that throws leaves no statement behind, whether it was given or sent', async (t, open) => {
  const { database } = await open()
  const insert = 'INSERT INTO meta (name, value) VALUES (?, ?)'
  for (const awaited of [false, true])
    await t.rejects(
      database.transaction(async sql => {
        if (awaited) await sql.all('SELECT 1 AS one')
        for (let row = 0; row < 20; row++) sql.put(insert, [`left ${row}`, ''])
        void sql.all('SELECT 1 AS one').catch(() => {})
        throw new Error('changed its mind')
      }),
      { message: 'changed its mind' },
    )
  await database.transaction(sql => sql.all(insert, ['next', '']))
  t.strictSame(await database.all("SELECT name FROM meta WHERE name LIKE 'left%'"), [])
})

onRecords('notes that cannot be kept do not keep their entry, or others, from being recorded', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  await records.recorder.record(
    [entry(key.id, 1, { notes: { ...NOTES, httpStatus: -1 } }), entry(key.id, 2)],
    new Map(),
  )
  t.match(await records.history.entries({ account: key.id }, { count: 5 }), [
    { ordinal: 2, charge: 10n, notes: NOTES },
    { ordinal: 1, charge: 10n, notes: { model: NOTES.model, status: 'ok' } },
  ])
})

onRecords('a grant is added once, with a number of its own', async (t, open) => {
  const [one, other] = [await open(), await open()]
  const key = keyRecord()
  await one.keys.add([key], 100n, 1)
  const grant = (records: Records, id: string, account = key.id): ReturnType<Records['accounts']['grant']> =>
    records.accounts.grant(account, { id, amount: 7n, at: 2, notes: {} }, 170n)
  const grants = await Promise.all(
    Array.from({ length: 20 }, (_, index) => grant(index % 2 === 0 ? one : other, `g${index % 10}`)),
  )
  t.equal(grants.filter(done => typeof done === 'object' && done.added).length, 10)
  const all = await one.accounts.grants(key.id, 1)
  t.strictSame(
    all.map(({ n }) => n),
    Array.from({ length: 11 }, (_, index) => index + 1),
  )
  t.match(await one.keys.get(key.id), { granted: 170n, grants: 11 })
  t.equal(await grant(one, 'x', 'key_none'), undefined)
  t.equal(await grant(one, 'one too many'), 'over')
  t.match(await grant(one, 'g1'), { added: false }, 'a repetition is no new grant')
})

onRecords('a record changes only from the version that it has, and is pending until it is applied', async (t, open) => {
  const records = await open()
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  t.match((await Array.fromAsync(records.keys.pending(5))).flat(), [{ id: key.id }])
  await records.keys.applied([{ ...key, version: 2, grants: 0 }], 5)
  t.equal((await Array.fromAsync(records.keys.pending(5))).flat().length, 1, 'not as it was read')
  await records.keys.applied([{ ...key, version: 1, grants: 0 }], 5)
  t.equal((await Array.fromAsync(records.keys.pending(5))).flat().length, 0)
  const change = (from: number, version: number, pending: boolean): Promise<boolean> =>
    records.keys.change(key.id, { ...key, status: 'disabled', version }, { from, at: 9, pending })
  t.equal(await change(0, 1, true), false)
  t.equal(await change(1, 3, false), true)
  t.equal((await Array.fromAsync(records.keys.pending(5))).flat().length, 0)
  t.equal(await change(3, 4, true), true)
  t.match((await Array.fromAsync(records.keys.pending(5))).flat(), [{ status: 'disabled', version: 4 }])
  t.match(await Array.fromAsync(records.keys.changedSince(9, 10)), [[{ id: key.id }]])
  t.match(await Array.fromAsync(records.keys.changedSince(10, 10)), [[{ id: key.id }]], 'it is pending')
  await records.keys.applied([{ ...key, version: 4, grants: 0 }], 9)
  t.strictSame(await Array.fromAsync(records.keys.changedSince(10, 10)), [])
})

onRecords('keys are found and listed by what an operator knows of them', async (t, open) => {
  const records = await open()
  const keys = [
    keyRecord({ name: 'Ann 100%', batch: 'spring', type: 'famA' }),
    keyRecord({ name: 'Bob', status: 'disabled' }),
    keyRecord({ name: 'anna' }),
  ]
  await records.keys.add(keys, 0n, 1)
  const names = async (search: object): Promise<string[]> =>
    (await records.keys.list({ count: 10, now: NOW, ...search })).map(({ name }) => name)
  t.strictSame(await names({ text: 'ANN' }), ['Ann 100%', 'anna'])
  t.strictSame(await names({ text: '0%' }), ['Ann 100%'])
  t.strictSame(await names({ text: '_' }), ['Ann 100%', 'Bob', 'anna'], 'every id has one')
  t.strictSame(await names({ type: 'famA', batch: 'spring' }), ['Ann 100%'])
  t.strictSame(await names({ state: 'disabled' }), ['Bob'])
  t.strictSame(await names({ count: 1, after: { id: keys[0]?.id, value: undefined } }), ['Bob'])
  t.match(await records.keys.find([keys[1]?.digest ?? '']), { name: 'Bob' })
  t.equal(await records.keys.any(), true)
  t.strictSame(
    (await Array.fromAsync(records.keys.pages(2))).map(page => page.length),
    [2, 1],
  )
})

onRecords('processes that open new records together make the tables once', async (t, open) => {
  const opened = await Promise.all([open(), open(), open()])
  t.equal(new Set(opened.map(({ id }) => id)).size, 1)
  await opened[0]?.database.transaction(sql => sql.all("UPDATE meta SET value = '99' WHERE name = 'version'"))
  await t.rejects(open(), /newer version of Tollgate/)
})

onRecords('a search finds keys by parts of their names, whatever the case and the script', async (t, open) => {
  const records = await open()
  const names = ['Müller Söhne', 'ÅNGSTRÖM', '100%_sure', 'plain']
  const keys = names.map(name => ({ ...keyRecord(), name }))
  await records.keys.add(keys, 0n, 1)
  const found = async (text: string): Promise<string[]> =>
    (await records.keys.list({ text, now: NOW, count: 10 })).map(({ name }) => name)
  t.same(await found('MÜLLER'), ['Müller Söhne'])
  t.same(await found('ångström'), ['ÅNGSTRÖM'])
  t.same(await found('ngstr'), ['ÅNGSTRÖM'])
  t.same(await found('0%_S'), ['100%_sure'])
  t.same(await found('%'), ['100%_sure'])
  t.same(await found('PLAIN'), ['plain'])
  t.same(await found('nobody'), [])
})

t.test('an id is a UUID of version 7 with its millisecond, and no two are alike', t => {
  const ids = Array.from({ length: 2000 }, () => timedId(NOW + 0.7))
  for (const id of ids) if (!/^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/.test(id)) t.fail(id)
  t.strictSame([...new Set(ids.map(timeOfId))], [NOW])
  t.equal(new Set(ids).size, ids.length)
  t.equal(idFromBytes(bytesOfId(ids[0] ?? '')), ids[0])
  t.end()
})

t.test('records of a version that was never released are refused', async t => {
  const data = mkdtempSync(join(tmpdir(), 'tollgate-records-'))
  t.teardown(() => rmSync(data, { recursive: true }))
  const open = (): Promise<Records> => Records.open({ ...config.store, data, records: undefined }, testEnvironment())
  const records = await open()
  for (const [version, words] of [
    [1, /never released/],
    [4, /never released/],
    [99, /newer version/],
  ] as const) {
    await records.database.transaction(sql => setMeta(sql, 'version', String(version)))
    await t.rejects(open(), { message: words })
  }
  await records.close()
})
