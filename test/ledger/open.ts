/** A ledger without a gateway, for simulations. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { StoreConfig } from '../../core/config/config.ts'
import { parseAddress } from '../../core/config/store-address.ts'
import { Ledger } from '../../core/ledger/ledger.ts'
import { Records } from '../../core/records/records.ts'
import { openStore, type Store } from '../../core/store/store.ts'
import { timedId } from '../../core/lib/ids.ts'
import { testEnvironment } from '../environment.ts'
import { config } from '../plugins/facts.ts'
import type { RealRedis } from '../redis.ts'

/**
 * Opens a ledger with records of its own, on the store's keys of one prefix.
 * @param more settings of the store
 * @param clock in milliseconds since the epoch, if it is not that of the machine: also of the store
 */
export async function openLedger(
  t: Test,
  redis: RealRedis,
  prefix: string,
  more: Partial<StoreConfig> = {},
  clock?: () => number,
): Promise<{ readonly ledger: Ledger; readonly store: Store }> {
  const data = mkdtempSync(join(tmpdir(), 'tollgate-simulation-'))
  t.teardown(() => rmSync(data, { recursive: true, force: true }))
  const environment = testEnvironment(process.env, clock && { now: clock, newId: () => timedId(clock()) })
  const place = { ...config.store, address: parseAddress(redis.url), prefix, data, ...more }
  const store = await openStore(place, 'guest', environment)
  t.teardown(() => store.close())
  if (clock) setClock(store)
  const records = await Records.open(place, environment)
  t.teardown(() => records.close())
  const ledger = new Ledger({ store, records, config: { ...config, store: place }, environment })
  if (clock) await store.redis.set(CLOCK, clock() / 1000)
  await ledger.continuity.start(false)
  if (clock) ledger.continuity.now = clock
  return { ledger, store }
}

/** The key of the store's time, in seconds, of a ledger with a clock. */
export const CLOCK = 'clock'

/** Lets the script of a store read its time from a key. */
function setClock({ redis }: Store): void {
  const define = redis.defineCommand.bind(redis)
  redis.defineCommand = (name, { lua, ...more }) => {
    const timed = lua
      .replace("redis.call('TIME')", `{ redis.call('GET', '${CLOCK}'), '0' }`)
      .replace("redis.call('XADD', stream, '*'", "redis.call('XADD', stream, string.format('%.0f-*', now())")
    define(name, { ...more, lua: timed })
  }
}
