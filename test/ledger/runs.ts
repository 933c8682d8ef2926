/** Runs of the simulations of the ledger and of its quotas, each on a store and records of its own. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import { Keys } from '../../core/keys/keys.ts'
import type { Ledger } from '../../core/ledger/ledger.ts'
import { Scripts } from '../../core/ledger/script/scripts.ts'
import { findServer } from '../../core/store/managed.ts'
import { newDatabase } from '../records/engines.ts'
import { SqliteRows } from '../records/sqlite-rows.ts'
import type { RealRedis } from '../redis.ts'
import { openLedger } from './open.ts'
import type { ScriptMutation } from './script-mutations.ts'
import { type Mutation, Simulation, type Tally } from './simulation.ts'

/** A simulation empties its store again and again. */
export const skip = findServer(process.env) === undefined && 'no redis-server on PATH'

/** `SEED=` repeats a run. `STEPS=` makes it longer. */
export const seed = Number(process.env['SEED'] ?? 20_261_125)
export const steps = Number(process.env['STEPS'] ?? 600)
/** Whether the run is long enough for every kind of event. */
export const isLong = steps >= 3500
/** Simulations that run at the same time: while one waits for the store, another continues. */
export const SIDE_BY_SIDE = isLong ? 5 : 2

/** Runs one simulation on a store and records of its own. */
export async function simulate(
  t: Test,
  redis: RealRedis,
  nth: number,
  steps: number,
  mutation?: Mutation | ScriptMutation,
): Promise<Tally> {
  const prefix = `s${nth}`
  // Of a long run, the last simulation uses PostgreSQL.
  const onPostgres = isLong && nth === SIDE_BY_SIDE - 1
  const data = mkdtempSync(join(tmpdir(), 'tollgate-simulation-'))
  t.teardown(() => rmSync(data, { recursive: true, force: true }))
  const { ledger, store } = await openLedger(t, redis, prefix, {
    commandTimeoutMs: 10_000,
    records: onPostgres ? await newDatabase() : undefined,
    data,
  })
  // In each second run, the database falls back instead of the store.
  const falls = nth % 2 === 1 && !onPostgres && mutation === undefined
  const rows = falls ? new SqliteRows(t, join(data, 'records.sqlite')) : undefined
  const inScript = typeof mutation === 'string' ? undefined : mutation
  const connections = [0, 1].map(() => mutated(store.redis.duplicate(), ...(inScript ? [inScript] : [])))
  t.teardown(() => connections.forEach(connection => connection.disconnect()))
  await Promise.all(connections.map(connection => connection.connect()))
  const scripts = connections.map(connection => new Scripts({ ...store, redis: connection }, prefix))
  const keys = new Keys(ledger, 0, Date.now)
  const created = await keys.changes.createMany({ type: 'famC', name: '', credits: 0n, expiresAt: undefined }, 3)
  const accounts = created.map(({ key }) => key.id)
  return new Simulation(
    seed + nth,
    { ledger, changes: keys.changes, scripts },
    rows,
    typeof mutation === 'string' ? mutation : undefined,
  ).run(accounts, steps)
}

/** The kinds of quotas. */
export const QUOTA_KINDS = [false, true].flatMap(isRolling => [false, true].map(isFair => ({ isRolling, isFair })))

/** Lets a connection run a mutated script. */
function mutated(connection: Redis, ...mutations: readonly ScriptMutation[]): Redis {
  const define = connection.defineCommand.bind(connection)
  connection.defineCommand = (name, { lua, ...how }) => {
    let script: string = lua ?? ''
    for (const { text, instead } of mutations) script = script.replace(text, () => instead)
    define(name, { ...how, lua: script })
  }
  return connection
}

/** Opens a ledger, and the scripts that a simulation runs. */
export async function openScripts(
  t: Test,
  redis: RealRedis,
  ...mutations: readonly ScriptMutation[]
): Promise<{ ledger: Ledger; scripts: Scripts }> {
  const prefix = `q${randomUUID()}`
  const { ledger, store } = await openLedger(t, redis, prefix)
  const connection = mutated(store.redis.duplicate(), ...mutations)
  t.teardown(() => connection.disconnect())
  await connection.connect()
  return { ledger, scripts: new Scripts({ ...store, redis: connection }, prefix) }
}
