/** Runs tests on SQLite and on PostgreSQL. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { config } from '../plugins/facts.ts'
import type { StoreConfig } from '../../core/config/config.ts'
import { timedId } from '../../core/lib/ids.ts'
import type { KeyRecord } from '../../core/records/key-records.ts'
import { Records } from '../../core/records/records.ts'
import { testEnvironment } from '../environment.ts'
import { PostgresServer } from '../postgres.ts'

let server: Promise<string> | undefined

/** Returns the URL of a new database, on the server of this test run or on one of this file's own. */
export async function newDatabase(): Promise<string> {
  const shared = process.env['TEST_POSTGRES']
  server ??= shared === undefined ? own() : Promise.resolve(shared)
  return PostgresServer.database(await server)
}

async function own(): Promise<string> {
  const started = await PostgresServer.start()
  t.teardown(() => started.stop())
  return started.url
}

/** How the records of one engine are opened: another time, they are the same. */
export type Open = () => Promise<Records>

/** Where the records of one engine are. */
export type Place = Pick<StoreConfig, 'data' | 'records'>

type Engine = 'SQLite' | 'PostgreSQL'

/** A test of records. */
type RecordsTest = (t: Test, open: Open, place: Place) => Promise<void>

/** Defines a test that runs on SQLite, or with `TEST_RECORDS=postgres` on PostgreSQL. */
export function onRecords(name: string, run: RecordsTest): void {
  on(process.env['TEST_RECORDS'] === 'postgres' ? 'PostgreSQL' : 'SQLite', name, run)
}

/** Defines a test that runs once on each engine. */
export function onEachEngine(name: string, run: RecordsTest): void {
  for (const engine of ['SQLite', 'PostgreSQL'] as const) on(engine, name, run)
}

function on(engine: Engine, name: string, run: RecordsTest): void {
  t.test(`${engine}: ${name}`, async t => {
    const data = mkdtempSync(join(tmpdir(), 'tollgate-records-'))
    t.teardown(() => rmSync(data, { recursive: true, force: true }))
    const records = engine === 'PostgreSQL' ? await newDatabase() : undefined
    const open = async (): Promise<Records> => {
      const opened = await Records.open({ ...config.store, data, records }, testEnvironment())
      t.teardown(() => opened.close())
      return opened
    }
    await run(t, open, { data, records })
  })
}

/** Returns a key record for a test. */
export function keyRecord(more: Partial<KeyRecord> = {}) {
  const id = timedId(Date.now())
  return {
    id: `key_${id}`,
    account: more.id ?? `key_${id}`,
    type: 'famC',
    name: '',
    batch: '',
    status: 'active' as const,
    expiresAt: undefined,
    createdAt: 1,
    version: 1,
    digest: id,
    label: 'sk-...abcd',
    hint: 'sk-...abcd',
    rotation: 0,
    cap: undefined,
    lifetimeMs: undefined,
    metadata: {},
    ...more,
  }
}
