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
import { testEnvironment } from '../environment.ts'
import { config } from '../plugins/facts.ts'
import type { RealRedis } from '../redis.ts'

/** Opens a ledger with records of its own, on the store's keys of one prefix. @param more settings of the store */
export async function openLedger(
  t: Test,
  redis: RealRedis,
  prefix: string,
  more: Partial<StoreConfig> = {},
): Promise<{ readonly ledger: Ledger; readonly store: Store }> {
  const data = mkdtempSync(join(tmpdir(), 'tollgate-simulation-'))
  t.teardown(() => rmSync(data, { recursive: true, force: true }))
  const environment = testEnvironment()
  const place = { ...config.store, address: parseAddress(redis.url), prefix, data, ...more }
  const store = await openStore(place, 'guest', environment)
  t.teardown(() => store.close())
  const records = await Records.open(place, environment)
  t.teardown(() => records.close())
  const ledger = new Ledger({ store, records, config: { ...config, store: place }, environment })
  await ledger.continuity.start(false)
  return { ledger, store }
}
