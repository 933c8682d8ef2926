import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import t from 'tap'
import { timedId } from '../../core/lib/ids.ts'
import { createLog } from '../../core/lib/log.ts'
import { Scrubber } from '../../core/lib/scrubber.ts'
import { openPostgres } from '../../core/records/postgres.ts'
import { Records } from '../../core/records/records.ts'
import { testEnvironment } from '../environment.ts'
import { until } from '../gateway.ts'
import { config } from '../plugins/facts.ts'
import { keyRecord, newDatabase } from './engines.ts'
import { DAY_MS, entry, NOW } from './entries.ts'

t.test('PostgreSQL: a new month is recorded while a backup reads', async t => {
  const url = await newDatabase()
  const data = mkdtempSync(join(tmpdir(), 'tollgate-records-'))
  const records = await Records.open({ ...config.store, data, records: url, recordsTimeoutMs: 2000 }, testEnvironment())
  const key = keyRecord()
  await records.keys.add([key], 0n, 1)
  await records.recorder.record([entry(key.id, 1)], new Map())
  const backup = new pg.Client(url)
  await backup.connect()
  await backup.query('BEGIN')
  await backup.query('LOCK TABLE exchanges IN ACCESS SHARE MODE')
  const later = NOW + 40 * DAY_MS
  await records.recorder.record([entry(key.id, 2, { id: timedId(later), at: later })], new Map())
  t.equal((await records.history.entries({ account: key.id }, { count: 9 })).length, 2)
  await t.rejects(records.deleteBefore(later), { message: /lock timeout/ }, 'the old month is dropped later')
  await backup.end()
  await records.deleteBefore(later)
  await records.close()
  rmSync(data, { recursive: true })
})

t.test('PostgreSQL: a process that vanishes in a transaction does not stop the others', async t => {
  const url = await newDatabase()
  const log = createLog(new Scrubber(), 'silent', process.stdout)
  const [one, other] = await Promise.all(
    [300, 5000].map(timeoutMs => openPostgres(url, { connections: 2, timeoutMs, log })),
  )
  let vanished: () => void = () => {}
  const hanging = one?.transaction(() => new Promise<void>(resolve => (vanished = resolve)))
  await until(async () => ((await other?.all("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"))?.length ?? 0) > 0)
  t.equal(await other?.transaction(async () => 'done'), 'done')
  vanished()
  await t.rejects(hanging as Promise<void>)
  await Promise.all([one?.close(), other?.close()])
})
