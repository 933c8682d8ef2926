/** Opens the records of a store. */
import { existsSync } from 'node:fs'
import type { StoreConfig } from '../config/config.ts'
import type { Environment } from '../lib/environment.ts'
import { fileOf, Records } from '../records/records.ts'
import type { Store } from '../store/store.ts'
import { lostFile } from './recovery/refusals.ts'
import { orUnavailable } from '../records/unavailable.ts'
import { StoreKeys } from './script/store-keys.ts'

/**
 * Opens the records that a store is used with. An empty file is not made in the place of one that the store knows.
 * Closes the store if they cannot be opened.
 * @param first what must succeed before the tables are brought up to date
 * @throws Error for the operator
 */
export async function openRecords(
  environment: Pick<Environment, 'log' | 'newId' | 'now'>,
  config: StoreConfig,
  store: Pick<Store, 'redis' | 'close'>,
  first: () => Promise<unknown> = () => Promise.resolve(),
): Promise<Records> {
  try {
    await first()
    const file = fileOf(config)
    if (file !== undefined && !existsSync(file)) {
      const meta = new StoreKeys(config.prefix).shared('meta')
      if ((await orUnavailable(store.redis.hget(meta, 'records'))) !== null) throw new Error(lostFile(file))
    }
    return await Records.open(config, environment)
  } catch (thrown) {
    await store.close()
    throw thrown
  }
}
