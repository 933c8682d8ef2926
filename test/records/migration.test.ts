/** Records that an earlier version has made. */
import { join } from 'node:path'
import type { Database } from '../../core/records/database.ts'
import { bytesOfId, timedId } from '../../core/lib/ids.ts'
import { dayOf } from '../../core/records/entry.ts'
import { FIRST, migrate } from '../../core/records/migrations.ts'
import { Months } from '../../core/records/months.ts'
import { openPostgres } from '../../core/records/postgres.ts'
import { openSqlite } from '../../core/records/sqlite.ts'
import { testEnvironment } from '../environment.ts'
import { onRecords, type Place } from './engines.ts'

const NOW = Date.now()
const ID = timedId(NOW)

/** Makes records as version 8 of the tables had them, with one key that was charged once. */
async function version8({ data, records }: Place): Promise<void> {
  const { log, newId } = testEnvironment()
  const database: Database =
    records === undefined
      ? await openSqlite(join(data, 'records.sqlite'))
      : await openPostgres(records, { connections: 2, timeoutMs: 30_000, log })
  await migrate(database, newId, FIRST)
  await database.transaction(async sql => {
    await new Months(database.dialect).ensure(sql, [NOW])
    await sql.all("INSERT INTO names (no, name) VALUES (1, 'm'), (2, '')")
    await sql.all(`INSERT INTO accounts VALUES (7, 'key_old', 'famC', 'Ann', 'spring', 'active', NULL, 1, 3, 'digest', 'label',
      'hint', 1, 2, 500, 0, 9)`)
    await sql.all("INSERT INTO grants VALUES (7, 1, 'g1', 300, 1, '{}', 300, 1), (7, 2, 'g2', 200, 2, '{}', 500, 2)")
    await sql.all('INSERT INTO totals VALUES (7, 1, 40, 0, 1, 3, 10, 5, 0, 9, 1)')
    await sql.all(
      `INSERT INTO exchanges (id, ordinal, ended, charge, balance, account, key, model, booking, booked_ms, bucket_hour,
       bucket_part, kind, stream) VALUES (?, 1, ?, 40, 460, 7, 7, 1, 3, 0, 0, 0, 0, 0)`,
      [bytesOfId(ID), NOW],
    )
    const day = [dayOf(NOW), 7, 3, 1, 0, 0, 10, 0, 0, 5, 0, 40, 0, Buffer.alloc(0), Buffer.alloc(0)]
    await sql.all(`INSERT INTO day_accounts VALUES (${day.map(() => '?').join(', ')})`, day)
    await sql.all('INSERT INTO account_models VALUES (7, 1, 3, 10, 5, 40)')
    await sql.all('INSERT INTO day_account_models VALUES (7, ?, 1, 3, 10, 5, 40)', [dayOf(NOW)])
    await sql.all(
      `INSERT INTO failures (id, ended, account, alike, status, who, code, model, upstream_account, words, story)
       VALUES (?, ?, 7, 1, 429, 'key', 'x', 'm', '', NULL, '{}')`,
      [bytesOfId(timedId(NOW)), NOW],
    )
  })
  await database.close()
}

onRecords('keys of version 8 have a balance of their own, and a second key may join it', async (t, open, place) => {
  await version8(place)
  const records = await open()
  const before = await records.keys.get('key_old')
  t.match(before, {
    id: 'key_old',
    account: 'key_old',
    type: 'famC',
    name: 'Ann',
    batch: 'spring',
    version: 3,
    digest: 'digest',
    rotation: 1,
    cap: undefined,
    shared: false,
    grants: 2,
    granted: 500n,
    settled: 40n,
    ordinal: 1,
    pending: false,
  })
  t.match(await records.history.entries({ account: 'key_old' }, { count: 5 }), [
    { id: ID, charge: 40n, key: undefined },
  ])
  t.match(await records.failures.list({ key: 'key_old', before: undefined, code: undefined }, 5), [
    { key: 'key_old', code: 'x' },
  ])
  t.match(await records.database.all('SELECT key, key_name, account, charge FROM history'), [
    { key: 'key_old', key_name: 'Ann', account: 'key_old' },
  ])
  const second = { ...before, id: 'key_new', digest: 'other', version: 1 } as NonNullable<typeof before>
  t.equal(await records.keys.join('key_old', [second], 20), true)
  t.match(await records.keys.get('key_new'), { account: 'key_old', shared: true, granted: 500n, settled: 40n })
  t.strictSame((await records.accounts.withParts('key_old')).parts, new Map([['key_old', 40n]]))
  const whose = { account: 'key_old', key: 'key_old' }
  t.match((await records.history.summary(whose, NOW)).summary, { total: { requests: 3, charge: 40n } })
  t.match(await records.history.days(whose, 0, dayOf(NOW)), [{ all: { requests: 3 }, models: new Map([['m', {}]]) }])
  t.match((await Array.fromAsync(records.keys.pending(9))).flat(), [{ id: 'key_new' }])
  t.match(await records.accounts.pending(9), [{ id: 'key_old', shared: true }])
})
